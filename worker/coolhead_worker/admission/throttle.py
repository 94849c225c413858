"""How much of the time the processor was throttled, from a counter that only grows.

Guarantee: no clock, no I/O; a rise shows in the very next reading, calm shows only after a whole
window without a rise; readings in quick succession do not blow up the share.
"""

from __future__ import annotations

from dataclasses import dataclass

from coolhead_worker.admission.conditions import Thermal

WINDOW_S = 1.0
_SERIOUS_SHARE = 0.2


@dataclass(slots=True)
class ThrottleMeter:
    """Holds the start of the current window: monotonic seconds and the counter in milliseconds."""

    _since: float = 0.0
    _start_ms: int | None = None
    _level: Thermal = Thermal.UNKNOWN

    def update(self, now: float, total_ms: int) -> Thermal:
        """The level at `now`: any throttling is fair, more than 20 % of the window serious.

        The first reading has nothing to compare with and is unknown, and so is one after the
        counter went back (the processor was replugged or the machine slept).
        """
        if self._start_ms is None or total_ms < self._start_ms:
            self._since, self._start_ms, self._level = now, total_ms, Thermal.UNKNOWN
            return self._level
        elapsed = now - self._since
        fresh = _level((total_ms - self._start_ms) / 1000 / max(elapsed, WINDOW_S))
        if elapsed >= WINDOW_S:
            self._since, self._start_ms, self._level = now, total_ms, fresh
        elif fresh is not Thermal.NOMINAL:
            return max(self._level, fresh, key=lambda level: level.heat)
        return self._level


def _level(share: float) -> Thermal:
    if share > _SERIOUS_SHARE:
        return Thermal.SERIOUS
    return Thermal.FAIR if share > 0 else Thermal.NOMINAL
