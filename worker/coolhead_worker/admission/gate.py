"""Which lanes are open, decided from conditions alone.

Guarantee: pure. Closing takes effect with the very reading that asks for it; only reopening waits.
Hotter conditions never open a lane that cooler ones leave closed. `strict` closes everything exactly
when the thermal level is serious or critical or low-power mode is on; `always` closes nothing.

The state of the hysteresis travels inside the `Admission`, one `Closure` per lane that is not open:

    open ── unsafe ──> closed ── safe ──> settling until `opens_at` ── still safe ──> open
                          ^───────── unsafe ─────────┘
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from coolhead.policy import Lane
from coolhead_worker.admission.conditions import Conditions, Memory, Thermal

LANES = frozenset(Lane)
_BULK = frozenset({Lane.BULK})


class Mode(StrEnum):
    """How careful a node is."""

    STANDARD = "standard"  #: heat and low-power mode stop every lane; lost sensors and memory stop bulk
    STRICT = "strict"  #: serious, critical or low-power mode stops everything, nothing added
    ALWAYS = "always"  #: never stops; reasons are only reported


class Kind(StrEnum):
    """Why a lane is closed, as a metric label; `power` and `battery` are kept for later modes."""

    OPEN = ""
    THERMAL = "thermal"
    LOW_POWER_MODE = "low_power_mode"
    MEMORY = "memory"
    POWER = "power"
    BATTERY = "battery"
    SENSOR_UNKNOWN = "sensor_unknown"


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that speaks against working: for these lanes, for this reason (one line)."""

    kind: Kind
    reason: str
    lanes: frozenset[Lane] = LANES


@dataclass(frozen=True, slots=True)
class Closure:
    """Why one lane is not open; `opens_at` (monotonic seconds) is set once conditions are safe."""

    lane: Lane
    cause: Cause
    opens_at: float | None = None


@dataclass(frozen=True, slots=True)
class Admission:
    """The open lanes, and in one line why not all of them are.

    `reason` and `kind` are empty when every lane is open, except in mode `always`, where they tell
    what another mode would have stopped for. `closures` has one entry for each lane that is not open.
    """

    lanes: frozenset[Lane]
    reason: str = ""
    kind: Kind = Kind.OPEN
    closures: tuple[Closure, ...] = ()

    @property
    def opens_at(self) -> float | None:
        """The earliest time at which a lane opens if conditions stay safe; None when none does."""
        return min((c.opens_at for c in self.closures if c.opens_at is not None), default=None)


def admit(
    conditions: Conditions,
    mode: Mode,
    previous: Admission | None,
    *,
    now: float,
    dwell_s: Mapping[Lane, float] | None = None,
) -> Admission:
    """The lanes that are open now.

    Args:
        conditions: the newest reading.
        mode: how careful to be.
        previous: what the last call returned; None at the first.
        now: monotonic seconds, not less than at the last call.
        dwell_s: how long conditions must stay safe before a closed lane reopens, 0 where missing.
            It counts only in the call that first finds them safe, so a caller may draw it anew for
            every call. Only `standard` has a dwell.
    """
    if mode is Mode.ALWAYS:
        return _never_closed(causes(conditions))
    if mode is Mode.STRICT:
        found, before, dwell = _hazards(conditions), None, None
    else:
        found, before, dwell = causes(conditions), previous, dwell_s
    closures = [_closure(lane, found, before, now, dwell or {}) for lane in Lane]
    return _admission(tuple(closure for closure in closures if closure is not None))


def causes(conditions: Conditions) -> tuple[Cause, ...]:
    """Everything that speaks against working in mode `standard`, weightiest first."""
    return _hazards(conditions) + tuple(
        cause for cause in (_lost(conditions), _short(conditions)) if cause is not None
    )


def checked(conditions: Conditions, admission: Admission) -> str:
    """A check as a metric label: `unsafe` when something is closed, `unknown` when nobody can say
    how hot the machine is, else `safe`."""
    if admission.kind is not Kind.OPEN:
        return "unsafe"
    return "unknown" if conditions.thermal is Thermal.UNKNOWN else "safe"


def _hazards(conditions: Conditions) -> tuple[Cause, ...]:
    """What stops every lane."""
    found: list[Cause] = []
    if conditions.thermal in (Thermal.SERIOUS, Thermal.CRITICAL):
        level = f"thermal {conditions.thermal.value}"
        found.append(Cause(Kind.THERMAL, _told(level, conditions.thermal_source)))
    if conditions.low_power:
        found.append(Cause(Kind.LOW_POWER_MODE, _told("low power mode on", conditions.low_power_source)))
    return tuple(found)


def _lost(conditions: Conditions) -> Cause | None:
    """A machine that has gone blind may be hot: nobody waits for bulk, so bulk stops."""
    if not conditions.vanished:
        return None
    source = conditions.vanished_source or conditions.thermal_source
    return Cause(Kind.SENSOR_UNKNOWN, _told("thermal sensor gone", source), _BULK)


def _short(conditions: Conditions) -> Cause | None:
    if conditions.memory is not Memory.CRITICAL:
        return None
    return Cause(Kind.MEMORY, _told("memory pressure critical", conditions.memory_source), _BULK)


def _told(level: str, source: str) -> str:
    return f"{level} ({source or 'source not named'})"


def _closure(
    lane: Lane,
    found: tuple[Cause, ...],
    previous: Admission | None,
    now: float,
    dwell_s: Mapping[Lane, float],
) -> Closure | None:
    """The lane's next state; None is open."""
    for cause in found:
        if lane in cause.lanes:
            return Closure(lane, cause)
    before = next((c for c in previous.closures if c.lane is lane), None) if previous else None
    if before is None:
        return None
    opens_at = before.opens_at
    if opens_at is None:
        opens_at = now + dwell_s.get(lane, 0.0)
    return None if now >= opens_at else Closure(lane, before.cause, opens_at)


def _admission(closures: tuple[Closure, ...]) -> Admission:
    lanes = LANES - {closure.lane for closure in closures}
    if not closures:
        return Admission(lanes)
    # What is unsafe now is told before what only has to settle.
    first = min(closures, key=lambda closure: closure.opens_at is not None)
    return Admission(lanes, _reason(first, lanes), first.cause.kind, closures)


def _reason(closure: Closure, lanes: frozenset[Lane]) -> str:
    text = closure.cause.reason if closure.opens_at is None else f"settling after {closure.cause.reason}"
    return f"{text}: {closure.lane.value} lane closed" if lanes else text


def _never_closed(found: tuple[Cause, ...]) -> Admission:
    if not found:
        return Admission(LANES)
    return Admission(LANES, f"{found[0].reason}: ignored in mode always", found[0].kind)
