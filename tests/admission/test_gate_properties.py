"""The gate, whatever the machine says and in whatever order."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from coolhead.policy import Lane
from coolhead_worker.admission.conditions import Conditions, Memory, Thermal
from coolhead_worker.admission.gate import LANES, Admission, Mode, admit
from tests.admission.readings import readings

DWELL = {Lane.INTERACTIVE: 0.0, Lane.BULK: 5.0}
KNOWN = sorted((level for level in Thermal if level is not Thermal.UNKNOWN), key=lambda level: level.heat)
#: From one reading to the next: seconds (quarters, so that sums are exact), and the reading.
STEPS = st.lists(
    st.tuples(st.integers(0, 80).map(lambda quarters: quarters / 4), readings()), min_size=1, max_size=12
)


def run(steps, mode: Mode = Mode.STANDARD, dwell=DWELL) -> list[Admission]:
    """The admissions of a course of readings."""
    admissions: list[Admission] = []
    now, last = 0.0, None
    for seconds, conditions in steps:
        now += seconds
        last = admit(conditions, mode, last, now=now, dwell_s=dwell)
        admissions.append(last)
    return admissions


def unsafe(conditions: Conditions) -> bool:
    """The rule of the reference article."""
    return conditions.thermal in ("serious", "critical") or conditions.low_power is True


@given(STEPS)
def test_closing_is_never_delayed(steps) -> None:
    for (_, conditions), admission in zip(steps, run(steps), strict=True):
        if unsafe(conditions):
            assert admission.lanes == frozenset()
        if conditions.vanished or conditions.memory is Memory.CRITICAL:
            assert Lane.BULK not in admission.lanes


@given(STEPS)
def test_a_closed_lane_was_unsafe_within_its_dwell(steps) -> None:
    times, now = [], 0.0
    for seconds, _ in steps:
        now += seconds
        times.append(now)
    for index, admission in enumerate(run(steps)):
        if Lane.BULK in admission.lanes:
            continue
        blockers = [
            i
            for i in range(index + 1)
            if unsafe(steps[i][1]) or steps[i][1].vanished or steps[i][1].memory is Memory.CRITICAL
        ]
        assert blockers
        # The first safe look after the last unsafe one starts the dwell.
        starts = times[blockers[-1] + 1] if blockers[-1] < index else times[index]
        assert times[index] - starts < DWELL[Lane.BULK]


@given(STEPS)
def test_a_lane_never_reopens_before_its_dwell(steps) -> None:
    now, closed_at = 0.0, None
    for (seconds, conditions), admission in zip(steps, run(steps), strict=True):
        now += seconds
        if unsafe(conditions) or conditions.vanished or conditions.memory is Memory.CRITICAL:
            closed_at = now
        elif closed_at is not None and Lane.BULK in admission.lanes:
            assert now - closed_at >= DWELL[Lane.BULK]
            closed_at = None


@given(STEPS)
def test_people_are_never_kept_waiting_by_hysteresis(steps) -> None:
    for (_, conditions), admission in zip(steps, run(steps), strict=True):
        assert (Lane.INTERACTIVE in admission.lanes) == (not unsafe(conditions))


@given(STEPS)
def test_strict_closes_exactly_on_the_rule_of_the_article(steps) -> None:
    for (_, conditions), admission in zip(steps, run(steps, Mode.STRICT), strict=True):
        assert admission.lanes == (frozenset() if unsafe(conditions) else LANES)


@given(STEPS)
def test_always_never_closes(steps) -> None:
    assert all(admission.lanes == LANES for admission in run(steps, Mode.ALWAYS))


@st.composite
def twin_courses(draw):
    """Two courses in step; every reading of the second is at least as bad as the first's."""
    cooler, hotter = [], []
    for seconds, conditions in draw(STEPS):
        level = draw(st.sampled_from(KNOWN))
        worse = draw(st.sampled_from(KNOWN[level.heat :]))
        cooler.append((seconds, replace(conditions, thermal=level)))
        bad = Conditions(
            thermal=worse,
            low_power=True if draw(st.booleans()) else conditions.low_power,
            vanished=conditions.vanished or draw(st.booleans()),
            memory=Memory.CRITICAL if draw(st.booleans()) else conditions.memory,
        )
        hotter.append((seconds, bad))
    return cooler, hotter


@given(twin_courses(), st.sampled_from(Mode))
def test_hotter_never_opens_more_lanes(courses, mode) -> None:
    cooler, hotter = courses
    for cool, hot in zip(run(cooler, mode), run(hotter, mode), strict=True):
        assert hot.lanes <= cool.lanes


@given(STEPS, st.sampled_from(Mode))
def test_a_reason_is_there_exactly_when_it_is_needed_and_is_one_line(steps, mode) -> None:
    for admission in run(steps, mode):
        assert "\n" not in admission.reason
        assert bool(admission.reason) == bool(admission.kind)
        if mode is not Mode.ALWAYS:
            assert bool(admission.reason) == (admission.lanes != LANES)
            assert {closure.lane for closure in admission.closures} == LANES - admission.lanes


@given(readings(), st.sampled_from(Mode))
def test_the_reason_names_level_and_source(conditions, mode) -> None:
    reason = admit(conditions, mode, None, now=0.0).reason
    if conditions.thermal in (Thermal.SERIOUS, Thermal.CRITICAL):
        source = conditions.thermal_source or "source not named"
        assert reason.startswith(f"thermal {conditions.thermal} ({source})")
