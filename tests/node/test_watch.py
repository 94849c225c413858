"""While a call runs, somebody looks: when the alarm sounds, for whom, and that nothing is left behind."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection, Iterator

import pytest

from coolhead.policy import Lane
from coolhead_worker.admission.conditions import Conditions, Memory, Thermal
from coolhead_worker.admission.fake import FakeSensor
from coolhead_worker.admission.gate import Admission, Mode
from coolhead_worker.admission.gatekeeper import AFTER_ACQUIRE, DURING_CALL, Gatekeeper
from coolhead_worker.admission.watch import Watch
from coolhead_worker.clock import SystemClock

LONG_S = 20.0
INTERACTIVE, BULK = frozenset({Lane.INTERACTIVE}), frozenset({Lane.BULK})
BOTH = INTERACTIVE | BULK
HOT = Conditions(Thermal.CRITICAL, "fake")
SHORT = Conditions(Thermal.NOMINAL, "fake", memory=Memory.CRITICAL)
GONE = Conditions(Thermal.UNKNOWN, "fake", vanished=True)
SAVING = Conditions(Thermal.NOMINAL, "fake", low_power=True)


class Post:
    """A gate on a fake sensor, and everything that was seen during calls."""

    def __init__(self, mode: Mode = Mode.STANDARD, poll_s: float = 0.01) -> None:
        clock = SystemClock()
        self.sensor = FakeSensor(clock)
        self.seen: list[Admission] = []
        self.looked = threading.Semaphore(0)
        self.gate = Gatekeeper(
            self.sensor,
            mode,
            clock,
            random.Random(1),
            poll_s=poll_s,
            bulk_dwell_s=0.0,
            observer=self._observe,
        )
        self.gate.check(AFTER_ACQUIRE)
        self.alarmed = threading.Event()
        self.alarms = 0

    def alarm(self) -> None:
        self.alarms += 1
        self.alarmed.set()

    def watch(self, lanes: Collection[Lane] = BOTH) -> Watch:
        return Watch(self.gate, lanes, self.alarm)

    def looks(self, count: int) -> bool:
        return all(self.looked.acquire(timeout=LONG_S) for _ in range(count))

    def _observe(self, phase: str, _conditions: Conditions, admission: Admission) -> None:
        if phase == DURING_CALL:
            self.seen.append(admission)
            self.looked.release()


@pytest.fixture
def post() -> Iterator[Callable[..., Post]]:
    made: list[Post] = []

    def make(**options) -> Post:
        made.append(Post(**options))
        return made[-1]

    yield make
    for one in made:
        one.gate.close()


@pytest.mark.parametrize(
    ("conditions", "lanes", "mode", "sounds"),
    [
        (HOT, BOTH, Mode.STANDARD, True),
        (HOT, INTERACTIVE, Mode.STRICT, True),
        (HOT, BOTH, Mode.ALWAYS, False),
        (SAVING, INTERACTIVE, Mode.STANDARD, True),
        (SHORT, BULK, Mode.STANDARD, True),
        (SHORT, INTERACTIVE, Mode.STANDARD, False),
        (SHORT, BOTH, Mode.STANDARD, False),
        (SHORT, BULK, Mode.STRICT, False),
        (GONE, BULK, Mode.STANDARD, True),
        (GONE, INTERACTIVE, Mode.STANDARD, False),
    ],
)
def test_the_alarm_sounds_when_nothing_of_the_batch_may_run(
    post, conditions: Conditions, lanes: frozenset[Lane], mode: Mode, sounds: bool
) -> None:
    at = post(mode=mode)
    with at.watch(lanes):
        assert at.looks(1)
        at.sensor.become(conditions)
        assert at.alarmed.wait(LONG_S) if sounds else at.looks(3)
    assert bool(at.alarms) == sounds


def test_an_announced_change_is_seen_at_once_and_not_at_the_next_poll(post) -> None:
    at = post(poll_s=600.0)
    with at.watch():
        at.sensor.become(HOT)
        assert at.alarmed.wait(LONG_S)


def test_the_alarm_sounds_until_the_call_has_ended_and_the_gate_keeps_the_reason(post) -> None:
    at = post()
    with at.watch():
        at.sensor.become(HOT)
        assert at.alarmed.wait(LONG_S)
        at.sensor.become(Thermal.NOMINAL)  # too late: the batch is being stopped
        at.alarmed.clear()
        assert at.alarmed.wait(LONG_S)
    assert at.gate.admission.reason == "thermal critical (fake)"
    assert at.seen[-1] == at.gate.admission
    assert [bool(admission.lanes) for admission in at.seen].count(False) == 1


def test_after_the_block_nobody_looks_and_no_thread_is_left(post) -> None:
    at, before = post(), threading.active_count()
    with at.watch():
        assert at.looks(2)
    reads = at.sensor.reads
    assert threading.active_count() == before
    at.sensor.become(HOT)
    assert at.gate.pause(LONG_S)
    assert (at.sensor.reads, at.alarms) == (reads, 0)


def test_a_short_call_costs_no_reading(post) -> None:
    at, pause = post(poll_s=600.0), threading.Event()
    reads = at.sensor.reads
    for number in range(20):
        with at.watch():
            while len(at.sensor.waits) <= number:  # until the watch sleeps
                pause.wait(0.001)
    assert at.sensor.reads == reads


def test_a_call_that_fails_ends_the_watch_and_keeps_its_error(post) -> None:
    at = post()
    with pytest.raises(KeyError), at.watch():
        raise KeyError("of the call")
    assert "watch" not in {thread.name for thread in threading.enumerate()}


def test_a_sensor_that_breaks_during_a_call_stops_bulk_and_not_people(post) -> None:
    for lanes, sounds in ((BULK, True), (INTERACTIVE, False)):
        at = post()
        with at.watch(lanes):
            at.sensor.become(OSError("unplugged"))
            assert at.alarmed.wait(LONG_S) if sounds else at.looks(3)
        assert bool(at.alarms) == sounds
