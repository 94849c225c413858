"""The layout of one model call: pure arithmetic on token ids.

Guarantee: what a question's row sees (prefix, its state, its own branch) stands in the same order,
at the same distance from a 16-cell boundary, whichever other items and questions ride along. On
a CPU that makes answers bit-identical: attention kernels add up whole groups of cells, masked
cells add exact zeros, and matrix kernels treat whole groups of rows alike. A test proves it.

    sequence 0   the constant prefix, decoded alone once, always reused
    sequence 1   padding: belongs to nobody, is seen by nobody
    sequence 2.. one for each branch; the state's tokens carry all sequences of their item

    prefix |pad| state A |pad| branch A1 |pad| branch A2 |pad| state B |pad| branch B1 |pad|
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

LAYOUT = "isolated-v1"
ALIGN = 16  # cells; 8 is not enough where a vector register holds 16 floats
OUTPUTS = 4  # rows with logits in one physical batch come in multiples of this
PREFIX_SEQUENCE, PAD_SEQUENCE, FIRST_SEQUENCE = 0, 1, 2
PAD_TOKEN = 5  # any token that exists in every vocabulary

Tokens = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Trunk:
    """The state of one item and its branches, each (n,) int32 tokens."""

    state: Tokens
    branches: tuple[Tokens, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """`cells`: tokens that fit into one call beside the prefix. `branches`: sequences for them.
    `ubatch`: rows of one physical batch, a multiple of 16."""

    cells: int
    branches: int
    ubatch: int


@dataclass(frozen=True, slots=True)
class Row:
    """Where the logits of one branch come out: row `at` of the call."""

    item: int
    branch: int
    at: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """One model call of n tokens.

    `tokens`, `positions`, `first`, `count`: (n,) int32; token i belongs to the sequences
    `first[i]` .. `first[i] + count[i] - 1`. `outputs`: (n,) int8, 1 where logits are computed.
    """

    tokens: NDArray[np.int32]
    positions: NDArray[np.int32]
    first: NDArray[np.int32]
    count: NDArray[np.int32]
    outputs: NDArray[np.int8]
    rows: tuple[Row, ...]
    sequences: int  #: branches in this call, from FIRST_SEQUENCE on


def aligned(count: int) -> int:
    """The next multiple of 16."""
    return -(-count // ALIGN) * ALIGN


def cost(state: int, branches: Sequence[int]) -> int:
    """Cells for a state and branches of so many tokens, padding included."""
    return aligned(state) + sum(map(aligned, branches))


def plan_id(backend: str, ubatch: int, template: str) -> str:
    """Everything beside the weights that can move a number, in one short text."""
    return f"{LAYOUT}.a{ALIGN}.ub{ubatch}.fa0.f16.{backend}.{template}"


@dataclass(slots=True)
class _Writer:
    """Segments of a chunk under construction; `pads` counts padding tokens, the prefix's too."""

    pads: int
    segments: list[tuple[Tokens, int, int, int]] = field(default_factory=list)
    size: int = 0

    def add(self, tokens: Tokens, position: int, first: int, count: int) -> int:
        """Append and pad to the boundary; returns the row of the last token."""
        self._append(tokens, position, first, count)
        last = self.size - 1
        gap = aligned(self.size) - self.size
        if gap:
            self._append(np.full(gap, PAD_TOKEN, np.int32), self.pads, PAD_SEQUENCE, 1)
            self.pads += gap
        return last

    def _append(self, tokens: Tokens, position: int, first: int, count: int) -> None:
        self.segments.append((tokens, position, first, count))
        self.size += len(tokens)


def prefix_chunk(prefix: Tokens) -> Chunk:
    """The call that puts the prefix into its sequence: once after load, and after a failed call."""
    writer = _Writer(pads=0)
    writer.add(prefix, 0, PREFIX_SEQUENCE, 1)
    return _chunk(writer, (), 0, aligned(len(prefix)))


def lay_out(trunks: Sequence[Trunk], prefix: int, limits: Limits) -> list[Chunk]:
    """Calls that read every branch of every trunk, as few as fit, in order.

    Args:
        trunks: each fits alone: `cost(state, one branch) <= limits.cells`.
        prefix: tokens of the constant prefix.
    """
    return [_lay_out_one(trunks, group, prefix, limits.ubatch) for group in _groups(trunks, limits)]


_Part = tuple[int, tuple[int, ...]]  # item, its branches


def _groups(trunks: Sequence[Trunk], limits: Limits) -> Iterator[list[_Part]]:
    """Parts that go into one call together."""
    group: list[_Part] = []
    cells = branches = 0
    for part in _parts(trunks, limits):
        need = _part_cost(trunks, part)
        if group and (cells + need > limits.cells or branches + len(part[1]) > limits.branches):
            yield group
            group, cells, branches = [], 0, 0
        group.append(part)
        cells, branches = cells + need, branches + len(part[1])
    if group:
        yield group


def _parts(trunks: Sequence[Trunk], limits: Limits) -> Iterator[_Part]:
    """Each item's branches, split only where they do not fit into one call."""
    for item, trunk in enumerate(trunks):
        taken: tuple[int, ...] = ()
        for branch in range(len(trunk.branches)):
            longer = (*taken, branch)
            if taken and (len(longer) > limits.branches or _part_cost(trunks, (item, longer)) > limits.cells):
                yield item, taken
                longer = (branch,)
            taken = longer
        if taken:
            yield item, taken


def _part_cost(trunks: Sequence[Trunk], part: _Part) -> int:
    trunk = trunks[part[0]]
    return cost(len(trunk.state), [len(trunk.branches[branch]) for branch in part[1]])


def _lay_out_one(trunks: Sequence[Trunk], group: Sequence[_Part], prefix: int, ubatch: int) -> Chunk:
    writer = _Writer(pads=aligned(prefix) - prefix)
    rows: list[Row] = []
    sequence = FIRST_SEQUENCE
    for item, branches in group:
        state = trunks[item].state
        if len(state):
            writer.add(state, prefix, sequence, len(branches))
        for branch in branches:
            at = writer.add(trunks[item].branches[branch], prefix + len(state), sequence, 1)
            rows.append(Row(item, branch, at))
            sequence += 1
    return _chunk(writer, tuple(rows), sequence - FIRST_SEQUENCE, ubatch)


def _chunk(writer: _Writer, rows: tuple[Row, ...], sequences: int, ubatch: int) -> Chunk:
    lengths = [len(tokens) for tokens, *_ in writer.segments]
    column = np.array([segment[1:] for segment in writer.segments], dtype=np.int32)  # (segments, 3)
    positions = [np.arange(p, p + n, dtype=np.int32) for p, n in zip(column[:, 0], lengths, strict=True)]
    return Chunk(
        tokens=np.concatenate([tokens for tokens, *_ in writer.segments]).astype(np.int32),
        positions=np.concatenate(positions),
        first=np.repeat(column[:, 1], lengths),
        count=np.repeat(column[:, 2], lengths),
        outputs=_outputs([row.at for row in rows], writer.size, ubatch),
        rows=rows,
        sequences=sequences,
    )


def _outputs(wanted: Sequence[int], size: int, ubatch: int) -> NDArray[np.int8]:
    """Flags of the wanted rows, and of idle ones until each physical batch has a multiple of 4."""
    flags = np.zeros(size, dtype=np.int8)
    flags[list(wanted)] = 1
    for start in range(0, size, ubatch):
        window = flags[start : start + ubatch]
        missing = -int(window.sum()) % OUTPUTS
        window[np.flatnonzero(window == 0)[:missing]] = 1
    return flags
