"""A sensor that says what it is told; for tests of everything above the sensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from coolhead_worker.admission.conditions import Conditions, Thermal
from coolhead_worker.admission.sensor import QuietSensor
from coolhead_worker.clock import Clock


class FakeSensor(QuietSensor):
    """Scripted in memory.

    `become` changes what is read and wakes whoever waits. With `on_wait`, waiting does not sleep:
    the function gets the timeout, may move a manual clock or call `become`, and its result is the
    result of `wait`. An exception given to `become` is raised by `read`.
    """

    name = "fake"

    def __init__(
        self,
        clock: Clock,
        conditions: Conditions | Thermal | Exception = Thermal.NOMINAL,
        *,
        on_wait: Callable[[float], bool] | None = None,
    ) -> None:
        super().__init__(clock)
        self._now = self._given(conditions)
        self._on_wait = on_wait
        self.reads = 0
        self.waits: list[float] = []

    def become(self, conditions: Conditions | Thermal | Exception) -> None:
        """Change what is read from now on, from any thread."""
        self._now = self._given(conditions)
        self.wake()

    def read(self) -> Conditions:
        """What was given last, read now."""
        self.reads += 1
        if isinstance(self._now, Exception):
            raise self._now
        return replace(self._now, read_at=self._clock.monotonic())

    def wait(self, timeout_s: float) -> bool:
        """Note the timeout, then sleep or ask `on_wait`."""
        self.waits.append(timeout_s)
        return super().wait(timeout_s) if self._on_wait is None else self._on_wait(timeout_s)

    def _given(self, conditions: Conditions | Thermal | Exception) -> Conditions | Exception:
        if isinstance(conditions, Thermal):
            return Conditions(thermal=conditions, thermal_source=self.name)
        return conditions
