"""The layout of one model call: pure arithmetic on token ids.

Guarantee: what a row sees (prefix, its state, its own branch) stands in the same order, at the same
distance from a 16-cell boundary, whichever other texts and branches ride along, rows come in whole
groups of 4, and a physical batch has 16 at least. On a CPU that makes answers bit-identical: attention
kernels add up whole groups of cells, masked cells add exact zeros, and matrix kernels treat groups of
rows alike. A test proves it.

    sequences 0 .. 3   constant prefixes, decoded alone, kept from call to call
    sequence  4        padding: belongs to nobody, is seen by nobody
    sequences 5 ..     one for each branch; a state's tokens carry all sequences of their text

    prefix |pad| state A tight A |pad| free A1 |pad| free A2 |pad| state B tight B |pad to 4|

Tight branches and the probe follow their state without padding: they are a fixed set, so their places
depend on the state alone. Free branches start on a boundary each: they come and go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from coolhead_worker.engine.chunk import Branch, Chunk, Home, Limits, Row, Span, Text, Tokens

ALIGN = 16  # cells; 8 is not enough where a vector register holds 16 floats
TAIL = 4  # the end of a call: K-quant kernels take rows in fours, and a remainder by another path
OUTPUTS = 4  # rows with logits in one physical batch come in multiples of this
PREFIXES = 4
PAD_SEQUENCE, FIRST_SEQUENCE = PREFIXES, PREFIXES + 1
PAD_TOKEN = 5  # any token that exists in every vocabulary


def aligned(count: int, to: int = ALIGN) -> int:
    """The next multiple of `to`."""
    return -(-count // to) * to


def cost(state: int, tight: int, free: Sequence[Branch]) -> int:
    """Cells for a state and tight branches of so many tokens and these free ones, padding included."""
    return aligned(state + tight) + sum(map(_free_cost, free))


def _free_cost(branch: Branch) -> int:
    return aligned(len(branch.stem)) + sum(aligned(len(leaf)) for leaf in branch.leaves)


@dataclass(slots=True)
class _Writer:
    """Segments of a call under construction; `pads` counts padding tokens, earlier calls' too."""

    pads: int
    sequence: int
    segments: list[tuple[Tokens, int, int, int]] = field(default_factory=list)
    size: int = 0

    def add(self, tokens: Tokens, position: int, first: int, count: int) -> int:
        """Append; returns the row of the first token."""
        self.segments.append((tokens, position, first, count))
        self.size += len(tokens)
        return self.size - len(tokens)

    def pad(self, to: int = ALIGN) -> None:
        """Append padding up to the boundary."""
        gap = aligned(self.size, to) - self.size
        if gap:
            self.add(np.full(gap, PAD_TOKEN, np.int32), self.pads, PAD_SEQUENCE, 1)
            self.pads += gap

    def take(self, count: int) -> int:
        """Numbers of so many new sequences; returns the first."""
        self.sequence += count
        return self.sequence - count


@dataclass(frozen=True, slots=True)
class Base:
    """What is in memory as a call begins: padding tokens, and the number of the first free sequence."""

    pads: int
    sequence: int = FIRST_SEQUENCE

    def beside(self, call: Chunk) -> Base:
        """The same after this call."""
        return Base(self.pads + call.pads, self.sequence + len(call.homes))


def prefix_chunk(prefix: Tokens, sequence: int, pads: int) -> Chunk:
    """The call that puts a prefix into its sequence.

    Args:
        prefix: its tokens.
        sequence: 0 .. PREFIXES - 1.
        pads: padding tokens that are in memory already.
    """
    base = Base(pads)
    writer = _Writer(pads, base.sequence)
    writer.add(prefix, 0, sequence, 1)
    writer.pad()
    return _chunk(writer, (), (), {}, aligned(len(prefix)), base)


def lay_out(texts: Sequence[Text], limits: Limits, base: Base) -> Iterator[Chunk]:
    """Calls that read every branch of every text.

    Texts of like length go together, up to `limits.pack` cells a call; a text whose branches do not
    fit into one call is split.

    Args:
        texts: each fits alone: `cost(state, tight, one free branch) <= limits.cells`.
        limits: of one call.
        base: what is in memory already.
    """
    for group in _groups(texts, limits):
        yield _lay_out_one(texts, group, limits.ubatch, base)


_Part = tuple[int, bool, tuple[int, ...]]  # text, whether it is its first part, free branches


def _groups(texts: Sequence[Text], limits: Limits) -> list[list[_Part]]:
    """Parts that go into one call together: longest first, each into the first call with room."""
    calls: list[tuple[list[_Part], int, int]] = []
    parts = [(*_need(texts, part), part) for part in _parts(texts, limits)]
    for cells, sequences, part in sorted(parts, key=lambda entry: -entry[0]):
        for at, (group, used, taken) in enumerate(calls):
            if used + cells <= min(limits.pack, limits.cells) and taken + sequences <= limits.sequences:
                group.append(part)
                calls[at] = (group, used + cells, taken + sequences)
                break
        else:
            calls.append(([part], cells, sequences))
    return [group for group, _, _ in calls]


