"""The engine's part of a bench: plans, numbers of questions and sizes of batches as variants.

Guarantee: pure but for the engine it is given; each run reads states that nobody has seen before; what
is timed is all that a worker pays for an answer: the call of the engine and, for the trunk, the heads.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from coolhead.errors import StateTooLong
from coolhead.questions import Question
from coolhead_worker.bench.measuring import Done, Variant
from coolhead_worker.bench.workload import WORDS, asked, ticket
from coolhead_worker.engine.protocol import Engine, EvalItem, Evaluation, PinnedSet, PlanKind
from coolhead_worker.judgement.calibration import Head

TIMEOUT_S = 600.0
USUAL = 3
"""Questions of the cases that others are compared with."""


@dataclass(frozen=True, slots=True)
class Case:
    """One cell of the table: `questions` 1..10, `batch` jobs in one call, states of `words` words."""

    kind: PlanKind
    questions: int
    batch: int = 1
    words: int = WORDS

    @property
    def name(self) -> str:
        """Such as "pinned 3q x1"; with the words where they are not the usual ones."""
        length = "" if self.words == WORDS else f" {self.words}w"
        return f"{self.kind} {self.questions}q x{self.batch}{length}"

    def states(self, number: int) -> list[str]:
        """The states of run `number`."""
        rng = random.Random(f"{self.name} {number}")  # noqa: S311  # texts, no secret
        return [ticket(rng, self.words) for _ in range(self.batch)]

    def item(self, state: str) -> EvalItem:
        """What the engine is asked about one state."""
        return item_for(self.kind, state, asked(self.questions))


def item_for(kind: PlanKind, state: str, questions: Mapping[str, Question]) -> EvalItem:
    """All `questions` about a state under a plan; under the trunk they are asked of its features."""
    if kind is PlanKind.TRUNK:
        return EvalItem(state, {}, trunk=True)
    pinned = PinnedSet(questions) if kind is PlanKind.PINNED else None
    return EvalItem(state, questions, trunk=False, pinned=pinned)


def grid(quick: bool) -> list[Case]:
    """The table of `coolhead-worker bench`: every plan with 1, 3 and 10 questions, one job a call, and
    with 3 questions 2, 4 and 8 jobs a call; `quick`: 4 alone."""
    batches = (1, 4) if quick else (1, 2, 4, 8)
    pairs = [(3, batch) for batch in batches] + [(1, 1), (10, 1)]
    return [Case(kind, questions, batch) for kind in PlanKind for questions, batch in pairs]


def grouped(cases: Sequence[Case]) -> list[list[Case]]:
    """Cases that are measured in the same rounds: by number of questions, 3 first, the trunk with them.

    A pinned set is a prefix that stays in memory and costs every later call some attention: a group has
    one such set at most, as a worker with one task.
    """
    keys = [USUAL if case.kind is PlanKind.TRUNK else case.questions for case in cases]
    order = sorted(set(keys), key=lambda key: (key != USUAL, key))
    return [[case for case, own in zip(cases, keys, strict=True) if own == key] for key in order]


def engine_variant(engine: Engine, case: Case, tokens: Callable[[], int], repeats: int = 1) -> Variant:
    """A case as a variant.

    Args:
        engine: what is measured.
        case: what it reads.
        tokens: counts the tokens that the engine has put through the model.
        repeats: runs in each round.
    """
    heads: list[Head] = []

    def prepare(number: int) -> Callable[[], Done]:
        items = [case.item(state) for state in case.states(number)]

        def run() -> Done:
            before = tokens()
            for result in engine.evaluate(items, TIMEOUT_S):
                _conclude(result, case, heads)
            return Done(tokens() - before)

        return run

    return Variant(case.name, prepare, case.batch, repeats=repeats)


def _conclude(result: Evaluation | StateTooLong, case: Case, heads: list[Head]) -> None:
    """Probabilities out of what was read; heads are made at the first run, which is the warm-up."""
    if isinstance(result, StateTooLong):
        raise result
    if result.features is None:
        return
    if not heads:
        heads += random_heads(len(result.features), list(asked(case.questions).values()))
    for head in heads:
        head.probabilities(result.features)


def random_heads(features: int, questions: Sequence[Question]) -> list[Head]:
    """A head of the right shape for each question; what it says means nothing."""
    rng = np.random.default_rng(0)
    return [
        Head(
            rng.normal(size=(len(question.labels), features)),
            rng.normal(size=len(question.labels)), rng.normal(size=features), np.ones(features),
        )
        for question in questions
    ]  # fmt: skip
