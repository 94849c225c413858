"""The gate at work: holds sensor, mode, clock and chance, and waits without holding anything else.

Guarantee: every `check` reads the sensor anew; a broken sensor is `unknown` and vanished, it
closes bulk and never takes the node down; a wait ends at the first of: a wanted lane is open, stop,
the timeout, and always after one more look.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection

from coolhead.policy import Lane
from coolhead_worker.admission.conditions import Conditions
from coolhead_worker.admission.gate import Admission, Mode, admit
from coolhead_worker.admission.sensor import Sensor
from coolhead_worker.clock import Clock

#: Conditions are looked at this often while waiting, events or not; bounds a lost notification.
POLL_S = 0.25
#: A wait gives up after this long; its caller looks after other things and comes back.
WAIT_S = 30.0
#: Bulk reopens after this long times a factor drawn from `BULK_JITTER`, so that equal machines that
#: closed together do not reopen together. People do not wait for that: interactive has no dwell.
BULK_DWELL_S = 5.0
BULK_JITTER = (0.75, 1.5)

BEFORE_ACQUIRE = "before_acquire"
AFTER_ACQUIRE = "after_acquire"
DURING_CALL = "during_call"

_log = logging.getLogger("coolhead.admission")

#: Told of each check: the phase, what was read, what was decided.
Observer = Callable[[str, Conditions, Admission], None]


class Gatekeeper:
    """One node's gate. One thread at a time checks and waits; `wake` is for everybody."""

    def __init__(
        self,
        sensor: Sensor,
        mode: Mode,
        clock: Clock,
        rng: random.Random,
        *,
        poll_s: float = POLL_S,
        bulk_dwell_s: float = BULK_DWELL_S,
        observer: Observer | None = None,
    ) -> None:
        """`poll_s` > 0 and `bulk_dwell_s` >= 0 in seconds; nothing is read yet."""
        self._sensor = sensor
        self._mode = mode
        self._clock = clock
        self._rng = rng
        self._poll_s = poll_s
        self._bulk_dwell_s = bulk_dwell_s
        self._observer = observer
        self._conditions = Conditions(thermal_source=sensor.name, read_at=clock.monotonic())
        self._admission: Admission | None = None

    @property
    def conditions(self) -> Conditions:
        """The newest reading; unknown before the first check."""
        return self._conditions

    @property
    def admission(self) -> Admission:
        """What the newest check decided; nothing is open before the first."""
        return self._admission or Admission(frozenset(), "the machine was not looked at yet")

    @property
    def poll_s(self) -> float:
        """How often a waiting caller looks."""
        return self._poll_s

    def check(self, phase: str) -> Admission:
        """Read and decide now.

        Args:
            phase: `before_acquire`, `after_acquire` or `during_call`; for the observer only.
        """
        self._conditions = self._read()
        dwell_s = {Lane.BULK: self._bulk_dwell_s * self._rng.uniform(*BULK_JITTER)}
        admission = admit(
            self._conditions, self._mode, self._admission, now=self._clock.monotonic(), dwell_s=dwell_s
        )
        self._admission = admission
        if self._observer is not None:
            self._observer(phase, self._conditions, admission)
        return admission

    def wait_until_open(
        self, lanes: Collection[Lane], stop: Callable[[], bool], timeout_s: float = WAIT_S
    ) -> Admission:
        """Wait outside until any of `lanes` is open.

        Returns what the last look found, with no lane open at a stop or after `timeout_s` seconds.
        The first look comes before the first sleep: conditions may have changed while nobody looked,
        and no event tells that again.
        """
        deadline = self._clock.monotonic() + timeout_s
        admission = self.check(BEFORE_ACQUIRE)
        while admission.lanes.isdisjoint(lanes) and not stop():
            left = deadline - self._clock.monotonic()
            if left <= 0:
                break
            self._sensor.wait(min(left, self._nap(admission)))
            admission = self.check(BEFORE_ACQUIRE)
        return admission

    def pause(self, seconds: float) -> bool:
        """Sleep this long, less when the machine's state changes or somebody calls `wake`.

        Returns False when nobody cut it short.
        """
        return self._sensor.wait(seconds)

    def wake(self) -> None:
        """End the current or the next sleep; safe in any thread and in a signal handler."""
        self._sensor.wake()

    def close(self) -> None:
        """Close the sensor."""
        self._sensor.close()

    def _nap(self, admission: Admission) -> float:
        """Until the next poll, or until a lane has settled."""
        if admission.opens_at is None:
            return self._poll_s
        return max(0.0, min(self._poll_s, admission.opens_at - self._clock.monotonic()))

    def _read(self) -> Conditions:
        try:
            return self._sensor.read()
        except Exception:  # noqa: BLE001  # foreign code and files: without it the node is blind, not dead
            name = self._sensor.name
            if not self._conditions.vanished:
                _log.exception("sensor %s failed: its level is unknown", name)
            now = self._clock.monotonic()
            return Conditions(thermal_source=name, vanished=True, vanished_source=name, read_at=now)
