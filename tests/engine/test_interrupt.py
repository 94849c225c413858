"""A real model call that is stopped in the middle of a long text, by heat."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from coolhead.errors import DecodeInterrupted
from coolhead.policy import Lane
from coolhead.questions import Noul
from coolhead_worker.admission.conditions import Thermal
from coolhead_worker.admission.fake import FakeSensor
from coolhead_worker.admission.gate import Mode
from coolhead_worker.admission.gatekeeper import AFTER_ACQUIRE, Gatekeeper
from coolhead_worker.admission.watch import Watch
from coolhead_worker.clock import SystemClock
from coolhead_worker.engine.llama_engine import LlamaEngine
from coolhead_worker.engine.protocol import EvalItem, PinnedSet, PlanKind
from coolhead_worker.engine.resident import ResidentEngine
from coolhead_worker.models import DemoModels

pytestmark = pytest.mark.model

QUESTIONS = {"late": Noul(instructions="Is something late?")}
LONG = EvalItem("the parcel is late and nobody answers " * 250, QUESTIONS, trunk=False)  # about 1,750 tokens
SHORT = EvalItem("the parcel is late", QUESTIONS, trunk=False)


@pytest.fixture
def engine(demo_models: DemoModels) -> Iterator[ResidentEngine]:
    resident = ResidentEngine(lambda: LlamaEngine(demo_models.fast, threads=1))
    yield resident
    resident.close()


@pytest.fixture
def gate() -> Iterator[tuple[Gatekeeper, FakeSensor]]:
    clock = SystemClock()
    sensor = FakeSensor(clock)
    keeper = Gatekeeper(sensor, Mode.STANDARD, clock, random.Random(1))
    yield keeper, sensor
    keeper.close()


def logits(engine: ResidentEngine) -> list[float]:
    return engine.evaluate([SHORT], 60.0)[0].readouts["late"].logits.tolist()


def test_heat_stops_a_call_in_the_middle_of_a_long_text_and_the_next_one_is_as_ever(
    engine: ResidentEngine, gate: tuple[Gatekeeper, FakeSensor]
) -> None:
    keeper, sensor = gate
    keeper.check(AFTER_ACQUIRE)
    before = logits(engine)
    started = time.process_time()

    def heat() -> None:
        # 0.3 s of work: far into the call, far from its end (5 s and more)
        while time.process_time() - started < 0.3:
            threading.Event().wait(0.005)
        sensor.become(Thermal.CRITICAL)

    threading.Thread(target=heat, daemon=True).start()
    with pytest.raises(DecodeInterrupted), Watch(keeper, {Lane.INTERACTIVE}, engine.interrupt):
        engine.evaluate([LONG], 100.0)
    assert time.process_time() - started < 3.0
    assert not engine.suspect
    assert logits(engine) == before


def test_memory_comes_back_when_a_model_is_given_up_and_its_numbers_when_it_is_loaded_again(
    engine: ResidentEngine,
) -> None:
    process = psutil.Process()
    before, plan = logits(engine), engine.plan_id(PlanKind.PINNED, PinnedSet(QUESTIONS))
    resident = process.memory_info().rss
    engine.unload()
    assert engine.plan_id(PlanKind.PINNED, PinnedSet(QUESTIONS)) == plan
    assert engine.temperature(QUESTIONS["late"]) is None
    assert resident - process.memory_info().rss > 200 << 20  # weights of 258 MiB
    engine.load()
    assert logits(engine) == before
