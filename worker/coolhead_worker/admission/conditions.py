"""What a machine says about itself, as one value.

Guarantee: pure; every raw number that is not understood maps to `unknown` and never to `nominal`;
a combination of readings is never cooler than any reading in it that knows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

#: Between the names of several sources in one text.
JOINER = " + "


class Thermal(StrEnum):
    """How hot the machine is, in the words of Apple's `ProcessInfo`."""

    NOMINAL = "nominal"
    FAIR = "fair"
    SERIOUS = "serious"  #: the machine slows itself down
    CRITICAL = "critical"
    UNKNOWN = "unknown"  #: nobody can say; not the same as nominal

    @property
    def heat(self) -> int:
        """0 for nominal up to 3 for critical; -1 for unknown, so that any known level wins."""
        return _HEAT[self]


class Memory(StrEnum):
    """How short of memory the machine is."""

    NORMAL = "normal"
    WARN = "warn"
    CRITICAL = "critical"
    UNKNOWN = "unknown"

    @property
    def pressure(self) -> int:
        """0 for normal up to 2 for critical; -1 for unknown."""
        return _PRESSURE[self]


_HEAT = {
    Thermal.UNKNOWN: -1,
    Thermal.NOMINAL: 0,
    Thermal.FAIR: 1,
    Thermal.SERIOUS: 2,
    Thermal.CRITICAL: 3,
}
_PRESSURE = {Memory.UNKNOWN: -1, Memory.NORMAL: 0, Memory.WARN: 1, Memory.CRITICAL: 2}

#: macOS libnotify key `com.apple.system.thermalpressurelevel`: nominal, moderate, heavy, trapping,
#: sleeping. Heavy is where the machine throttles, which is what `serious` means.
_NOTIFY_LEVELS = (Thermal.NOMINAL, Thermal.FAIR, Thermal.SERIOUS, Thermal.CRITICAL, Thermal.CRITICAL)
#: macOS sysctl `kern.memorystatus_vm_pressure_level`.
_PRESSURE_LEVELS = {1: Memory.NORMAL, 2: Memory.WARN, 4: Memory.CRITICAL}


@dataclass(frozen=True, slots=True)
class Conditions:
    """One reading of the machine; None and `unknown` mean that nobody could say.

    `battery` is the charge, 0..1. `vanished` is True when a sensor that once gave a level is gone.
    The sources are names for people (`libnotify`, `x86_pkg_temp`), several joined by ` + `.
    `read_at` is monotonic seconds.
    """

    thermal: Thermal = Thermal.UNKNOWN
    thermal_source: str = ""
    on_ac: bool | None = None
    battery: float | None = None
    low_power: bool | None = None
    memory: Memory = Memory.UNKNOWN
    vanished: bool = False
    read_at: float = 0.0
    low_power_source: str = ""
    memory_source: str = ""
    vanished_source: str = ""


def thermal_from_notify(value: int | None) -> Thermal:
    """The level of macOS' thermal pressure 0..4; unknown for None and any other number."""
    if value is None or not 0 <= value < len(_NOTIFY_LEVELS):
        return Thermal.UNKNOWN
    return _NOTIFY_LEVELS[value]


def memory_from_pressure_level(value: int | None) -> Memory:
    """The level of macOS' memory pressure 1, 2 or 4; unknown for None and any other number."""
    return Memory.UNKNOWN if value is None else _PRESSURE_LEVELS.get(value, Memory.UNKNOWN)


def combine(readings: Iterable[Conditions]) -> Conditions:
    """The worst of several readings of one machine, with the sources that say so.

    Hottest known level, least memory, any vanished sensor, any low-power mode; on mains only when
    nothing says battery; lowest charge; oldest `read_at`. Without readings all is unknown. The order
    of the readings does not matter.
    """
    parts = tuple(readings)
    if not parts:
        return Conditions()
    thermal = max((part.thermal for part in parts), key=lambda level: level.heat)
    memory = max((part.memory for part in parts), key=lambda level: level.pressure)
    low_power = _any(part.low_power for part in parts)
    on_battery = _any(None if part.on_ac is None else not part.on_ac for part in parts)
    charges = [part.battery for part in parts if part.battery is not None]
    return Conditions(
        thermal=thermal,
        thermal_source=_sources(part.thermal_source for part in parts if part.thermal is thermal),
        on_ac=None if on_battery is None else not on_battery,
        battery=min(charges, default=None),
        low_power=low_power,
        memory=memory,
        vanished=any(part.vanished for part in parts),
        read_at=min(part.read_at for part in parts),
        low_power_source=_sources(part.low_power_source for part in parts if part.low_power is low_power),
        memory_source=_sources(part.memory_source for part in parts if part.memory is memory),
        vanished_source=_sources(part.vanished_source for part in parts if part.vanished),
    )


def _any(values: Iterable[bool | None]) -> bool | None:
    """True when one is, else False when one is, else None."""
    known = {value for value in values if value is not None}
    return True in known if known else None


def _sources(texts: Iterable[str]) -> str:
    """Each name once, sorted."""
    return JOINER.join(sorted({name for text in texts for name in text.split(JOINER) if name}))
