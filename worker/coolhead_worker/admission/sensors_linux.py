"""The sensor for Linux: thermal zones, throttle counters, power supply, platform profile, PSI.

Guarantee: a machine without sensors (most virtual machines) is `unknown`, never nominal; a sensor
that was there and is gone is reported as vanished. Linux has no event for all of these, so a wait
ends at its timeout or by `wake()`: the caller's poll interval is what notices a change.

Processors only: heat of a discrete GPU is seen when its driver lists a zone or a hwmon chip.
"""

from __future__ import annotations

from dataclasses import replace

from coolhead_worker.admission.conditions import Conditions, combine
from coolhead_worker.admission.linux_heat import LinuxHeat
from coolhead_worker.admission.linux_power import memory, power
from coolhead_worker.admission.sensor import QuietSensor
from coolhead_worker.admission.sysfs import SysFiles
from coolhead_worker.clock import Clock


class LinuxSensor(QuietSensor):
    """Reads /sys and /proc below the root of `files`."""

    name = "linux"

    def __init__(self, clock: Clock, files: SysFiles | None = None) -> None:
        super().__init__(clock)
        self._files = files or SysFiles()
        self._heat = LinuxHeat(self._files)

    def read(self) -> Conditions:
        """All of it, now: some tens of small files."""
        now = self._clock.monotonic()
        parts = (self._heat.read(now), power(self._files), memory(self._files))
        return replace(combine(parts), read_at=now)
