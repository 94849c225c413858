"""Reads sheets: prefixes into memory, calls laid out, logits to the sheets that wait for them.

Guarantee: a prefix is decoded once and kept; other orders of near ties are read on top of the states
that are still in memory; texts that do not fit together are read alone, once; after any failure the
memory counts as empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from coolhead.errors import NoRoom
from coolhead_worker.engine.chunk import Chunk, Home, Limits, Text, Tokens
from coolhead_worker.engine.layout import Base, aligned, cost, lay_out, prefix_chunk
from coolhead_worker.engine.prefixes import Placed, Prefixes
from coolhead_worker.engine.sheets import Place, Rows, Sheet

More = Callable[[Sheet], Sequence[Place]]
"""Branches to add to a sheet after it was heard."""


class Heard(Protocol):
    """What a call gave: see `llama_context.Decoded`."""

    @property
    def rows(self) -> Sequence[Rows]:
        """Logits of each of the call's rows, valid until the next one."""

    @property
    def hidden(self) -> Sequence[NDArray[np.float32]]:
        """(n, width) of all its tokens, for each of two layers, when some were wanted."""


class Memory(Protocol):
    """The working memory of a model: see `LlamaContext`."""

    def clear(self) -> None:
        """Empty it."""

    def decode(self, chunk: Chunk) -> Heard:
        """One model call."""

    def release(self, chunk: Chunk) -> None:
        """Take a call's sequences out again."""


class Reader:
    """Reads on one memory.

    Args:
        memory: the model's.
        limits: of one call, before any prefix is in memory.
    """

    def __init__(self, memory: Memory, limits: Limits) -> None:
        self._memory = memory
        self._limits = limits
        self._prefixes = Prefixes(limits.cells)
        self._in_doubt = False

    def read(self, sheets: Sequence[Sheet], more: More) -> None:
        """Read all branches of sheets that have the same prefix.

        Args:
            sheets: what is wanted.
            more: asked about each sheet when it was heard; what it adds is read too.

        Raises:
            NoRoom: a text that does not fit even alone.
            DecodeFailed: another failure of the memory.
        """
        try:
            try:
                self._read(sheets, more, self._limits.pack)
            except NoRoom:
                self._doubt()
                self._read(sheets, more, 0)
        except BaseException:
            self._doubt()
            raise

    def _doubt(self) -> None:
        """Nothing is known of the memory; what is read next begins with emptying it."""
        self._prefixes.forget()
        self._in_doubt = True

    def _read(self, sheets: Sequence[Sheet], more: More, pack: int) -> None:
        home = self._home(sheets[0].prefix, max(map(_cells, sheets)))
        texts = [sheet.text(home) for sheet in sheets]
        places = [_places(sheet) for sheet in sheets]
        late: list[tuple[Sheet, Sequence[Place]]] = []
        base = Base(self._prefixes.pads)
        for chunk in lay_out(texts, self._left(pack), base):
            self._call(chunk, sheets, places)
            late += self._follow(chunk, sheets, more)
            self._memory.release(chunk)
        for sheet, added in late:
            for chunk in lay_out([sheet.late(home, added, state=True)], self._left(pack), base):
                self._call(chunk, [sheet], [added])
                self._memory.release(chunk)

    def _home(self, prefix: Tokens, need: int) -> Home:
        """The prefix in memory, decoded when it is not there."""
        placed = Placed(Home(0, 0), decode=False, clear=self._in_doubt)
        if len(prefix):
            placed = self._prefixes.place(prefix, min(need, self._limits.cells - aligned(len(prefix))))
        if placed.clear:
            self._memory.clear()
            self._in_doubt = False
        if placed.decode:
            pads = self._prefixes.pads - (aligned(len(prefix)) - len(prefix))
            self._memory.decode(prefix_chunk(prefix, placed.home.sequence, pads))
        return placed.home

    def _left(self, pack: int, done: Chunk | None = None) -> Limits:
        """Room beside the prefixes, and beside a call whose states are still in memory."""
        cells, sequences = (0, 0) if done is None else (len(done.tokens), len(done.homes))
        limits = self._limits
        return replace(
            limits,
            cells=limits.cells - self._prefixes.used - cells,
            sequences=limits.sequences - sequences,
            pack=pack,
        )

    def _call(self, chunk: Chunk, sheets: Sequence[Sheet], places: Sequence[Sequence[Place]]) -> None:
        done = self._memory.decode(chunk)
        for row, logits in zip(chunk.rows, done.rows, strict=True):
            sheets[row.text].hear(places[row.text][row.branch], logits)
        for text, span in chunk.spans.items():
            lower, upper = done.hidden
            sheets[text].feel(lower, upper, span)

    def _follow(
        self, done: Chunk, sheets: Sequence[Sheet], more: More
    ) -> list[tuple[Sheet, Sequence[Place]]]:
        """Read what is added to the sheets of a call on top of it; returns what finds no room there."""
        added = [(sheets[at], more(sheets[at]), place) for at, place in done.places.items()]
        late = [(sheet, places, place) for sheet, places, place in added if places]
        texts = [sheet.late(_after(sheet, place), places, state=False) for sheet, places, place in late]
        left = self._left(self._limits.cells, done)
        if not _all_fit(texts, left):
            return [(sheet, places) for sheet, places, _ in late]
        for chunk in lay_out(texts, left, Base(self._prefixes.pads).beside(done)):
            self._call(chunk, [sheet for sheet, _, _ in late], [places for _, places, _ in late])
            self._memory.release(chunk)
        return []


def _after(sheet: Sheet, sequence: int) -> Home:
    """The end of a state that is in memory."""
    return Home(sequence, len(sheet.prefix) + len(sheet.state))


def _places(sheet: Sheet) -> list[Place]:
    return [sheet.place(at) for at in range(len(sheet.tight) + len(sheet.free))]


def _cells(sheet: Sheet) -> int:
    tight = sum(branch.tokens for branch in sheet.tight) + len(sheet.probe)
    return cost(len(sheet.state), tight, sheet.free)


def _all_fit(texts: Sequence[Text], left: Limits) -> bool:
    cells = sum(cost(0, 0, text.free) for text in texts)
    return cells <= left.cells and sum(b.sequences for text in texts for b in text.free) <= left.sequences
