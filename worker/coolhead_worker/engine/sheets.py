"""What a batch of items wants of the model, without saying anything twice.

Guarantee: pure; items with the same prefix and state share one state pass, whatever they ask of it;
a question that two of them ask is one branch; what belongs to an item is found again by place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from coolhead_worker.engine.chunk import NOTHING, Branch, Home, Span, Text, Tokens
from coolhead_worker.engine.compiler import Prepared
from coolhead_worker.engine.features import features_of
from coolhead_worker.engine.protocol import Floats, Readout
from coolhead_worker.engine.readout import Labels, read

Rows = Sequence[NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Place:
    """A branch of a sheet: of its tight or of its free ones."""

    tight: bool
    index: int


@dataclass(slots=True)
class Sheet:
    """One state behind one prefix, with all branches that are wanted of it.

    `heard`: what was read of a branch, in the order of its marks. `probe`: not empty when the
    features of the state are wanted; then `features` holds them once it was read.
    """

    prefix: Tokens
    state: Tokens
    tight: tuple[Branch, ...] = ()
    free: list[Branch] = field(default_factory=list)
    heard: dict[Place, Readout] = field(default_factory=dict)
    probe: Tokens = field(default_factory=lambda: NOTHING)
    features: Floats | None = None
    open: bool = False  #: more may be wanted once it was read
    _labels: dict[Place, Labels] = field(default_factory=dict)
    _known: dict[tuple[str, tuple[int, ...]], Place] = field(default_factory=dict)

    def want_pinned(self, questions: Iterable[Prepared]) -> list[Place]:
        """All suffixes of a pinned set: always all, so that their places never change."""
        asked = list(questions)
        self.tight = tuple(one.branch for one in asked)
        places = [Place(tight=True, index=index) for index in range(len(asked))]
        for place, one in zip(places, asked, strict=True):
            self._labels[place] = one.labels
        return places

    def want(self, fingerprint: str, order: tuple[int, ...], one: Prepared) -> Place:
        """A question in a branch of its own."""
        key = (fingerprint, order)
        if key not in self._known:
            self._known[key] = place = Place(tight=False, index=len(self.free))
            self.free.append(one.branch)
            self._labels[place] = one.labels
        return self._known[key]

    def text(self, home: Home) -> Text:
        """As the layout wants it."""
        return Text(home, self.state, self.tight, tuple(self.free), self.probe, self.open)

    def late(self, home: Home, places: Sequence[Place], *, state: bool) -> Text:
        """Branches that were added later: on top of a state in memory, or with the `state` once more."""
        before = self.state if state else self.state[:0]
        return Text(home, before, (), tuple(self.free[place.index] for place in places))

    def hear(self, place: Place, rows: Rows) -> None:
        """Take the logits of one branch."""
        self.heard[place] = read(rows, self._labels[place])

    def feel(self, lower: NDArray[np.float32], upper: NDArray[np.float32], span: Span) -> None:
        """Take the hidden states of a call, of both layers."""
        self.features = features_of(lower[span.start : span.start + span.length], upper[span.probe])

    def place(self, branch: int) -> Place:
        """Of a branch by its number in `text`."""
        count = len(self.tight)
        return Place(branch < count, branch if branch < count else branch - count)


class Sheets:
    """The sheets of one batch, in order of first use."""

    def __init__(self) -> None:
        self._sheets: dict[tuple[bytes, bytes], Sheet] = {}

    def at(self, prefix: Tokens, state: Tokens) -> Sheet:
        """The sheet of a state behind a prefix."""
        key = (prefix.tobytes(), state.tobytes())
        if key not in self._sheets:
            self._sheets[key] = Sheet(prefix, state)
        return self._sheets[key]

    def by_prefix(self) -> list[list[Sheet]]:
        """Those with a common prefix together."""
        groups: dict[bytes, list[Sheet]] = {}
        for (prefix, _), sheet in self._sheets.items():
            groups.setdefault(prefix, []).append(sheet)
        return list(groups.values())
