"""From text to tokens: prefixes, states and branches, and where their labels are read.

Guarantee: the same text always gives the same tokens; what is the same for many items (prefixes,
questions) is tokenised once and remembered, within a bound; no text of a user becomes a control token.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from coolhead.questions import Question
from coolhead_worker.engine.chunk import Branch, Tokens
from coolhead_worker.engine.dialect import Dialect, Piece
from coolhead_worker.engine.plan import set_digest
from coolhead_worker.engine.protocol import PinnedSet
from coolhead_worker.engine.readout import Labels, Vocabulary

REMEMBERED = 1024
"""Branches and pinned sets that are kept."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A question as tokens: its branch, and where its labels are read; `alone`: nothing comes before
    the branch, the state is inside it."""

    branch: Branch
    labels: Labels
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Pinned:
    """A task: the prefix with all its questions and examples, and the suffix of each question, by id."""

    prefix: Tokens
    questions: dict[str, Prepared]


class Compiler:
    """Tokenises for one model.

    Args:
        vocabulary: the model's.
        bos: what every prompt begins with; may be empty.
        dialect: how the model is spoken to.
    """

    def __init__(self, vocabulary: Vocabulary, bos: Sequence[int], dialect: Dialect) -> None:
        self._vocabulary = vocabulary
        self._bos = list(bos) if dialect.bos else []
        self.dialect = dialect
        self._branches: OrderedDict[tuple[str, tuple[int, ...]], Prepared] = OrderedDict()
        self._pinned: OrderedDict[str, Pinned] = OrderedDict()
        self._known: OrderedDict[str, Labels] = OrderedDict()
        self.prefix: Tokens = self._tokens(dialect.head(), self._bos)
        self.probe: Tokens = self._tokens(dialect.probe())

    def state(self, text: str) -> Tokens:
        """A state: nothing in it is a control token."""
        return np.array(self._vocabulary.tokens(self.dialect.state(text)), dtype=np.int32)

    def question(self, question: Question, order: tuple[int, ...], state: str) -> Prepared:
        """A question on its own, with its options in this order.

        Args:
            question: the question.
            order: a permutation of its labels' indices.
            state: only looked at where a dialect's prompts do not begin with it.

        Raises:
            InvalidQuestion: this vocabulary can't answer it.
        """
        labels = self._labels(question)
        row = self.dialect.row(question, labels, order, state)
        if row is not None:
            return self._prepared(row, labels, alone=True)
        return _remembered(
            self._branches,
            (question.fingerprint, order),
            lambda: self._prepared(self.dialect.branch(question, labels, order), labels),
        )

    def pinned(self, pinned: PinnedSet) -> Pinned:
        """A task's questions and examples, all in one prefix; errors as in `question`."""
        return _remembered(self._pinned, set_digest(pinned), lambda: self._pin(pinned))

    def _labels(self, question: Question) -> Labels:
        return _remembered(
            self._known, question.fingerprint, lambda: self.dialect.labels(question, self._vocabulary)
        )

    def _pin(self, pinned: PinnedSet) -> Pinned:
        labels = {name: self._labels(one) for name, one in pinned.questions.items()}
        prefix = self._tokens(self.dialect.pinned_head(pinned, labels), self._bos)
        said = {
            name: self._prepared(self.dialect.pinned_branch(name, one), one) for name, one in labels.items()
        }
        return Pinned(prefix, said)

    def _prepared(self, pieces: Iterable[Piece], labels: Labels, *, alone: bool = False) -> Prepared:
        stem = self._tokens(pieces)
        leaves = tuple(np.array(leaf, dtype=np.int32) for leaf in labels.leaves)
        return Prepared(Branch(stem, (len(stem) - 1,), leaves), labels, alone)

    def _tokens(self, pieces: Iterable[Piece], before: Sequence[int] = ()) -> Tokens:
        parts = [self._vocabulary.tokens(piece.text, control=piece.control) for piece in pieces]
        return np.array([*before, *(token for part in parts for token in part)], dtype=np.int32)


K = TypeVar("K")


def _remembered(memory: OrderedDict[K, T], key: K, make: Callable[[], T]) -> T:
    if key in memory:
        memory.move_to_end(key)
        return memory[key]
    memory[key] = made = make()
    if len(memory) > REMEMBERED:
        memory.popitem(last=False)
    return made
