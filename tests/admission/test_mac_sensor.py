"""The macOS sensor's logic, against a recording stub. Nothing here has seen a Mac."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from coolhead_worker.admission import sensors_mac
from coolhead_worker.admission.conditions import Conditions, Memory, Thermal
from coolhead_worker.admission.gate import Mode, admit
from coolhead_worker.admission.mac_notify import NotifyKeys, load_system, sysctl_int
from coolhead_worker.admission.mac_power import PowerSource, load_power
from coolhead_worker.admission.sensors_mac import LOW_POWER_KEY, POWER_KEY, THERMAL_KEY, MacSensor
from coolhead_worker.clock import ManualClock
from tests.admission.maclib import StubPmset, StubPower, StubSystem

LONG_S = 60.0
SAVING = "AC Power:\n lowpowermode         1\n sleep                1\n"

Maker = Callable[..., MacSensor]


@pytest.fixture
def make(clock: ManualClock) -> Iterator[Maker]:
    made: list[MacSensor] = []

    def build(
        system: object,
        source: str | None = "AC Power",
        *,
        pmset: StubPmset | None = None,
        charge: float | None = None,
    ) -> MacSensor:
        power = StubPower(source)
        made.append(MacSensor(clock, system, PowerSource(power, power), pmset or StubPmset(), lambda: charge))
        return made[-1]

    yield build
    for sensor in made:
        sensor.close()


def test_everything_is_read_from_its_own_place(make: Maker, clock: ManualClock) -> None:
    system = StubSystem({THERMAL_KEY: 2, LOW_POWER_KEY: 1})
    system.sysctl["kern.memorystatus_vm_pressure_level"] = 4
    assert make(system, "Battery Power", charge=0.4).read() == Conditions(
        Thermal.SERIOUS, "libnotify", on_ac=False, battery=0.4, low_power=True, memory=Memory.CRITICAL,
        read_at=clock.now, low_power_source="libnotify", memory_source="vm_pressure_level",
    )  # fmt: skip


def test_the_descriptors_are_registered_before_the_first_read(make: Maker) -> None:
    system = StubSystem({THERMAL_KEY: 0})
    sensor = make(system)
    assert system.calls == [("register", THERMAL_KEY), ("register", LOW_POWER_KEY), ("register", POWER_KEY)]
    sensor.read()
    assert system.calls[3] == ("state", THERMAL_KEY)


def test_a_change_between_registration_and_read_still_ends_the_first_wait(make: Maker) -> None:
    system = StubSystem({THERMAL_KEY: 0})
    sensor = make(system)
    assert sensor.read().thermal is Thermal.NOMINAL
    system.post(THERMAL_KEY, 3)
    assert sensor.wait(LONG_S) is True
    assert sensor.read().thermal is Thermal.CRITICAL


def test_all_keys_share_one_descriptor(make: Maker) -> None:
    system = StubSystem({})
    make(system)
    assert (system.open_pipes, len(system.tokens)) == (1, 3)


@pytest.mark.parametrize("key", [THERMAL_KEY, LOW_POWER_KEY, POWER_KEY])
def test_a_post_of_any_key_ends_a_wait_in_progress(make: Maker, sleeper, key: str) -> None:
    system = StubSystem({})
    sensor = make(system)
    sensor.read()
    waiting = sleeper(lambda: sensor.wait(LONG_S))
    system.post(key, 1)
    assert waiting.ended()
    assert waiting.result is True


def test_a_wake_ends_a_wait_and_leaves_nothing_behind(make: Maker, sleeper) -> None:
    sensor = make(StubSystem({}))
    waiting = sleeper(lambda: sensor.wait(LONG_S))
    sensor.wake()
    assert waiting.ended()
    assert sensor.wait(0.0) is False


def test_a_post_is_seen_once_so_that_waiting_does_not_spin(make: Maker) -> None:
    system = StubSystem({})
    sensor = make(system)
    system.post(THERMAL_KEY)
    system.post(POWER_KEY)
    assert sensor.wait(LONG_S) is True
    assert sensor.wait(0.0) is False


def test_a_read_takes_the_posts_before_it_reads_the_state(make: Maker) -> None:
    system = StubSystem({THERMAL_KEY: 0})
    sensor = make(system)
    system.post(THERMAL_KEY, 1)
    assert sensor.read().thermal is Thermal.FAIR
    assert sensor.wait(0.0) is False


def test_tokens_are_big_endian_and_may_arrive_in_pieces() -> None:
    system = StubSystem({})
    keys = NotifyKeys(system, [THERMAL_KEY, POWER_KEY])
    system.post(POWER_KEY)
    assert keys.posted() == {POWER_KEY}
    system.post(THERMAL_KEY, part=slice(0, 3))
    assert keys.posted() == frozenset()
    system.post(THERMAL_KEY, part=slice(3, 4))
    system.post(POWER_KEY)
    assert keys.posted() == {THERMAL_KEY, POWER_KEY}
    assert keys.posted() == frozenset()
    keys.close()


@pytest.mark.parametrize(
    ("raw", "level"),
    [(0, "nominal"), (1, "fair"), (2, "serious"), (3, "critical"), (4, "critical"), (5, "unknown"),
     (20, "unknown"), (2**64 - 1, "unknown")],
)  # fmt: skip
def test_a_number_becomes_a_level_and_an_odd_one_unknown(make: Maker, raw: int, level: str) -> None:
    sensor = make(StubSystem({THERMAL_KEY: raw}))
    assert sensor.read().thermal == level
    assert sensor.raw_level == raw


def test_a_failed_registration_is_unknown_and_never_nominal(make: Maker) -> None:
    system = StubSystem({THERMAL_KEY: 0}, refused={THERMAL_KEY})
    sensor = make(system)
    read = sensor.read()
    assert (read.thermal, read.thermal_source, read.vanished) == (Thermal.UNKNOWN, "libnotify", False)
    assert ("state", THERMAL_KEY) not in system.calls
    # The other keys got a descriptor of their own, and their posts still end a wait.
    system.post(LOW_POWER_KEY, 1)
    assert sensor.wait(LONG_S) is True
    assert sensor.read().low_power is True


def test_without_any_registration_a_wait_still_ends_by_wake(make: Maker, sleeper) -> None:
    system = StubSystem({}, refused={THERMAL_KEY, LOW_POWER_KEY, POWER_KEY})
    sensor = make(system)
    assert system.open_pipes == 0
    waiting = sleeper(lambda: sensor.wait(LONG_S))
    sensor.wake()
    assert waiting.ended()


@pytest.mark.parametrize("fault", ["unreadable", "odd number"])
def test_a_level_that_is_lost_is_unknown_and_vanished_until_it_is_back(make: Maker, fault: str) -> None:
    system = StubSystem({THERMAL_KEY: 2})
    sensor = make(system)
    assert sensor.read().vanished is False
    if fault == "unreadable":
        system.unreadable = {THERMAL_KEY}
    else:
        system.states[THERMAL_KEY] = 99
    read = sensor.read()
    assert (read.thermal, read.vanished, read.vanished_source) == (Thermal.UNKNOWN, True, "libnotify")
    assert admit(read, Mode.STANDARD, None, now=0.0).kind == "sensor_unknown"
    system.unreadable, system.states = set(), {THERMAL_KEY: 0}
    assert sensor.read().vanished is False


@pytest.mark.parametrize(
    ("source", "on_ac"),
    [("AC Power", True), ("Battery Power", False), ("UPS Power", None), ("Solar Power", None)],
)
def test_the_power_source_is_mains_battery_or_neither(make: Maker, source: str, on_ac: bool | None) -> None:
    pmset = StubPmset()
    assert make(StubSystem({}), source, pmset=pmset, charge=1.0).read().on_ac is on_ac
    assert pmset.asked == []


def test_pmset_tells_the_source_and_the_charge_when_the_libraries_do_not(make: Maker) -> None:
    batt = "Now drawing from 'Battery Power'\n -InternalBattery-0 (id=1)\t73%; discharging; 4:03 remaining\n"
    read = make(StubSystem({}), None, pmset=StubPmset(batt=batt)).read()
    assert (read.on_ac, read.battery) == (False, 0.73)


@pytest.mark.parametrize("fault", ["refused", "odd number"])
def test_pmset_tells_low_power_when_the_key_does_not(make: Maker, fault: str) -> None:
    refused = {LOW_POWER_KEY} if fault == "refused" else set()
    system = StubSystem({LOW_POWER_KEY: 7}, refused=refused)
    read = make(system, pmset=StubPmset(custom=SAVING)).read()
    assert (read.low_power, read.low_power_source) == (True, "pmset")


def test_nobody_knows_low_power_when_pmset_is_silent_too(make: Maker) -> None:
    read = make(StubSystem({}, refused={LOW_POWER_KEY}), pmset=StubPmset()).read()
    assert (read.low_power, read.low_power_source) == (None, "")


def test_pmset_is_not_asked_at_every_poll_but_after_a_power_post(make: Maker, clock: ManualClock) -> None:
    system = StubSystem({}, refused={LOW_POWER_KEY})
    pmset = StubPmset(custom=SAVING)
    sensor = make(system, pmset=pmset, charge=1.0)
    for _ in range(4):
        sensor.read()
        clock.advance(1.0)
    assert pmset.asked == ["custom"]
    system.post(POWER_KEY)
    sensor.read()
    assert pmset.asked == ["custom"] * 2
    system.post(THERMAL_KEY)
    sensor.read()
    assert pmset.asked == ["custom"] * 2
    clock.advance(5.0)
    sensor.read()
    assert pmset.asked == ["custom"] * 3


def test_closing_cancels_every_key_and_the_descriptor_goes_with_the_last(make: Maker) -> None:
    system = StubSystem({})
    sensor = make(system)
    sensor.close()
    assert (system.open_pipes, system.tokens) == (0, {})
    sensor.close()
    sensor.wake()


def test_without_libraries_the_sensor_is_unknown_in_everything(clock: ManualClock) -> None:
    sensor = MacSensor(clock, None, PowerSource(None, None), StubPmset(), lambda: None)
    read = sensor.read()
    assert (read.thermal, read.on_ac, read.battery) == (Thermal.UNKNOWN, None, None)
    assert (read.low_power, read.memory, read.vanished) == (None, Memory.UNKNOWN, False)
    sensor.close()


@pytest.mark.parametrize(("level", "memory"), [(1, "normal"), (2, "warn"), (4, "critical"), (3, "unknown")])
def test_memory_pressure_comes_from_sysctl(make: Maker, level: int, memory: str) -> None:
    system = StubSystem({})
    system.sysctl["kern.memorystatus_vm_pressure_level"] = level
    assert make(system).read().memory == memory


def test_a_sysctl_of_another_name_or_size_is_none() -> None:
    system = StubSystem({})
    assert sysctl_int(system, "kern.no_such_name") is None
    system.sysctl_size = 8
    assert sysctl_int(system, "kern.memorystatus_vm_pressure_level") is None


def test_libraries_that_do_not_exist_are_none() -> None:
    assert load_system("/nowhere/libSystem.dylib") is None
    # A library that has not these functions.
    assert load_system("libc.so.6") is None or load_system() is not None
    assert load_power().name() in (None, "AC Power", "Battery Power", "UPS Power")


class Battery:
    percent = 55.0


@pytest.mark.parametrize(
    ("answer", "charge"),
    [(lambda: Battery(), 0.55), (lambda: None, None), (lambda: 1 / 0, ZeroDivisionError), (OSError, None)],
    ids=["a battery", "none", "a fault of ours", "a fault of the system"],
)
def test_the_charge_is_a_share(monkeypatch: pytest.MonkeyPatch, answer: Any, charge: Any) -> None:
    def sensors_battery() -> Any:
        found = answer()
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(sensors_mac.psutil, "sensors_battery", sensors_battery)
    if isinstance(charge, type):
        with pytest.raises(charge):
            sensors_mac.battery_charge()
    else:
        assert sensors_mac.battery_charge() == charge
