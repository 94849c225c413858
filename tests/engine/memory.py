"""A memory without a model: keeps cells as llama.cpp does, and breaks where llama.cpp would.

Logits and hidden states are hashes of all that a row sees, place in a group of 16 cells included, so
two rows are equal exactly when a real CPU would give equal bits. Rows are spoilt by the next call.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from coolhead.errors import NoRoom
from coolhead_worker.engine.chunk import Chunk
from coolhead_worker.engine.layout import ALIGN, PAD_SEQUENCE

N_VOCAB = 64
WIDTH = 8  # of one layer

Seen = list[tuple[int, int, int]]
"""(cell mod 16, position, token) of all that a row sees."""


def numbers(seen: Seen, count: int) -> NDArray[np.float32]:
    """(count,) numbers that depend on all that is seen and on nothing else."""
    seed = hashlib.sha256(repr([tuple(map(int, one)) for one in seen]).encode()).digest()
    return np.random.default_rng(list(seed)).normal(size=count).astype(np.float32)


def layers(seen: Seen) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Hidden states of two layers."""
    both = numbers(seen, 2 * WIDTH)
    return both[:WIDTH], both[WIDTH:]


@dataclass
class Cell:
    position: int
    token: int
    sequences: set[int]


@dataclass
class Decoded:
    rows: list[list[NDArray[np.float32]]]
    hidden: list[NDArray[np.float32]]


@dataclass
class FakeMemory:
    """`effects`: what is raised at call n, counted from 1; then the memory is unusable until cleared."""

    size: int
    effects: Mapping[int, Exception] = field(default_factory=dict)
    calls: list[Chunk] = field(default_factory=list)
    clears: int = 0
    cells: dict[int, Cell] = field(default_factory=dict)
    in_doubt: bool = False
    _shown: list[NDArray[np.float32]] = field(default_factory=list)

    def clear(self) -> None:
        self.cells, self.in_doubt = {}, False
        self.clears += 1

    def decode(self, chunk: Chunk) -> Decoded:
        assert not self.in_doubt, "a call on a memory that failed before"
        self.calls.append(chunk)
        self._spoil()
        for number, home in enumerate(chunk.homes):
            self._copy(home.sequence, chunk.base + number, home.length)
        effect = self.effects.get(len(self.calls))
        free = [at for at in range(self.size) if at not in self.cells][: len(chunk.tokens)]
        if effect is not None or len(free) < len(chunk.tokens):
            self.in_doubt = True
            raise effect or NoRoom("no room")
        assert free == list(range(free[0], free[0] + len(free))), "a hole in the memory"
        assert len(self.cells) == free[0], "a call that does not begin right after what is there"
        self._put_all(free, chunk)
        assert all(chunk.outputs[at] for row in chunk.rows for at in row.at), "logits of an idle row"
        rows = [[numbers(self._seen(free[at]), N_VOCAB) for at in row.at] for row in chunk.rows]
        hidden = [layers(self._seen(at)) for at in free] if chunk.spans else []
        self._shown = [row for said in rows for row in said]
        return Decoded(rows, [np.array(layer) for layer in zip(*hidden, strict=True)])

    def release(self, chunk: Chunk) -> None:
        pads = chunk.positions[chunk.first == PAD_SEQUENCE]
        for at, cell in list(self.cells.items()):
            cell.sequences -= set(range(chunk.base, chunk.base + len(chunk.homes)))
            if len(pads) and cell.position >= pads.min():
                cell.sequences.discard(PAD_SEQUENCE)
            if not cell.sequences:
                del self.cells[at]

    def held(self) -> set[int]:
        """All sequences that are in memory."""
        return {sequence for cell in self.cells.values() for sequence in cell.sequences}

    def positions(self, sequence: int) -> list[int]:
        return sorted(cell.position for cell in self.cells.values() if sequence in cell.sequences)

    def _copy(self, source: int, target: int, length: int) -> None:
        assert target not in self.held(), f"sequence {target} is taken"
        cells = [c for c in self.cells.values() if source in c.sequences and c.position < length]
        assert sorted(c.position for c in cells) == list(range(length)), "a home that is not there"
        for cell in cells:
            cell.sequences.add(target)

    def _put_all(self, places: list[int], chunk: Chunk) -> None:
        ends = {sequence: len(self.positions(sequence)) for sequence in self.held()}
        for i, at in enumerate(places):
            first, position = int(chunk.first[i]), int(chunk.positions[i])
            sequences = set(range(first, first + int(chunk.count[i])))
            for sequence in sequences:
                assert position == ends.get(sequence, 0), f"sequence {sequence} does not continue"
                ends[sequence] = position + 1
            self.cells[at] = Cell(position, int(chunk.tokens[i]), sequences)

    def _seen(self, at: int) -> Seen:
        """llama.cpp masks by the first sequence of a token."""
        own = self.cells[at]
        sequence = min(own.sequences)
        return [
            (place % ALIGN, cell.position, cell.token)
            for place, cell in sorted(self.cells.items())
            if sequence in cell.sequences and cell.position <= own.position
        ]

    def _spoil(self) -> None:
        for row in self._shown:
            row[:] = np.nan
