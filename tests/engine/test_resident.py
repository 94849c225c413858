"""A model that comes and goes keeps its name and its plans, and never answers while it is away."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from coolhead.errors import (
    DecodeFailed,
    DecodeInterrupted,
    DecodeTimeout,
    ModelMismatch,
    ModelMissing,
    NotFinite,
    TierUnloaded,
)
from coolhead.questions import Noul
from coolhead_worker.engine.fake import FakeEngine
from coolhead_worker.engine.protocol import Engine, EvalItem, PinnedSet, PlanKind
from coolhead_worker.engine.resident import ResidentEngine
from coolhead_worker.engine.selfcheck import Verdict

QUESTION = Noul(instructions="Is it late?")
ITEM = EvalItem("the parcel is late", {"late": QUESTION}, trunk=True)


class Loads:
    """Makes a fresh engine a call, and keeps them all."""

    def __init__(self, make: Callable[[], FakeEngine] = FakeEngine) -> None:
        self.make = make
        self.made: list[FakeEngine] = []

    def __call__(self) -> Engine:
        self.made.append(self.make())
        return self.made[-1]


def test_it_answers_like_the_engine_it_loaded() -> None:
    resident, plain = ResidentEngine(Loads()), FakeEngine()
    got, wanted = resident.evaluate([ITEM], 1.0)[0], plain.evaluate([ITEM], 1.0)[0]
    assert got.readouts["late"].logits.tolist() == wanted.readouts["late"].logits.tolist()
    assert (resident.name, resident.digest) == (plain.name, plain.digest)


def test_what_is_known_of_a_model_does_not_change_while_it_is_away() -> None:
    resident = ResidentEngine(Loads(lambda: FakeEngine(temperatures={"noul": 1.5})))

    def known() -> list[object]:
        plans = [resident.plan_id(kind, PinnedSet({"late": QUESTION})) for kind in PlanKind]
        numbers = (resident.max_state_tokens, resident.temperature(QUESTION))
        return [resident.name, resident.digest, resident.features_digest, *plans, *numbers]

    here = known()
    assert resident.unload()
    assert known() == here
    assert resident.load()
    assert known() == here


def test_a_call_while_the_model_is_away_is_refused_by_type() -> None:
    loads = Loads()
    resident = ResidentEngine(loads)
    resident.unload()
    assert not resident.loaded
    assert loads.made[0].closed
    with pytest.raises(TierUnloaded, match="loaded again"):
        resident.evaluate([ITEM], 1.0)
    with pytest.raises(TierUnloaded):
        resident.examine(1.0)
    resident.interrupt()  # nothing to stop


def test_loading_again_brings_a_new_engine_and_doing_either_twice_does_nothing() -> None:
    loads = Loads()
    resident = ResidentEngine(loads)
    assert not resident.load()
    assert (resident.unload(), resident.unload()) == (True, False)
    assert (resident.load(), resident.load()) == (True, False)
    assert len(loads.made) == 2
    assert resident.evaluate([ITEM], 1.0)
    assert len(loads.made[1].calls) == 1


def test_another_file_under_the_same_path_is_not_taken() -> None:
    loads = Loads()
    resident = ResidentEngine(loads)
    resident.unload()
    loads.make = lambda: FakeEngine("other")
    with pytest.raises(ModelMismatch, match="has changed"):
        resident.load()
    assert loads.made[-1].closed
    assert not resident.loaded


def test_a_load_that_fails_leaves_it_away_and_the_next_one_may_work() -> None:
    outcomes: list[FakeEngine | Exception] = [FakeEngine(), ModelMissing("gone"), FakeEngine()]

    def load() -> Engine:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    resident = ResidentEngine(load)
    resident.unload()
    with pytest.raises(ModelMissing):
        resident.load()
    with pytest.raises(TierUnloaded):
        resident.evaluate([ITEM], 1.0)
    assert resident.load()
    assert resident.evaluate([ITEM], 1.0)


def test_unloading_waits_for_the_call_that_runs() -> None:
    release, loads = threading.Event(), Loads(lambda: FakeEngine(effects={1: release}))
    resident = ResidentEngine(loads)
    answers: list[object] = []
    caller = threading.Thread(target=lambda: answers.extend(resident.evaluate([ITEM], 20.0)))
    caller.start()
    while not loads.made[0].calls:
        release.wait(0.001)
    unloading = threading.Thread(target=resident.unload)
    unloading.start()
    assert resident.loaded
    assert not loads.made[0].closed
    release.set()
    unloading.join(10)
    caller.join(10)
    assert len(answers) == 1
    assert loads.made[0].closed


def test_an_interrupt_stops_the_call_that_runs() -> None:
    loads = Loads(lambda: FakeEngine(effects={1: threading.Event()}))
    resident = ResidentEngine(loads)
    threading.Timer(0.02, resident.interrupt).start()
    with pytest.raises(DecodeInterrupted):
        resident.evaluate([ITEM], 20.0)
    assert not resident.suspect


def test_calls_from_many_threads_meet_an_engine_or_a_typed_refusal() -> None:
    resident, stop = ResidentEngine(Loads()), threading.Event()
    met: list[str] = []

    def call() -> None:
        while not stop.is_set():
            try:
                met.append("answer" if resident.evaluate([ITEM], 1.0) else "nothing")
            except TierUnloaded:
                met.append("away")
            except BaseException as error:  # noqa: BLE001  # whatever it is, the test must show it
                met.append(type(error).__name__)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    while len(met) < 300:
        resident.unload()
        resident.load()
    stop.set()
    for thread in threads:
        thread.join(10)
    assert set(met) <= {"answer", "away"}


def test_numbers_that_are_not_finite_make_a_suspect_until_a_check_has_passed() -> None:
    resident = ResidentEngine(Loads(lambda: FakeEngine(effects={1: NotFinite()})))
    with pytest.raises(NotFinite):
        resident.evaluate([ITEM], 1.0)
    assert resident.suspect
    assert resident.examine(1.0).passed
    assert not resident.suspect


@pytest.mark.parametrize(
    ("effect", "still"),
    [(DecodeTimeout(), False), (DecodeFailed(), False), (DecodeInterrupted(), True)],
)
def test_a_check_that_could_not_be_made_clears_a_suspect_unless_it_was_only_stopped(
    effect: Exception, still: bool
) -> None:
    resident = ResidentEngine(Loads(lambda: FakeEngine(effects={1: NotFinite(), 2: effect})))
    with pytest.raises(NotFinite):
        resident.evaluate([ITEM], 1.0)
    with pytest.raises(type(effect)):
        resident.examine(1.0)
    assert resident.suspect is still


def test_a_failed_check_keeps_the_suspect_and_is_given_its_time() -> None:
    times: list[float] = []

    def examine(_engine: Engine, timeout_s: float) -> Verdict:
        times.append(timeout_s)
        return Verdict(passed=False, golden=True, moved=0.5, reason="moved")

    resident = ResidentEngine(Loads(), examine)
    assert not resident.examine(7.0).passed
    assert resident.suspect
    assert times == [7.0]


def test_closed_for_good_it_neither_answers_nor_loads() -> None:
    loads = Loads()
    resident = ResidentEngine(loads)
    resident.close()
    resident.close()
    assert loads.made[0].closed
    for act in (lambda: resident.evaluate([ITEM], 1.0), resident.load):
        with pytest.raises(DecodeFailed, match="closed"):
            act()
