"""The gate at work: what is read when, and what ends a wait."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coolhead.policy import Lane
from coolhead_worker.admission.conditions import Conditions, Memory, Thermal
from coolhead_worker.admission.fake import FakeSensor
from coolhead_worker.admission.gate import LANES, Admission, Mode
from coolhead_worker.admission.gatekeeper import Gatekeeper
from coolhead_worker.admission.sensors_scripted import ScriptedSensor, write_script
from coolhead_worker.clock import ManualClock, SystemClock

LONG_S = 60.0
BOTH = tuple(Lane)
SHORT = Conditions(Thermal.NOMINAL, "fake", memory=Memory.CRITICAL, memory_source="fake")


def never() -> bool:
    return False


class Bench:
    """A gate on a fake sensor and a manual clock; `at` plans what happens while it waits."""

    def __init__(self, level: Conditions | Thermal = Thermal.NOMINAL, mode: Mode = Mode.STANDARD) -> None:
        self.clock = ManualClock(1000.0)
        self.sensor = FakeSensor(self.clock, level, on_wait=self._wait)
        self.checks: list[tuple[str, Conditions, Admission]] = []
        self.gate = Gatekeeper(
            self.sensor, mode, self.clock, random.Random(1), observer=lambda *told: self.checks.append(told)
        )
        self.plan: list[tuple[float, Callable[[], None]]] = []
        self.events = True

    def at(self, seconds: float, act: Callable[[], None]) -> None:
        self.plan.append((1000.0 + seconds, act))

    def become(self, conditions: Conditions | Thermal) -> Callable[[], None]:
        return lambda: self.sensor.become(conditions)

    def _wait(self, timeout_s: float) -> bool:
        """Sleep on the manual clock; a planned act ends the sleep when events are delivered."""
        end = self.clock.now + timeout_s
        due = [(when, act) for when, act in self.plan if when <= end]
        for when, act in due:
            act()
            self.plan.remove((when, act))
            if self.events:
                self.clock.advance(max(0.0, when - self.clock.now))
                return True
        self.clock.advance(end - self.clock.now)
        return False


def test_every_check_reads_the_sensor_anew() -> None:
    bench = Bench()
    assert bench.gate.conditions == Conditions(thermal_source="fake", read_at=1000.0)
    assert bench.gate.check("before_acquire").lanes == LANES
    bench.sensor.become(Thermal.SERIOUS)
    assert bench.gate.check("after_acquire").lanes == frozenset()
    assert bench.sensor.reads == 2
    assert bench.gate.conditions.thermal is Thermal.SERIOUS


def test_an_observer_is_told_of_every_check() -> None:
    bench = Bench(Thermal.CRITICAL)
    admission = bench.gate.check("after_acquire")
    assert bench.checks == [("after_acquire", bench.gate.conditions, admission)]


def test_an_open_gate_is_not_waited_for() -> None:
    bench = Bench()
    assert bench.gate.wait_until_open(BOTH, never).lanes == LANES
    assert bench.sensor.waits == []


def test_the_first_look_comes_before_the_first_sleep() -> None:
    bench = Bench(Thermal.SERIOUS)
    bench.gate.check("before_acquire")
    bench.sensor.become(Thermal.NOMINAL)
    assert Lane.INTERACTIVE in bench.gate.wait_until_open(BOTH, never).lanes
    assert bench.sensor.waits == []


def test_an_event_ends_the_wait_at_once() -> None:
    bench = Bench(Thermal.SERIOUS)
    bench.at(0.1, bench.become(Thermal.FAIR))
    admission = bench.gate.wait_until_open(BOTH, never)
    assert (admission.lanes, bench.clock.now) == ({Lane.INTERACTIVE}, 1000.1)


def test_a_lost_event_costs_one_poll() -> None:
    bench = Bench(Thermal.SERIOUS)
    bench.events = False
    bench.at(3.1, bench.become(Thermal.FAIR))
    assert bench.gate.wait_until_open(BOTH, never).lanes == {Lane.INTERACTIVE}
    assert bench.clock.now == pytest.approx(1003.25)
    assert set(bench.sensor.waits) == {0.25}


def test_an_event_that_does_not_cool_is_waited_through() -> None:
    bench = Bench(Thermal.CRITICAL)
    bench.at(0.1, bench.become(Thermal.SERIOUS))
    bench.at(0.2, bench.become(Thermal.NOMINAL))
    bench.gate.wait_until_open(BOTH, never)
    assert bench.clock.now == 1000.2


def test_a_wait_gives_up_after_half_a_minute_with_the_reason() -> None:
    bench = Bench(Thermal.SERIOUS)
    admission = bench.gate.wait_until_open(BOTH, never)
    assert (admission.lanes, admission.reason) == (frozenset(), "thermal serious (fake)")
    assert bench.clock.now == pytest.approx(1030.0)


def test_the_last_look_comes_after_the_timeout() -> None:
    bench = Bench(Thermal.SERIOUS)
    bench.events = False
    bench.at(0.4, bench.become(Thermal.NOMINAL))
    assert bench.gate.wait_until_open(BOTH, never, timeout_s=0.4).lanes == {Lane.INTERACTIVE}
    assert bench.sensor.waits == [0.25, pytest.approx(0.15)]


def test_a_stop_ends_the_wait() -> None:
    bench = Bench(Thermal.SERIOUS)
    stopped: list[bool] = []
    bench.at(0.1, lambda: stopped.append(True))
    assert bench.gate.wait_until_open(BOTH, lambda: bool(stopped)).lanes == frozenset()
    assert bench.clock.now == 1000.1


def test_a_stop_before_the_wait_is_not_slept_over() -> None:
    bench = Bench(Thermal.SERIOUS)
    bench.gate.wait_until_open(BOTH, lambda: True)
    assert bench.sensor.waits == []


def test_only_the_wanted_lanes_count() -> None:
    bench = Bench(SHORT)
    assert bench.gate.wait_until_open([Lane.BULK], never, timeout_s=1.0).lanes == {Lane.INTERACTIVE}
    assert bench.clock.now == pytest.approx(1001.0)
    bench.gate.wait_until_open(BOTH, never, timeout_s=1.0)
    assert bench.clock.now == pytest.approx(1001.0)


def test_bulk_reopens_exactly_when_it_has_settled() -> None:
    bench = Bench(SHORT)
    bench.gate.check("before_acquire")
    bench.sensor.become(Thermal.NOMINAL)
    settling = bench.gate.check("before_acquire")
    assert settling.opens_at is not None
    assert 3.75 <= settling.opens_at - 1000.0 <= 7.5  # 5 s x U(0.75, 1.5)
    assert bench.gate.wait_until_open([Lane.BULK], never).lanes == LANES
    assert bench.clock.now == pytest.approx(settling.opens_at)


@given(st.integers(0, 2**32))
def test_machines_that_closed_together_reopen_at_different_times(seed: int) -> None:
    clock = ManualClock()
    opening = []
    for number in range(2):
        sensor = FakeSensor(clock, Thermal.SERIOUS)
        gate = Gatekeeper(sensor, Mode.STANDARD, clock, random.Random(seed + number))
        gate.check("before_acquire")
        sensor.become(Thermal.NOMINAL)
        opening.append(gate.check("before_acquire").opens_at)
        gate.close()
    assert opening[0] != opening[1]


@pytest.mark.parametrize("mode", [Mode.STRICT, Mode.ALWAYS])
def test_other_modes_have_no_dwell(mode: Mode) -> None:
    bench = Bench(Thermal.SERIOUS, mode)
    assert bench.gate.check("before_acquire").lanes == (LANES if mode is Mode.ALWAYS else frozenset())
    bench.sensor.become(Thermal.NOMINAL)
    assert bench.gate.check("before_acquire").lanes == LANES


def test_a_broken_sensor_closes_bulk_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.gate.check("before_acquire")
    bench.sensor.become(RuntimeError("no such register"))
    with caplog.at_level(logging.ERROR, "coolhead.admission"):
        admission = bench.gate.check("before_acquire")
        bench.gate.check("before_acquire")
    assert (admission.lanes, admission.reason) == (
        {Lane.INTERACTIVE},
        "thermal sensor gone (fake): bulk lane closed",
    )
    assert bench.gate.conditions.thermal is Thermal.UNKNOWN
    assert [record.message for record in caplog.records] == ["sensor fake failed: its level is unknown"]
    bench.sensor.become(Thermal.NOMINAL)
    bench.clock.advance(1.0)
    assert bench.gate.check("before_acquire").kind == "sensor_unknown"  # settling


def test_a_pause_is_a_sleep_that_wake_ends(sleeper) -> None:
    clock = SystemClock()
    gate = Gatekeeper(FakeSensor(clock), Mode.STANDARD, clock, random.Random(1))
    pausing = sleeper(lambda: gate.pause(LONG_S))
    gate.wake()
    assert pausing.ended()
    gate.close()


def real_gate(path: Path) -> Gatekeeper:
    clock = SystemClock()
    return Gatekeeper(
        ScriptedSensor(path, clock), Mode.STANDARD, clock, random.Random(1), poll_s=LONG_S, bulk_dwell_s=0.0
    )


def test_on_real_files_and_time_a_change_opens_the_gate(tmp_path: Path, sleeper) -> None:
    script = tmp_path / "conditions"
    write_script(script, "serious")
    gate = real_gate(script)
    assert gate.check("before_acquire").reason == "thermal serious (scripted)"
    waiting = sleeper(lambda: gate.wait_until_open(BOTH, never, LONG_S))
    write_script(script, "nominal")
    assert waiting.ended()
    assert waiting.result == Admission(LANES)
    gate.close()


def test_on_real_files_and_time_a_stop_from_another_thread_ends_the_wait(tmp_path: Path, sleeper) -> None:
    script = tmp_path / "conditions"
    write_script(script, "serious")
    gate = real_gate(script)
    stopped: list[bool] = []
    waiting = sleeper(lambda: gate.wait_until_open(BOTH, lambda: bool(stopped), LONG_S))
    stopped.append(True)
    gate.wake()
    assert waiting.ended()
    assert waiting.took_s < LONG_S / 2
    gate.close()


def test_on_real_time_the_timeout_holds(tmp_path: Path) -> None:
    script = tmp_path / "conditions"
    write_script(script, '{"low_power": true}')
    gate = real_gate(script)
    started = time.monotonic()
    admission = gate.wait_until_open(BOTH, never, 0.15)
    assert 0.15 <= time.monotonic() - started < 10
    assert admission.reason == "low power mode on (scripted)"
    gate.close()
