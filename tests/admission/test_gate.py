"""The gate, as tables."""

from __future__ import annotations

import pytest

from coolhead.policy import Lane
from coolhead_worker.admission.conditions import Conditions, Memory, Thermal
from coolhead_worker.admission.gate import LANES, Admission, Kind, Mode, admit, checked

BOTH = LANES
INTERACTIVE = frozenset({Lane.INTERACTIVE})
NONE: frozenset[Lane] = frozenset()

NOMINAL = Conditions(Thermal.NOMINAL, "libnotify")
FAIR = Conditions(Thermal.FAIR, "libnotify")
SERIOUS = Conditions(Thermal.SERIOUS, "libnotify")
CRITICAL = Conditions(Thermal.CRITICAL, "libnotify")
UNKNOWN = Conditions(Thermal.UNKNOWN, "no sensor")
GONE = Conditions(Thermal.UNKNOWN, "acpitz", vanished=True, vanished_source="acpitz")
HALF_GONE = Conditions(Thermal.NOMINAL, "acpitz", vanished=True, vanished_source="gpu-thermal")
SAVING = Conditions(Thermal.NOMINAL, "libnotify", low_power=True, low_power_source="pmset")
NOT_SAVING = Conditions(Thermal.NOMINAL, "libnotify", low_power=False)
SHORT = Conditions(Thermal.NOMINAL, "libnotify", memory=Memory.CRITICAL, memory_source="pressure/memory")
TIGHT = Conditions(Thermal.NOMINAL, "libnotify", memory=Memory.WARN)
ON_BATTERY = Conditions(Thermal.NOMINAL, "libnotify", on_ac=False, battery=0.04)
HOT_AND_SHORT = Conditions(Thermal.CRITICAL, "x86_pkg_temp", memory=Memory.CRITICAL)

STANDARD = [
    (NOMINAL, BOTH, "", ""),
    (FAIR, BOTH, "", ""),
    (SERIOUS, NONE, "thermal", "thermal serious (libnotify)"),
    (CRITICAL, NONE, "thermal", "thermal critical (libnotify)"),
    (UNKNOWN, BOTH, "", ""),
    (GONE, INTERACTIVE, "sensor_unknown", "thermal sensor gone (acpitz): bulk lane closed"),
    (HALF_GONE, INTERACTIVE, "sensor_unknown", "thermal sensor gone (gpu-thermal): bulk lane closed"),
    (SAVING, NONE, "low_power_mode", "low power mode on (pmset)"),
    (NOT_SAVING, BOTH, "", ""),
    (SHORT, INTERACTIVE, "memory", "memory pressure critical (pressure/memory): bulk lane closed"),
    (TIGHT, BOTH, "", ""),
    (ON_BATTERY, BOTH, "", ""),
    (HOT_AND_SHORT, NONE, "thermal", "thermal critical (x86_pkg_temp)"),
]

STRICT = [
    (NOMINAL, BOTH),
    (FAIR, BOTH),
    (SERIOUS, NONE),
    (CRITICAL, NONE),
    (UNKNOWN, BOTH),
    (GONE, BOTH),
    (SAVING, NONE),
    (SHORT, BOTH),
    (TIGHT, BOTH),
    (ON_BATTERY, BOTH),
]


def first(conditions: Conditions, mode: Mode) -> Admission:
    return admit(conditions, mode, None, now=100.0)


@pytest.mark.parametrize(("conditions", "lanes", "kind", "reason"), STANDARD)
def test_standard_opens_these_lanes_for_this_reason(conditions, lanes, kind, reason) -> None:
    admission = first(conditions, Mode.STANDARD)
    assert (admission.lanes, admission.kind, admission.reason) == (lanes, kind, reason)


@pytest.mark.parametrize(("conditions", "lanes"), STRICT)
def test_strict_knows_heat_and_low_power_and_nothing_else(conditions, lanes) -> None:
    assert first(conditions, Mode.STRICT).lanes == lanes


@pytest.mark.parametrize(("conditions", "_lanes", "kind", "_reason"), STANDARD)
def test_always_is_open_and_still_tells_what_it_ignores(conditions, _lanes, kind, _reason) -> None:
    admission = first(conditions, Mode.ALWAYS)
    assert (admission.lanes, admission.kind, admission.closures) == (BOTH, kind, ())
    assert admission.reason.endswith(": ignored in mode always") == bool(kind)


