"""One model call as plain values: texts with their branches in, arrays for llama.cpp out.

Guarantee: pure values, no arithmetic of places (see `layout`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int32]
NOTHING: Tokens = np.zeros(0, dtype=np.int32)


@dataclass(frozen=True, slots=True)
class Branch:
    """What follows a state, each (n,) int32 tokens.

    `reads`: indices of the rows of `stem` whose logits are wanted, ascending. `leaves`: continuations
    of the stem, of which every row is wanted; each sees the stem and no other leaf.
    """

    stem: Tokens
    reads: tuple[int, ...]
    leaves: tuple[Tokens, ...] = ()

    @property
    def sequences(self) -> int:
        """One, or one for each leaf."""
        return max(1, len(self.leaves))

    @property
    def tokens(self) -> int:
        """Of stem and leaves."""
        return len(self.stem) + sum(map(len, self.leaves))


@dataclass(frozen=True, slots=True)
class Home:
    """What texts build on: the first `length` positions of `sequence`."""

    sequence: int
    length: int


@dataclass(frozen=True, slots=True)
class Text:
    """One state with its branches; all texts of a call have a home each.

    `probe`: when it is not empty, hidden states are wanted: those of the state's own tokens, and that
    of the probe's last one, which follows the state. `open`: another call may build on the state.
    """

    home: Home
    state: Tokens
    tight: tuple[Branch, ...] = ()
    free: tuple[Branch, ...] = ()
    probe: Tokens = field(default_factory=lambda: NOTHING)
    open: bool = False

    @property
    def branches(self) -> tuple[Branch, ...]:
        """Tight ones first."""
        return self.tight + self.free


@dataclass(frozen=True, slots=True)
class Limits:
    """`cells`: tokens that fit into one call. `sequences`: for its branches. `ubatch`: rows of one
    physical batch, a multiple of 16. `pack`: texts share a call up to so many cells."""

    cells: int
    sequences: int
    ubatch: int
    pack: int


@dataclass(frozen=True, slots=True)
class Row:
    """Where the logits of one branch come out: the rows `at` of the call, stem first, then leaves."""

    text: int
    branch: int
    at: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """Rows of a call whose hidden states are wanted: `length` from `start` on, and the row `probe`."""

    start: int
    length: int
    probe: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """One model call of n tokens.

    `tokens`, `positions`, `first`, `count`: (n,) int32; token i belongs to the sequences
    `first[i]` .. `first[i] + count[i] - 1`. `outputs`: (n,) int8, 1 where logits are computed.
    `homes`: of each new sequence, what it begins with; `base` is the number of the first of them.
    `places`: sequence of each text in this call, by its index. `spans`: hidden states that are
    wanted, by the index of their text.
    """

    tokens: NDArray[np.int32]
    positions: NDArray[np.int32]
    first: NDArray[np.int32]
    count: NDArray[np.int32]
    outputs: NDArray[np.int8]
    rows: tuple[Row, ...]
    homes: tuple[Home, ...]
    base: int
    places: dict[int, int]
    pads: int  #: padding tokens in this call
    spans: dict[int, Span] = field(default_factory=dict)
