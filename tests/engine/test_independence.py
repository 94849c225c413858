"""What the real engine says of an item does not depend on what rides along, plan by plan."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from coolhead.policy import Debias
from coolhead.questions import Noul
from coolhead_worker.engine import llama_engine
from coolhead_worker.engine.llama_engine import LlamaEngine
from coolhead_worker.engine.protocol import EvalItem, Evaluation, Orders
from coolhead_worker.models import DemoModels
from tests.engine.tickets import (
    ALL,
    OTHER,
    POLITE,
    QUESTIONS,
    STATE,
    TRUNK,
    among,
    asked,
    move,
    one,
    pinned,
    slack,
)

pytestmark = pytest.mark.model

ALL_PINNED = pinned(*QUESTIONS)
OTHER_PINNED = pinned("urgency", state="Where is my parcel?")

ISOLATED_RIDES: dict[str, tuple[list[EvalItem], int]] = {
    "one alone": ([asked("queue")], 0),
    "others reordered": ([asked("urgency", "attack")], 0),
    "trunk alone": ([TRUNK], 0),
    "one added": ([EvalItem(STATE, {"polite": POLITE, **QUESTIONS}, True)], 0),
    "among others": ([OTHER, ALL, OTHER_PINNED], 1),
}
PINNED_RIDES: dict[str, tuple[list[EvalItem], int]] = {
    "one alone": ([pinned("queue")], 0),
    "others reordered": ([pinned("urgency", "attack")], 0),
    "among others": ([OTHER_PINNED, pinned(*QUESTIONS, trunk=True), OTHER], 1),
}

ENGINES = pytest.mark.parametrize("engine", ["fast", "deep"], indirect=True)


@pytest.fixture(scope="module")
def small_batches(demo_models: DemoModels) -> Iterator[LlamaEngine]:
    """An engine whose every call is many physical batches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llama_engine, "UBATCH", 64)
        patch.setattr(llama_engine, "PACK", 1024)
        engine = LlamaEngine(demo_models.deep, threads=1, n_ctx=1024)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def engine(request: pytest.FixtureRequest) -> LlamaEngine:
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def base(engine: LlamaEngine) -> Evaluation:
    return one(engine, ALL)


@pytest.fixture(scope="module")
def pinned_base(engine: LlamaEngine) -> Evaluation:
    return one(engine, ALL_PINNED)


@ENGINES
@pytest.mark.parametrize("ride", ISOLATED_RIDES)
def test_isolated_answers_and_the_trunk_do_not_depend_on_what_rides_along(
    engine: LlamaEngine, base: Evaluation, ride: str
) -> None:
    assert move(base, among(engine, *ISOLATED_RIDES[ride])) <= slack(engine)


@ENGINES
@pytest.mark.parametrize("ride", PINNED_RIDES)
def test_pinned_answers_do_not_depend_on_what_rides_along(
    engine: LlamaEngine, pinned_base: Evaluation, ride: str
) -> None:
    assert move(pinned_base, among(engine, *PINNED_RIDES[ride])) <= slack(engine)


@ENGINES
def test_a_cached_prefix_reads_like_one_that_was_just_decoded(
    engine: LlamaEngine, pinned_base: Evaluation
) -> None:
    decodes = engine.decodes
    one(engine, pinned("attack"))
    assert engine.decodes - decodes == 1
    for number in range(4):
        one(engine, pinned("q", state="Hi", of={"q": Noul(instructions=f"{number}?")}))
    decodes = engine.decodes
    cold = one(engine, ALL_PINNED)
    assert engine.decodes - decodes == 2
    assert move(pinned_base, cold) <= slack(engine)


def test_physical_batches_may_fall_anywhere(small_batches: LlamaEngine) -> None:
    everything = one(small_batches, ALL)
    for items, at in (([asked("queue")], 0), ([OTHER, ALL], 1)):
        assert move(everything, among(small_batches, items, at)) <= slack(small_batches)
    all_pinned = one(small_batches, ALL_PINNED)
    assert move(all_pinned, among(small_batches, [OTHER, pinned("queue")], 1)) <= slack(small_batches)


def test_a_state_beyond_one_physical_batch_reads_the_same_with_fewer_questions(deep: LlamaEngine) -> None:
    long, attack = "word " * 500, {"attack": QUESTIONS["attack"]}
    both = one(deep, EvalItem(long, {"polite": POLITE, **attack}, trunk=False))
    alone = one(deep, EvalItem(long, attack, trunk=False))
    assert alone.tokens - len(deep._compiler.prefix) > llama_engine.UBATCH
    assert move(both, alone) <= slack(deep)


@ENGINES
def test_other_orders_of_a_near_tie_read_like_those_that_are_always_read(
    engine: LlamaEngine, base: Evaluation
) -> None:
    always, when_near, never = (
        one(engine, asked("queue", orders={"queue": Orders(Debias.ROTATED, near_tie)})).readouts["queue"]
        for near_tie in (1.0, 0.999, 0.0)
    )
    assert (always.debias, when_near.debias, never.debias) == (Debias.ROTATED, Debias.ROTATED, Debias.RAW)
    assert np.abs(np.exp(always.logits) - np.exp(when_near.logits)).max() <= slack(engine)
    assert np.abs(np.exp(never.logits) - np.exp(base.readouts["queue"].logits)).max() <= slack(engine)
    assert not np.array_equal(always.logits, never.logits)


@ENGINES
def test_questions_of_a_pinned_set_see_each_other_and_isolated_ones_do_not(
    engine: LlamaEngine, pinned_base: Evaluation, base: Evaluation
) -> None:
    reordered = dict(reversed(QUESTIONS.items()))
    renamed = {"한글 id": QUESTIONS["attack"], "queue": QUESTIONS["queue"], "urgency": QUESTIONS["urgency"]}
    together = [move(pinned_base, one(engine, pinned("queue", of=other))) for other in (reordered, renamed)]
    apart = move(base, one(engine, EvalItem(STATE, renamed, trunk=False)))
    print(f"pinned questions move each other by up to {max(together):.3f} in probability")
    assert min(together) > 0
    assert apart <= slack(engine)