def _parts(texts: Sequence[Text], limits: Limits) -> Iterator[_Part]:
    """Each text's branches, split only where they do not fit into one call."""
    for at, text in enumerate(texts):
        first = bool(text.tight) or len(text.probe) > 0
        taken: tuple[int, ...] = ()
        for branch in range(len(text.free)):
            longer = (*taken, branch)
            cells, sequences = _need(texts, (at, first, longer))
            if (taken or first) and (cells > limits.cells or sequences > limits.sequences):
                yield at, first, taken
                first, longer = False, (branch,)
            taken = longer
        if taken or first:
            yield at, first, taken


def _need(texts: Sequence[Text], part: _Part) -> tuple[int, int]:
    """Cells and sequences of a part."""
    text, free = texts[part[0]], [texts[part[0]].free[branch] for branch in part[2]]
    tight, probe = (text.tight, len(text.probe)) if part[1] else ((), 0)
    cells = cost(len(text.state), probe + sum(branch.tokens for branch in tight), free)
    return cells, bool(probe) + sum(branch.sequences for branch in (*tight, *free))


def _lay_out_one(texts: Sequence[Text], group: Sequence[_Part], ubatch: int, base: Base) -> Chunk:
    writer = _Writer(base.pads, base.sequence)
    rows: list[Row] = []
    homes: list[Home] = []
    places: dict[int, int] = {}
    spans: dict[int, Span] = {}
    for part in group:
        at, text = part[0], texts[part[0]]
        places[at] = base.sequence + len(homes)
        homes += [text.home] * _need(texts, part)[1]
        start = _write_state(writer, text, places[at], base.sequence + len(homes))
        if part[1] and len(text.probe):
            probe = writer.add(text.probe, text.home.length + len(text.state), writer.take(1), 1)
            spans[at] = Span(start, len(text.state), probe + len(text.probe) - 1)
        rows += _write_branches(writer, text, part)
    # What builds on this call must begin on a boundary, and a physical batch of a few rows is computed
    # by other kernels; else the end of a call need not be on one.
    few = writer.size % ubatch < ALIGN
    writer.pad(ALIGN if few or any(texts[at].open for at in places) else TAIL)
    return replace(_chunk(writer, rows, homes, places, ubatch, base), spans=spans)


def _write_state(writer: _Writer, text: Text, first: int, end: int) -> int:
    """The state, for the sequences from `first` to `end`; returns its first row."""
    writer.pad()
    if len(text.state):
        writer.add(text.state, text.home.length, first, end - first)
    return writer.size - len(text.state)


def _write_branches(writer: _Writer, text: Text, part: _Part) -> Iterator[Row]:
    at, with_tight, free = part
    position = text.home.length + len(text.state)
    for index, branch in enumerate(text.tight if with_tight else ()):
        yield Row(at, index, _write_branch(writer, branch, position, loose=False))
    for index in free:
        writer.pad()
        rows = _write_branch(writer, text.free[index], position, loose=True)
        yield Row(at, len(text.tight) + index, rows)


def _write_branch(writer: _Writer, branch: Branch, position: int, *, loose: bool) -> tuple[int, ...]:
    first = writer.take(branch.sequences)
    start = writer.add(branch.stem, position, first, branch.sequences)
    rows = [start + read for read in branch.reads]
    for number, leaf in enumerate(branch.leaves):
        if loose:
            writer.pad()
        start = writer.add(leaf, position + len(branch.stem), first + number, 1)
        rows += range(start, start + len(leaf))
    return tuple(rows)


def _chunk(
    writer: _Writer,
    rows: Sequence[Row],
    homes: Sequence[Home],
    places: dict[int, int],
    ubatch: int,
    base: Base,
) -> Chunk:
    parts = writer.segments
    spans = [np.arange(at, at + len(tokens), dtype=np.int32) for tokens, at, _, _ in parts]
    firsts = [np.full(len(tokens), first, np.int32) for tokens, _, first, _ in parts]
    counts = [np.full(len(tokens), count, np.int32) for tokens, _, _, count in parts]
    return Chunk(
        tokens=np.concatenate([tokens for tokens, _, _, _ in parts]),
        positions=np.concatenate(spans),
        first=np.concatenate(firsts),
        count=np.concatenate(counts),
        outputs=_outputs([at for row in rows for at in row.at], writer.size, ubatch),
        rows=tuple(rows),
        homes=tuple(homes),
        base=base.sequence,
        places=places,
        pads=writer.pads - base.pads,
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
