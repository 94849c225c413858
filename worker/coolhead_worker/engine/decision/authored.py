"""What all dialects of decision models have in common: prompts as scripts, spoken piece by piece.

Guarantee: pure; `digest` changes whenever a word, a seam or a temperature of the dialect does.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from coolhead.errors import InvalidQuestion, ModelUnsupported
from coolhead.policy import Debias
from coolhead.questions import Choice, Content, Noul, NoulCriteria, Question, Score
from coolhead_worker.engine.decision.fold import log_softmax
from coolhead_worker.engine.decision.script import Script, Told
from coolhead_worker.engine.decision.speech import Tokeniser, pieces, speech_of, stands_alone, with_state
from coolhead_worker.engine.dialect import Piece
from coolhead_worker.engine.protocol import Floats, PinnedSet, PlanKind, Readout
from coolhead_worker.engine.readout import Labels, Vocabulary
from coolhead_worker.engine.template import PROBE

Order = tuple[int, ...]

VERSION = 1

REMEMBERED = 1024
"""Branches that are kept: a template is slow, and is asked anew with every state."""

_UNPINNED = "this model's author has no prompt with the questions before the state: they are asked isolated"

SAMPLES: tuple[Question, ...] = (
    Noul(instructions="q"),
    Noul(instructions="q", criteria=NoulCriteria(true="t", false="f")),
    Choice(instructions="q", criteria={"a": None, "b": None}),
    Choice(instructions="q", criteria={"a": "x", "b": "y"}),
    Score(instructions="q", criteria=("low", "high")),
)


class Authored(ABC):
    """A `Dialect` in its author's words, orders and temperatures, whatever debiasing is wanted.

    Every one of `orders` is to be read (`adaptive` is False): the author's answer is made of all.
    """

    pins = False
    adaptive = False
    bos = False  # authors write the beginning token themselves

    def __init__(self, name: str, tokeniser: Tokeniser) -> None:
        self.name = name
        self.tokeniser = tokeniser
        self._branches: dict[tuple[str, Order], tuple[Piece, ...]] = {}

    def _settle(self, said: object) -> None:
        """Find the seams of the prompts; `said` is all that makes up the dialect."""
        scripts = [script for question in SAMPLES for script in self._sample(question)]
        self._speech = speech_of(scripts, self.tokeniser)
        self._said = repr((VERSION, said, self._speech))

    @property
    def state_first(self) -> bool:
        """Whether all prompts begin alike, up to the state."""
        return self._speech.shared

    def digest(self, kind: PlanKind) -> str:
        """See `Dialect.digest`."""
        said = (self._said, self.probe() if kind is PlanKind.TRUNK else ())
        return hashlib.sha256(repr(said).encode()).hexdigest()[:8]

    def head(self) -> tuple[Piece, ...]:
        """See `Dialect.head`; empty when prompts begin with the question."""
        return pieces((Told(self._speech.head),), self.tokeniser)

    def state(self, text: str) -> str:
        """See `Dialect.state`; with the author's words that cling to the state."""
        return self._speech.state(text)

    @abstractmethod
    def state_text(self, state: Content) -> str:
        """A state that may be structured, as the author's code writes it."""

    @abstractmethod
    def labels(self, question: Question, vocabulary: Vocabulary) -> Labels:
        """See `Dialect.labels`; the m marks that are read in each row."""

    @abstractmethod
    def shown(self, question: Question) -> tuple[Order, ...]:
        """What the author shows in each row: indices of the question's labels."""

    @abstractmethod
    def script(self, question: Question, labels: Labels, order: Sequence[int]) -> Script:
        """A whole prompt."""

    @abstractmethod
    def combined(self, question: Question, orders: Sequence[Order], rows: Sequence[Floats]) -> Floats:
        """(k,) logits that give the author's probabilities when divided by `temperature`.

        Args:
            question: the question, with k labels.
            orders: as they were shown.
            rows: for each order the (m,) logits of the marks, up to a constant.
        """

    @abstractmethod
    def temperature(self, question: Question) -> float | None:
        """See `Dialect.temperature`."""

    def orders(self, question: Question, level: Debias) -> tuple[Order, ...]:  # noqa: ARG002  # the author's own
        """See `Dialect.orders`; the author's, at every level."""
        return self.shown(question)

    def fold(self, question: Question, labels: Labels, shown: Sequence[tuple[Order, Readout]]) -> Readout:
        """See `Dialect.fold`."""
        orders = [order for order, _ in shown]
        logits = self.combined(question, orders, [said.logits for _, said in shown])
        mass = float(np.mean([said.mass for _, said in shown]))
        return Readout(log_softmax(logits), mass, labels.kind, _debias(question, orders))

    def probe(self) -> tuple[Piece, ...]:
        """See `Dialect.probe`."""
        return (Piece(f"\n\n{PROBE}"),)

    def branch(self, question: Question, labels: Labels, order: Sequence[int]) -> tuple[Piece, ...]:
        """See `Dialect.branch`; a whole row (see `speech.stands_alone`) when its beginning differs."""
        key = question.fingerprint, tuple(order)
        if key not in self._branches:
            if len(self._branches) >= REMEMBERED:
                self._branches.clear()
            script = self.script(question, labels, order)
            self._branches[key] = self._speech.branch(script, self.tokeniser)
        return self._branches[key]

    def row(
        self, question: Question, labels: Labels, order: Sequence[int], state: str
    ) -> tuple[Piece, ...] | None:
        """See `Dialect.row`."""
        said = self.branch(question, labels, order)
        return with_state(said, state) if stands_alone(said) else None

    def prompt(self, question: Question, order: Sequence[int]) -> Script:
        """A whole prompt, with the labels that this vocabulary has."""
        return self.script(question, self.labels(question, self.tokeniser), order)

    def pinned_head(
        self,
        pinned: PinnedSet,  # noqa: ARG002 - the seam's
        labels: Mapping[str, Labels],  # noqa: ARG002 - the seam's
    ) -> tuple[Piece, ...]:
        """Refused, as `pins` says beforehand."""
        raise ModelUnsupported(_UNPINNED)

    def pinned_branch(
        self,
        name: str,  # noqa: ARG002 - the seam's
        labels: Labels,  # noqa: ARG002 - the seam's
    ) -> tuple[Piece, ...]:
        """Refused, as `pins` says beforehand."""
        raise ModelUnsupported(_UNPINNED)

    def _sample(self, question: Question) -> list[Script]:
        """Its prompt, or none where the author has no words for such a question."""
        try:
            return [self.prompt(question, self.shown(question)[0])]
        except InvalidQuestion:
            return []


def _debias(question: Question, orders: Sequence[Order]) -> Debias:
    """In how many orders all labels were shown together; one by one they have no places."""
    if len(orders) == 1 or any(len(order) != len(question.labels) for order in orders):
        return Debias.RAW
    return Debias.REVERSED if len(orders) == 2 else Debias.ROTATED
