"""What every sensor can do, and the part of it that all share.

Guarantee: `read` never raises for a machine that does not answer: it says `unknown`. An event or a
`wake()` that comes at any time after the sensor was made ends the current or the next `wait`, so a
caller that reads and then waits misses nothing.
"""

from __future__ import annotations

from typing import Protocol

from coolhead_worker.admission.conditions import Conditions
from coolhead_worker.admission.waker import Waker
from coolhead_worker.clock import Clock


class Sensor(Protocol):
    """Eyes of the gate. One thread reads and waits; `wake` is for everybody."""

    name: str

    def read(self) -> Conditions:
        """The machine as it is now."""

    def wait(self, timeout_s: float) -> bool:
        """Sleep until something may have changed, at most `timeout_s` seconds; False at the timeout."""

    def wake(self) -> None:
        """End the current or the next `wait`; safe in any thread and in a signal handler."""

    def close(self) -> None:
        """Give everything back."""


class QuietSensor:
    """A sensor without events of its own: only `wake()` cuts a wait short."""

    name = "quiet"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waker = Waker()

    def wait(self, timeout_s: float) -> bool:
        """Sleep until `wake()`, at most `timeout_s` seconds."""
        return self._waker.wait(timeout_s)

    def wake(self) -> None:
        """End the current or the next `wait`."""
        self._waker.wake()

    def close(self) -> None:
        """Close the pipe."""
        self._waker.close()


class NoSensor(QuietSensor):
    """For platforms that coolhead cannot ask: always unknown, which is shown and admitted."""

    name = "none"

    def read(self) -> Conditions:
        """Unknown in everything."""
        return Conditions(thermal_source="no sensor", read_at=self._clock.monotonic())