def test_a_source_without_a_name_is_called_so() -> None:
    reason = first(Conditions(Thermal.SERIOUS), Mode.STANDARD).reason
    assert reason == "thermal serious (source not named)"


#: Times in seconds, dwell of bulk 5 s: (now, conditions, open lanes, kind, when a lane reopens).
STORY = [
    (0, NOMINAL, BOTH, "", None),
    (1, SERIOUS, NONE, "thermal", None),  # at once
    (2, SERIOUS, NONE, "thermal", None),
    (3, FAIR, INTERACTIVE, "thermal", 8),  # people do not wait; bulk settles until 3 + 5
    (7, NOMINAL, INTERACTIVE, "thermal", 8),
    (7.5, CRITICAL, NONE, "thermal", None),  # hot again: the dwell begins anew
    (7.6, NOMINAL, INTERACTIVE, "thermal", 12.6),
    (12.5, NOMINAL, INTERACTIVE, "thermal", 12.6),
    (12.6, NOMINAL, BOTH, "", None),
    (13, SHORT, INTERACTIVE, "memory", None),
    (14, SAVING, NONE, "low_power_mode", None),
    (15, SHORT, INTERACTIVE, "memory", None),
    (16, UNKNOWN, INTERACTIVE, "memory", 21),
    (21, UNKNOWN, BOTH, "", None),
]


def test_closing_is_immediate_and_bulk_reopens_after_its_dwell() -> None:
    admission: Admission | None = None
    for now, conditions, lanes, kind, opens_at in STORY:
        admission = admit(conditions, Mode.STANDARD, admission, now=float(now), dwell_s={Lane.BULK: 5.0})
        assert (now, admission.lanes, admission.kind) == (now, lanes, kind)
        assert admission.opens_at == (None if opens_at is None else pytest.approx(opens_at))


def test_the_reason_of_a_settling_lane_names_what_closed_it() -> None:
    dwell = {Lane.INTERACTIVE: 9.0, Lane.BULK: 5.0}
    closed = first(SERIOUS, Mode.STANDARD)
    both = admit(NOMINAL, Mode.STANDARD, closed, now=101.0, dwell_s=dwell)
    assert (both.lanes, both.reason) == (NONE, "settling after thermal serious (libnotify)")
    assert both.opens_at == 106.0
    bulk = admit(NOMINAL, Mode.STANDARD, both, now=106.0, dwell_s=dwell)
    assert bulk.reason == "settling after thermal serious (libnotify): interactive lane closed"


def test_a_dwell_is_drawn_once_when_conditions_turn_safe() -> None:
    closed = first(SERIOUS, Mode.STANDARD)
    settling = admit(NOMINAL, Mode.STANDARD, closed, now=101.0, dwell_s={Lane.BULK: 5.0})
    later = admit(NOMINAL, Mode.STANDARD, settling, now=102.0, dwell_s={Lane.BULK: 100.0})
    assert later.opens_at == 106.0


def test_what_is_unsafe_now_is_told_before_what_only_settles() -> None:
    closed = first(SERIOUS, Mode.STANDARD)
    dwell = {Lane.INTERACTIVE: 60.0}
    admission = admit(SHORT, Mode.STANDARD, closed, now=101.0, dwell_s=dwell)
    assert (admission.lanes, admission.kind) == (NONE, Kind.MEMORY)


def test_strict_reopens_at_once_whatever_stood_before() -> None:
    closed = first(SERIOUS, Mode.STRICT)
    assert closed.lanes == NONE
    assert admit(FAIR, Mode.STRICT, closed, now=100.0, dwell_s={Lane.BULK: 5.0}).lanes == BOTH


@pytest.mark.parametrize(
    ("conditions", "result"),
    [(NOMINAL, "safe"), (FAIR, "safe"), (UNKNOWN, "unknown"), (GONE, "unsafe"), (SERIOUS, "unsafe")],
)
def test_a_check_has_one_of_three_results_for_metrics(conditions, result) -> None:
    assert checked(conditions, first(conditions, Mode.STANDARD)) == result
