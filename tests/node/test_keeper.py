"""Care of the models between jobs: memory, soundness, warmth, on a clock that is moved by hand."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from coolhead.errors import (
    DecodeFailed,
    DecodeInterrupted,
    DecodeTimeout,
    ModelCorrupt,
    ModelMissing,
    NotFinite,
)
from coolhead.policy import Tier
from coolhead_worker.admission.conditions import Conditions, Memory, Thermal
from coolhead_worker.clock import ManualClock
from coolhead_worker.engine.fake import Effect, FakeEngine
from coolhead_worker.engine.protocol import Engine, EvalItem
from coolhead_worker.engine.resident import ResidentEngine
from coolhead_worker.engine.warmth import KEEP_WARM_GPU_S, WARM, keep_warm_s
from coolhead_worker.keeper import Care, Keeper
from coolhead_worker.metrics import Metrics
from coolhead_worker.model_report import ModelReporter

FAST, DEEP = Tier.FAST, Tier.DEEP
BAD = NotFinite("logits are not finite")
ITEM = EvalItem("a ticket", WARM.questions, trunk=False)


def memory(level: Memory, thermal: Thermal = Thermal.NOMINAL) -> Conditions:
    return Conditions(thermal, "fake", memory=level, memory_source="fake")


NORMAL, CRITICAL = memory(Memory.NORMAL), memory(Memory.CRITICAL)


PLAIN = Care(hold_s=60.0)


class House:
    """A keeper with fake models; `fails` are the errors of the next loads of the deep one."""

    def __init__(self, care: Care = PLAIN, *, effects: dict[int, Effect] | None = None) -> None:
        self.clock = ManualClock(1000.0)
        self.metrics = Metrics(CollectorRegistry())
        self.fast = FakeEngine("fast", effects=effects)
        self.deeps: list[FakeEngine] = []
        self.fails: list[Exception] = []
        self.tiers = {FAST: ResidentEngine(lambda: self.fast), DEEP: ResidentEngine(self._load)}
        self.broken: list[str] = []
        self.keeper = Keeper(self.tiers, care, self.clock, ModelReporter(self.metrics), self.broken.append)

    def _load(self) -> Engine:
        if self.fails:
            raise self.fails.pop(0)
        self.deeps.append(FakeEngine("deep"))
        return self.deeps[-1]

    @property
    def deep(self) -> ResidentEngine:
        return self.tiers[DEEP]

    def after(self, seconds: float, conditions: Conditions = NORMAL, *, is_open: bool = True) -> bool:
        """Tend later; returns whether the deep model is there."""
        self.clock.advance(seconds)
        self.keeper.tend(conditions, is_open=is_open)
        return self.deep.loaded

    def value(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"coolhead_model_{name}", labels) or 0.0


def test_the_deep_model_goes_with_the_first_critical_reading_and_comes_back_after_the_hold() -> None:
    house = House()
    assert house.after(0.0)
    assert not house.after(1.0, CRITICAL)
    assert house.deeps[0].closed
    assert house.keeper.reason == "deep model unloaded: memory pressure critical (fake)"
    assert not house.after(1.0, NORMAL)
    assert not house.after(59.9, NORMAL)
    assert house.after(0.2, NORMAL)
    assert house.keeper.reason == ""
    assert house.value("unloads_total", tier="deep", reason="memory") == 1
    assert house.value("cold_starts_total", tier="deep", reason="memory") == 1


@pytest.mark.parametrize("between", [Memory.WARN, Memory.CRITICAL, Memory.UNKNOWN])
def test_anything_but_normal_begins_the_hold_anew(between: Memory) -> None:
    house = House()
    house.after(0.0, CRITICAL)
    house.after(1.0, NORMAL)
    house.after(59.0, memory(between))
    assert not house.after(1.0, NORMAL)
    assert not house.after(59.0, NORMAL)
    assert house.after(1.0, NORMAL)


@pytest.mark.parametrize("level", [Memory.NORMAL, Memory.WARN, Memory.UNKNOWN])
def test_nothing_but_critical_takes_a_model_away(level: Memory) -> None:
    house = House()
    assert all(house.after(10.0, memory(level)) for _ in range(20))


def test_the_model_goes_even_while_the_gate_is_closed_and_comes_only_when_it_is_open() -> None:
    house = House()
    assert not house.after(1.0, memory(Memory.CRITICAL, Thermal.SERIOUS), is_open=False)
    for _ in range(10):
        assert not house.after(30.0, memory(Memory.NORMAL, Thermal.SERIOUS), is_open=False)
    assert house.after(0.1, NORMAL)


def test_a_model_that_has_to_go_again_at_once_waits_twice_as_long() -> None:
    house = House()
    waits: list[float] = []
    for _ in range(6):
        house.after(1.0, CRITICAL)
        house.after(1.0, NORMAL)
        waited = 0.0
        while not house.after(10.0, NORMAL):
            waited += 10.0
        waits.append(waited + 10.0)
    assert waits == [60.0, 120.0, 240.0, 480.0, 960.0, 960.0]


def test_a_model_that_does_not_load_is_tried_later_and_later() -> None:
    house = House()
    house.after(1.0, CRITICAL)
    house.fails = [ModelMissing("gone"), ModelCorrupt("damaged")]
    house.after(1.0, NORMAL)
    seen = [house.after(60.0, NORMAL) for _ in range(9)]
    # 60 s, then 120 s after the next normal reading, then 240 s
    assert seen == [False] * 8 + [True]
    assert house.metrics.registry.get_sample_value("coolhead_errors_total", {"kind": "model_load"}) == 2


def test_the_fast_model_never_goes_for_memory() -> None:
    house = House()
    house.after(1.0, CRITICAL)
    assert house.tiers[FAST].loaded
    assert not house.fast.closed


def test_a_node_without_deep_tier_has_nothing_to_give_up() -> None:
    house = House()
    keeper = Keeper({FAST: house.tiers[FAST]}, Care(), house.clock, ModelReporter(house.metrics))
    keeper.tend(CRITICAL, is_open=True)
    assert keeper.reason == ""


def spoil(engine: ResidentEngine) -> None:
    with pytest.raises(NotFinite):
        engine.evaluate([ITEM], 1.0)


def test_a_sound_fast_model_keeps_serving_after_numbers_that_were_not_finite() -> None:
    house = House(effects={1: BAD})
    spoil(house.tiers[FAST])
    assert house.keeper.explain(BAD) is BAD
    house.after(0.0)
    assert house.value("self_checks_total", tier="fast", result="structural") == 1
    assert house.broken == []


def test_a_damaged_fast_model_ends_the_node_for_good() -> None:
    house = House(effects={1: BAD, 2: BAD})
    spoil(house.tiers[FAST])
    error = house.keeper.explain(BAD)
    assert isinstance(error, ModelCorrupt)
    assert "restart the worker" in str(error)
    assert house.broken == [str(error)]
    for is_open in (True, False):
        with pytest.raises(ModelCorrupt):
            house.after(0.0, is_open=is_open)
    assert len(house.broken) == 1
    assert house.value("self_checks_total", tier="fast", result="failed") == 1


def test_a_check_that_was_stopped_for_heat_says_nothing_and_is_made_later() -> None:
    house = House(effects={1: BAD, 2: DecodeInterrupted()})
    spoil(house.tiers[FAST])
    with pytest.raises(DecodeInterrupted):
        house.keeper.explain(BAD)
    house.after(1.0, is_open=False)
    assert len(house.fast.calls) == 2  # not while it is hot
    house.after(1.0)
    assert len(house.fast.calls) == 4
    assert not house.tiers[FAST].suspect


@pytest.mark.parametrize("error", [DecodeTimeout("slow"), DecodeFailed("lost")])
def test_a_check_that_does_not_work_is_no_proof(error: Exception) -> None:
    house = House(effects={1: BAD, 2: error})
    spoil(house.tiers[FAST])
    assert house.keeper.explain(BAD) is BAD
    house.after(0.0)
    assert len(house.fast.calls) == 2


def test_a_suspect_deep_model_is_examined_between_jobs_and_given_up_when_it_fails() -> None:
    house = House()
    house.deeps[0].effects = {1: BAD, 2: BAD}
    spoil(house.deep)
    assert not house.after(0.0, memory(Memory.UNKNOWN))
    assert "failed its self-check: logits are not finite" in house.keeper.reason
    assert house.value("unloads_total", tier="deep", reason="damage") == 1
    # nobody can read memory here: no reason to wait for more than the hold
    house.after(1.0, memory(Memory.UNKNOWN))
    assert house.after(60.0, memory(Memory.UNKNOWN))
    assert house.value("cold_starts_total", tier="deep", reason="damage") == 1
    assert house.broken == []


WARMED = Care(hold_s=60.0, keep_warm_s={FAST: 30.0, DEEP: 30.0})


def test_an_idle_model_is_kept_warm_one_tiny_call_at_a_time() -> None:
    house = House(WARMED)
    house.after(29.9)
    assert (len(house.fast.calls), len(house.deeps[0].calls)) == (0, 0)
    house.after(0.2)
    assert (len(house.fast.calls), len(house.deeps[0].calls)) == (1, 0)
    house.after(0.1)
    assert (len(house.fast.calls), len(house.deeps[0].calls)) == (1, 1)
    house.after(0.1)
    assert (len(house.fast.calls), len(house.deeps[0].calls)) == (1, 1)
    assert house.fast.calls[0] == (WARM,)
    assert house.value("keep_warm_total", tier="fast") == 1


def test_a_model_at_work_needs_no_warming() -> None:
    house = House(WARMED)
    for _ in range(10):
        for engine in house.tiers.values():
            engine.evaluate([ITEM], 1.0)
        house.after(20.0)
    assert house.value("keep_warm_total", tier="fast") == house.value("keep_warm_total", tier="deep") == 0


def test_nothing_is_warmed_while_the_gate_is_closed_or_the_model_is_away() -> None:
    house = House(WARMED)
    house.after(100.0, is_open=False)
    house.after(0.0, CRITICAL, is_open=False)
    assert len(house.fast.calls) == 0
    house.after(1.0, CRITICAL)
    house.after(1.0, CRITICAL)
    assert len(house.fast.calls) == 1
    assert house.value("keep_warm_total", tier="deep") == 0


def test_without_keep_warm_an_idle_model_is_left_alone() -> None:
    house = House(Care(keep_warm_s={FAST: 0.0}))
    house.after(1e6)
    assert house.fast.calls == []


def test_a_warming_call_that_fails_is_counted_and_not_repeated_at_once() -> None:
    house = House(Care(keep_warm_s={FAST: 30.0}), effects={1: DecodeFailed("lost")})
    house.after(31.0)
    house.after(1.0)
    assert len(house.fast.calls) == 1
    assert house.metrics.registry.get_sample_value("coolhead_errors_total", {"kind": "inference"}) == 1


def test_numbers_that_are_not_finite_in_a_warming_call_are_looked_into() -> None:
    house = House(Care(keep_warm_s={FAST: 30.0}), effects={1: BAD, 2: BAD})
    house.after(31.0)
    with pytest.raises(ModelCorrupt):
        house.after(1.0)


def test_an_interrupt_reaches_every_tier() -> None:
    house = House()
    house.keeper.interrupt()
    assert house.fast.interrupted.is_set()
    assert house.deeps[0].interrupted.is_set()


@pytest.mark.parametrize(
    ("asked", "plan", "seconds"),
    [
        (None, "isolated-v2.a16t4.ub512.fa0.f16.cpu-0.3.36.45d82a04.text", 0.0),
        (None, "isolated-v2.a16t4.ub512.fa0.f16.metal-0.3.36.45d82a04.text", KEEP_WARM_GPU_S),
        (0.0, "isolated-v2.a16t4.ub512.fa0.f16.metal-0.3.36.45d82a04.text", 0.0),
        (10.0, "isolated-v2.a16t4.ub512.fa0.f16.cpu-0.3.36.45d82a04.text", 10.0),
    ],
)
def test_a_gpu_is_kept_warm_by_default_and_a_cpu_is_not(
    asked: float | None, plan: str, seconds: float
) -> None:
    assert keep_warm_s(asked, plan) == seconds
