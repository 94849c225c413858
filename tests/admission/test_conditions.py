"""Conditions: raw numbers to levels, and the worst of several readings."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coolhead_worker.admission.conditions import (
    Conditions,
    Memory,
    Thermal,
    combine,
    memory_from_pressure_level,
    thermal_from_notify,
)
from tests.admission.readings import readings

KNOWN = [Thermal.NOMINAL, Thermal.FAIR, Thermal.SERIOUS, Thermal.CRITICAL]


@pytest.mark.parametrize(
    ("raw", "level"),
    [
        (0, Thermal.NOMINAL),
        (1, Thermal.FAIR),  # moderate
        (2, Thermal.SERIOUS),  # heavy: where the machine throttles
        (3, Thermal.CRITICAL),  # trapping
        (4, Thermal.CRITICAL),  # sleeping
        (5, Thermal.UNKNOWN),
        (20, Thermal.UNKNOWN),  # a level of iOS
        (-1, Thermal.UNKNOWN),
        (2**64 - 1, Thermal.UNKNOWN),
        (None, Thermal.UNKNOWN),
    ],
)
def test_the_numbers_of_libnotify_become_levels(raw: int | None, level: Thermal) -> None:
    assert thermal_from_notify(raw) is level


@given(st.integers().filter(lambda raw: raw != 0))
def test_only_zero_is_nominal(raw: int) -> None:
    assert thermal_from_notify(raw) is not Thermal.NOMINAL


@pytest.mark.parametrize(
    ("raw", "level"),
    [(1, "normal"), (2, "warn"), (4, "critical"), (0, "unknown"), (3, "unknown"), (None, "unknown")],
)
def test_the_numbers_of_memory_pressure_become_levels(raw: int | None, level: str) -> None:
    assert memory_from_pressure_level(raw) is Memory(level)


def test_no_readings_are_unknown_in_everything() -> None:
    assert combine([]) == Conditions()
    assert Conditions().thermal is Thermal.UNKNOWN
    assert Conditions().memory is Memory.UNKNOWN
    assert Conditions().low_power is None


@pytest.mark.parametrize(("first", "second"), list(itertools.product(KNOWN, KNOWN)))
def test_the_hotter_of_two_levels_wins_and_keeps_its_source(first: Thermal, second: Thermal) -> None:
    both = combine([Conditions(first, "a"), Conditions(second, "b")])
    assert both.thermal.heat == max(first.heat, second.heat)
    expected = {"a": first, "b": second}
    assert set(both.thermal_source.split(" + ")) == {
        name for name, level in expected.items() if level is both.thermal
    }


@pytest.mark.parametrize("level", KNOWN)
def test_a_sensor_that_knows_outweighs_one_that_does_not(level: Thermal) -> None:
    both = combine([Conditions(Thermal.UNKNOWN, "blind"), Conditions(level, "seeing")])
    assert (both.thermal, both.thermal_source) == (level, "seeing")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((True, True), True),
        ((True, False), False),  # one says battery
        ((False, None), False),
        ((True, None), True),
        ((None, None), None),
    ],
)
def test_on_mains_only_when_nothing_says_battery(
    flags: tuple[bool | None, ...], expected: bool | None
) -> None:
    assert combine([Conditions(on_ac=flag) for flag in flags]).on_ac is expected


@pytest.mark.parametrize(
    ("flags", "expected"),
    [((False, True), True), ((False, None), False), ((None, True), True), ((None, None), None)],
)
def test_low_power_is_on_when_anything_says_so(flags: tuple[bool | None, ...], expected: bool | None) -> None:
    both = combine(
        [Conditions(low_power=flag, low_power_source=str(index)) for index, flag in enumerate(flags)]
    )
    assert both.low_power is expected
    assert both.low_power_source == " + ".join(
        str(index) for index, flag in enumerate(flags) if flag is expected
    )


def test_the_rest_is_the_worst_as_well() -> None:
    both = combine(
        [
            Conditions(battery=0.8, memory=Memory.WARN, memory_source="m", read_at=7.0),
            Conditions(battery=0.3, memory=Memory.NORMAL, vanished=True, vanished_source="v", read_at=5.0),
        ]
    )
    assert (both.battery, both.memory, both.memory_source) == (0.3, Memory.WARN, "m")
    assert (both.vanished, both.vanished_source, both.read_at) == (True, "v", 5.0)


@given(st.lists(readings(), min_size=1, max_size=4), st.randoms())
def test_the_order_of_readings_does_not_matter(parts: list[Conditions], rng) -> None:
    mixed = parts[:]
    rng.shuffle(mixed)
    assert combine(mixed) == combine(parts)


@given(st.lists(readings(), min_size=2, max_size=5), st.data())
def test_readings_may_be_combined_in_steps(parts: list[Conditions], data) -> None:
    cut = data.draw(st.integers(1, len(parts) - 1))
    assert combine([combine(parts[:cut]), combine(parts[cut:])]) == combine(parts)


@given(st.lists(readings(), min_size=1, max_size=4))
def test_a_combination_is_never_cooler_than_a_part(parts: list[Conditions]) -> None:
    whole = combine(parts)
    assert all(whole.thermal.heat >= part.thermal.heat for part in parts)
    assert all(whole.memory.pressure >= part.memory.pressure for part in parts)
    assert whole.vanished == any(part.vanished for part in parts)


@given(st.lists(readings(), max_size=4))
def test_unknown_is_never_counted_as_nominal(parts: list[Conditions]) -> None:
    levels = {part.thermal for part in parts}
    assert (combine(parts).thermal is Thermal.UNKNOWN) == (levels <= {Thermal.UNKNOWN})
