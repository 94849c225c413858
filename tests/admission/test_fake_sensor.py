"""The shipped stand-ins do what a sensor promises."""

from __future__ import annotations

import pytest

from coolhead_worker.admission.conditions import Conditions, Thermal
from coolhead_worker.admission.fake import FakeSensor
from coolhead_worker.admission.sensor import NoSensor, Sensor
from coolhead_worker.clock import ManualClock


def test_it_reads_what_it_was_told_at_the_time_of_reading(clock: ManualClock) -> None:
    sensor: Sensor = FakeSensor(clock, Thermal.FAIR)
    clock.advance(5)
    assert sensor.read() == Conditions(Thermal.FAIR, "fake", read_at=1005.0)
    sensor.close()


def test_a_change_ends_a_wait(clock: ManualClock, sleeper) -> None:
    sensor = FakeSensor(clock)
    waiting = sleeper(lambda: sensor.wait(60))
    sensor.become(Conditions(Thermal.SERIOUS, "mine"))
    assert waiting.ended()
    assert waiting.result is True
    assert sensor.read().thermal_source == "mine"
    sensor.close()


def test_an_exception_is_raised_at_the_read(clock: ManualClock) -> None:
    sensor = FakeSensor(clock, OSError("gone"))
    with pytest.raises(OSError, match="gone"):
        sensor.read()
    assert sensor.reads == 1
    sensor.close()


def test_a_script_may_stand_for_the_sleep(clock: ManualClock) -> None:
    def on_wait(timeout_s: float) -> bool:
        clock.advance(timeout_s)
        return False

    sensor = FakeSensor(clock, on_wait=on_wait)
    assert sensor.wait(7.0) is False
    assert (clock.now, sensor.waits) == (1007.0, [7.0])
    sensor.close()


def test_no_sensor_is_unknown_for_ever_and_can_be_woken(clock: ManualClock, sleeper) -> None:
    sensor: Sensor = NoSensor(clock)
    assert sensor.read() == Conditions(thermal_source="no sensor", read_at=1000.0)
    waiting = sleeper(lambda: sensor.wait(60))
    sensor.wake()
    assert waiting.ended()
    sensor.close()
