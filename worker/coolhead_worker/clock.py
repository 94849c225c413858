"""Time as an argument: nothing that decides reads a clock of its own."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks of one node."""

    def monotonic(self) -> float:
        """Seconds that never jump; only differences mean anything."""

    def wall(self) -> float:
        """Seconds since 1970, as the host believes; for display only."""


class SystemClock:
    """The host's clocks."""

    def monotonic(self) -> float:
        """`time.monotonic()`."""
        return time.monotonic()

    def wall(self) -> float:
        """`time.time()`."""
        return time.time()


class ManualClock:
    """A clock that moves when told to; for tests."""

    def __init__(self, start: float = 0.0) -> None:
        self.now = start

    def monotonic(self) -> float:
        """Seconds advanced so far, plus the start."""
        return self.now

    def wall(self) -> float:
        """The same number: there is one hand on this clock."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Move forward; going back is refused.

        Raises:
            ValueError: `seconds` is negative.
        """
        if seconds < 0:
            raise ValueError("a monotonic clock does not go back")
        self.now += seconds
