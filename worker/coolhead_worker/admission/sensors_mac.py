"""The sensor for macOS: thermal pressure, low-power mode, power source, memory pressure.

NOT RUN ON A MAC. The logic is tested against a recording stub of the libraries; keys and signatures
come from Apple's public headers and from public programs. `docs/mac-first-hour.md` lists the checks
that turn this into knowledge.

The thermal level is libnotify's `com.apple.system.thermalpressurelevel`, not
`NSProcessInfo.thermalState`: on macOS the latter folds moderate and heavy into "fair" and goes
stale, so a gate on it hardly ever closes. No run loop, no root, no entitlement is needed.

Guarantee: registration precedes the first read; a failed registration or an unknown number is
level `unknown`, never nominal; a posted change ends a wait at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import psutil

from coolhead_worker.admission.conditions import (
    Conditions,
    Thermal,
    memory_from_pressure_level,
    thermal_from_notify,
)
from coolhead_worker.admission.mac_notify import NotifyKeys, load_system, sysctl_int
from coolhead_worker.admission.mac_power import (
    Pmset,
    PowerSource,
    charge_of,
    is_mains,
    load_power,
    low_power_of,
    source_of,
)
from coolhead_worker.admission.sensor import QuietSensor
from coolhead_worker.clock import Clock

THERMAL_KEY = "com.apple.system.thermalpressurelevel"
LOW_POWER_KEY = "com.apple.system.lowpowermode"
POWER_KEY = "com.apple.system.powersources.source"
MEMORY_NAME = "kern.memorystatus_vm_pressure_level"
SOURCE = "libnotify"
#: How long an answer of `pmset` is used, unless a power key is posted before.
PMSET_S = 5.0


class MacSensor(QuietSensor):
    """Made once per process, after any fork."""

    name = "macos"

    def __init__(
        self,
        clock: Clock,
        system: Any,
        power: PowerSource,
        pmset: Pmset,
        charge: Callable[[], float | None],
    ) -> None:
        """Register the keys.

        Args:
            clock: for the time of a reading.
            system: libSystem or a stand-in; None where it could not be loaded.
            power: the power source.
            pmset: asked for what the libraries don't tell.
            charge: the battery's charge, 0..1, or None.
        """
        super().__init__(clock)
        self._system = system
        self._power = power
        self._pmset = pmset
        self._charge = charge
        self._pmset_told: dict[str, tuple[float, str]] = {}
        self._had_level = False
        # Before any state is read: a change from now on stays in the descriptor until it is seen.
        self._keys = NotifyKeys(system, (THERMAL_KEY, LOW_POWER_KEY, POWER_KEY))

    @classmethod
    def open(cls, clock: Clock) -> MacSensor:
        """The sensor on the system's own libraries."""
        return cls(clock, load_system(), load_power(), Pmset(), battery_charge)

    @property
    def raw_level(self) -> int | None:
        """The number behind the thermal level, for comparison by an operator."""
        return self._keys.state(THERMAL_KEY)

    def read(self) -> Conditions:
        """All of it, now."""
        self._note_posts()  # before reading: a post that comes later stays for the next wait
        level = thermal_from_notify(self.raw_level)
        vanished = self._had_level and level is Thermal.UNKNOWN
        self._had_level |= level is not Thermal.UNKNOWN
        source = self._power.name() or source_of(self._ask_pmset("batt"))
        low_power, low_power_source = self._low_power(source)
        return Conditions(
            thermal=level,
            thermal_source=SOURCE,
            on_ac=is_mains(source),
            battery=self._battery(),
            low_power=low_power,
            memory=memory_from_pressure_level(sysctl_int(self._system, MEMORY_NAME)),
            vanished=vanished,
            read_at=self._clock.monotonic(),
            low_power_source=low_power_source,
            memory_source="vm_pressure_level",
            vanished_source=SOURCE if vanished else "",
        )

    def wait(self, timeout_s: float) -> bool:
        """Sleep until a key is posted, or `wake()`, at most `timeout_s` seconds."""
        fds = () if self._keys.fd is None else (self._keys.fd,)
        changed = self._waker.wait(timeout_s, fds)
        self._note_posts()
        return changed

    def close(self) -> None:
        """Cancel the registrations and close the pipe."""
        self._keys.close()
        super().close()

    def _low_power(self, source: str | None) -> tuple[bool | None, str]:
        state = self._keys.state(LOW_POWER_KEY)
        if state in (0, 1):
            return state == 1, SOURCE
        told = low_power_of(self._ask_pmset("custom"), source)
        return told, "" if told is None else "pmset"

    def _battery(self) -> float | None:
        charge = self._charge()
        return charge_of(self._ask_pmset("batt")) if charge is None else charge

    def _ask_pmset(self, what: str) -> str:
        now = self._clock.monotonic()
        if what not in self._pmset_told or now - self._pmset_told[what][0] >= PMSET_S:
            self._pmset_told[what] = (now, self._pmset.run(what))
        return self._pmset_told[what][1]

    def _note_posts(self) -> None:
        if self._keys.posted() & {LOW_POWER_KEY, POWER_KEY}:
            self._pmset_told.clear()


def battery_charge() -> float | None:
    """The charge of the machine's battery by psutil, 0..1; None without one."""
    with contextlib.suppress(AttributeError, NotImplementedError, RuntimeError, OSError):
        battery = psutil.sensors_battery()
        if battery is not None:
            return min(max(battery.percent / 100, 0.0), 1.0)
    return None
