"""How a family of models is spoken to: the seam between prompts and the engine.

Guarantee: pure; text of users is only ever in pieces that are no control pieces; the digest of a plan
changes whenever any text of its prompts does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from coolhead.policy import Debias
from coolhead.questions import Question
from coolhead_worker.engine.protocol import PinnedSet, PlanKind, Readout
from coolhead_worker.engine.readout import Labels, Vocabulary


@dataclass(frozen=True, slots=True)
class Piece:
    """A text; in a `control` piece names of control tokens become those tokens."""

    text: str
    control: bool = False


class Dialect(Protocol):
    """What comes before the state, what follows it, and where the labels are read.

    `name` is short and stable; `pins` tells whether all questions of a task can stand before the state
    (else they are read isolated).
    """

    @property
    def name(self) -> str: ...

    @property
    def pins(self) -> bool: ...

    @property
    def adaptive(self) -> bool:
        """Whether other orders may be left out where the first one is clear; else all are read."""

    @property
    def bos(self) -> bool:
        """Whether the vocabulary's own beginning token stands before the head."""

    def digest(self, kind: PlanKind) -> str:
        """8 hex digits over all text that stands in a prompt of this plan."""

    def head(self) -> tuple[Piece, ...]:
        """What stands before the state, the same for all states and questions."""

    def state(self, text: str) -> str:
        """What is tokenised for a state, as plain text."""

    def labels(self, question: Question, vocabulary: Vocabulary) -> Labels:
        """The tokens that stand for the labels of a question.

        Raises:
            InvalidQuestion: this vocabulary can't answer it.
        """

    def branch(self, question: Question, labels: Labels, order: Sequence[int]) -> tuple[Piece, ...]:
        """What follows the state: the question, its options in this order, the opening of the answer.

        Args:
            question: the question.
            labels: how its labels are shown and read.
            order: a permutation of the labels' indices.
        """

    def row(
        self, question: Question, labels: Labels, order: Sequence[int], state: str
    ) -> tuple[Piece, ...] | None:
        """The whole prompt, where it does not begin with head and state; None where it does."""

    def orders(self, question: Question, level: Debias) -> tuple[tuple[int, ...], ...]:
        """In which orders the labels are shown when this level is wanted; the first as it is written."""

    def fold(
        self, question: Question, labels: Labels, shown: Sequence[tuple[tuple[int, ...], Readout]]
    ) -> Readout:
        """One readout, in the order of the question's labels.

        Args:
            question: the question.
            labels: how its labels were shown and read.
            shown: at least one order with what was read there: the marks' logits, as they stood.
        """

    def pinned_head(self, pinned: PinnedSet, labels: Mapping[str, Labels]) -> tuple[Piece, ...]:
        """What stands before the state in a pinned plan: all questions of the task, by whose ids the
        `labels` are, and its examples; only where `pins`."""

    def pinned_branch(self, name: str, labels: Labels) -> tuple[Piece, ...]:
        """What follows the state in a pinned plan for the question of this id; only where `pins`."""

    def probe(self) -> tuple[Piece, ...]:
        """What follows the state for learned heads: the beginning of a sentence about its author."""

    def temperature(self, question: Question) -> float | None:
        """The calibration that the model's author ships; None for none."""
