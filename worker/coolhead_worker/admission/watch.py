"""Eyes on the machine while a model call keeps the loop busy.

Guarantee: from a quarter of a second after a reading at which nothing of the batch may run (the rule
that puts a batch back before its call), or at once where the sensor announces it, the alarm sounds,
and again and again until the call has ended: a call may be between two steps when it first sounds.
After that reading no more are taken, so `Gatekeeper.admission` tells why. Short calls cost a thread and
no reading. A wake-up that comes during the call may be used up by the watch: whoever woke the gate to
be heard left a flag, and the loop looks at it after the call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from types import TracebackType

from coolhead.policy import Lane
from coolhead_worker.admission.gatekeeper import DURING_CALL, Gatekeeper

#: Between two alarms for a call that has not ended yet.
ALARM_EVERY_S = 0.05


class Watch:
    """For the time of one `with` block it is the one that checks and waits at the gate."""

    def __init__(self, gate: Gatekeeper, lanes: Collection[Lane], alarm: Callable[[], None]) -> None:
        """`alarm` is called in a thread of its own when none of `lanes` is open any more."""
        self._gate = gate
        self._lanes = lanes
        self._alarm = alarm
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hand the gate back."""
        self._over.set()
        self._gate.wake()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            self._gate.pause(self._gate.poll_s)
            if self._over.is_set():
                return
            if self._gate.check(DURING_CALL).lanes.isdisjoint(self._lanes):
                break
        while not self._over.is_set():
            self._alarm()
            self._over.wait(ALARM_EVERY_S)
