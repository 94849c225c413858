"""What stands beside the engine's variants in the same rounds: bare calls and JSON generation.

Guarantee: a bare twin puts exactly as many new tokens through the model as its case does in the same
round; a generation answers the same questions about a state of the same length. Places of prefixes
are looked up once: the cases of a bench must not use more prefixes than the engine keeps.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from coolhead_worker.bench.baseline import Bare, JsonGeneration
from coolhead_worker.bench.measuring import Done, Variant
from coolhead_worker.bench.variants import Case
from coolhead_worker.bench.workload import WORDS, asked, ticket
from coolhead_worker.engine.protocol import PlanKind

GENERATED = (3, 10)
"""Numbers of questions that are answered by generation."""


def bare_name(case: Case) -> str:
    """The bare twin of a case; the trunk's is the same for any number of questions."""
    questions = 1 if case.kind is PlanKind.TRUNK else case.questions
    return f"bare {Case(case.kind, questions, 1, case.words).name}"


def json_name(questions: int, *, questions_first: bool = False) -> str:
    """The generation of so many answers."""
    return f"json {questions}q" + (" questions first" if questions_first else "")


def bare_variants(bare: Bare, cases: Sequence[Case], repeats: int = 1) -> list[Variant]:
    """One for every case of one job a call and of usual length, each name once."""
    made: dict[str, Variant] = {}
    for case in cases:
        if case.batch == 1 and case.words == WORDS and bare_name(case) not in made:
            made[bare_name(case)] = _bare(bare, case, repeats)
    return list(made.values())


def _bare(bare: Bare, case: Case, repeats: int) -> Variant:
    (state,) = case.states(0)
    shape = bare.shape(case.item(state))
    usual = bare.length(state)

    def prepare(number: int) -> Callable[[], Done]:
        (state,) = case.states(number)
        return bare.prepared(shape.longer(bare.length(state) - usual))

    return Variant(bare_name(case), prepare, repeats=repeats)


def json_variants(generation: JsonGeneration, first: JsonGeneration) -> list[Variant]:
    """Generation of 3 and of 10 answers, and of 3 with the questions where a prefix cache keeps them.

    Args:
        generation: for questions after the message.
        first: for questions before it: another one, since its cache holds the last prompt alone.
    """
    plain = [_json(generation, questions, questions_first=False) for questions in GENERATED]
    return [*plain, _json(first, GENERATED[0], questions_first=True)]


def _json(generation: JsonGeneration, questions: int, *, questions_first: bool) -> Variant:
    name = json_name(questions, questions_first=questions_first)

    def prepare(number: int) -> Callable[[], Done]:
        rng = random.Random(f"{name} {number}")  # noqa: S311  # texts, no secret
        return generation.prepared(ticket(rng), asked(questions), questions_first=questions_first)

    return Variant(name, prepare)
