"""How hot one Linux thermal zone is, from its temperature and its trip points.

Guarantee: pure; a temperature or trip point that no machine has is left out, not believed; a zone
whose name says nothing about a processor is left out, because wireless and disk zones are hot by
habit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from coolhead_worker.admission.conditions import Thermal

#: Zones of a processor, its package or its board; matched anywhere in the lower-case type.
_PROCESSOR = re.compile(
    r"x86_pkg|tcpu|b0d4|acpitz|cpu|gpu|soc|package|cluster|coretemp|k10temp|zenpower|macsmc"
)
_PLAUSIBLE_C = (-20.0, 150.0)
_PLAUSIBLE_TRIP_C = (40.0, 130.0)
#: Where throttling is assumed to begin when the zone does not say.
_LIMIT_C = 95.0
#: Boards such as the Raspberry Pi throttle in firmware at 80 C and list only a far critical trip.
_FIRMWARE_LIMIT_C = 80.0
_FIRMWARE_ZONES = frozenset({"cpu-thermal", "cpu_thermal"})
#: A machine seen in public lists 104.8 C for every trip and resets at 94.5 C: such a table has one
#: number in it and no throttling point.
_BELOW_FLAT_TABLE_C = 20.0
_BELOW_CRITICAL_C = 10.0
_THROTTLING = ("passive", "hot")
_FAIR_BAND_C = 10.0
_CRITICAL_BAND_C = 5.0


@dataclass(frozen=True, slots=True)
class Zone:
    """One zone: its type, degrees Celsius, and its lowest believable trip of each kind in Celsius."""

    type: str
    celsius: float
    trips: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def make(cls, type_: str, milli: int | None, trips: Iterable[tuple[str, int | None]] = ()) -> Zone | None:
        """A zone from raw values in 1/1000 C; None when it says nothing about a processor's heat."""
        if milli is None or not _within(milli / 1000, _PLAUSIBLE_C) or not _PROCESSOR.search(type_.lower()):
            return None
        kept: dict[str, float] = {}
        for kind, trip in trips:
            if trip is not None and _within(trip / 1000, _PLAUSIBLE_TRIP_C):
                kept[kind] = min(trip / 1000, kept.get(kind, trip / 1000))
        return cls(type_, milli / 1000, kept)

    @property
    def limit_c(self) -> float:
        """Where this zone begins to throttle, as far as one can tell."""
        critical = self.trips.get("critical")
        throttling = [self.trips[kind] for kind in _THROTTLING if kind in self.trips]
        if critical is not None and self._is_flat:
            return critical - _BELOW_FLAT_TABLE_C
        if not throttling and self.type in _FIRMWARE_ZONES:
            return _FIRMWARE_LIMIT_C
        if critical is not None:
            throttling.append(critical - _BELOW_CRITICAL_C)
        return min(throttling, default=_LIMIT_C)

    @property
    def critical_c(self) -> float | None:
        """Where this zone is about to shut the machine down; None when it has no critical trip."""
        critical = self.trips.get("critical")
        if critical is None:
            return None
        return self.limit_c + _CRITICAL_BAND_C if self._is_flat else critical - _CRITICAL_BAND_C

    @property
    def level(self) -> Thermal:
        """Fair within 10 C of the limit, serious at it, critical within 5 C of the critical trip."""
        if self.critical_c is not None and self.celsius >= self.critical_c:
            return Thermal.CRITICAL
        if self.celsius >= self.limit_c:
            return Thermal.SERIOUS
        return Thermal.FAIR if self.celsius >= self.limit_c - _FAIR_BAND_C else Thermal.NOMINAL

    @property
    def _is_flat(self) -> bool:
        """True when the throttling trips stand no lower than the critical one."""
        throttling = [self.trips[kind] for kind in _THROTTLING if kind in self.trips]
        return "critical" in self.trips and bool(throttling) and min(throttling) >= self.trips["critical"]


def _within(value: float, bounds: tuple[float, float]) -> bool:
    return bounds[0] < value < bounds[1]
