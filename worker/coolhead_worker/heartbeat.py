"""Keeps leases and the node's status alive while a model call runs.

Guarantee: held jobs are renewed and the status is published at least every `period_s`, on a
connection of its own, whatever the main thread does; when a batch outlives `hang_s` the process is
ended, because a call that ignores its abort callback can't be stopped in any other way. The lease
then gives the batch to another node.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence

import redis

from coolhead_worker.claim.desk import ClaimDesk
from coolhead_worker.claim.presence import NodeStatus, Presence
from coolhead_worker.claim.settlement import Claimed
from coolhead_worker.clock import Clock

HUNG_EXIT_CODE = 70

_log = logging.getLogger("coolhead.heartbeat")


def end_process() -> None:
    """Leave at once; nothing may be flushed or settled by a hung process."""
    os._exit(HUNG_EXIT_CODE)


class Heartbeat:
    """A thread beside the worker's loop."""

    def __init__(
        self,
        desk: ClaimDesk,
        presence: Presence,
        clock: Clock,
        *,
        period_s: float = 5.0,
        hang_s: float = 120.0,
        give_up: Callable[[], None] = end_process,
    ) -> None:
        self._desk = desk
        self._presence = presence
        self._clock = clock
        self._period_s = period_s
        self._hang_s = hang_s
        self._give_up = give_up
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._held: tuple[Claimed, ...] = ()
        self._since = 0.0
        self._status: NodeStatus | None = None
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self, status: NodeStatus) -> None:
        """Begin with this status."""
        self._status = status
        self._thread.start()

    def show(self, status: NodeStatus) -> None:
        """The status to publish from now on; a changed one is published by the caller too."""
        self._status = status

    def hold(self, claimed: Sequence[Claimed]) -> None:
        """Renew these from now on; an empty sequence ends the batch."""
        with self._lock:
            self._held = tuple(claimed)
            self._since = self._clock.monotonic()

    def close(self) -> None:
        """Stop and wait for the thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def beat(self) -> None:
        """One round: renew, publish, look for a hang."""
        with self._lock:
            held, since = self._held, self._since
        if held and self._clock.monotonic() - since > self._hang_s:
            _log.critical("a batch runs for more than %.0f s: ending the process", self._hang_s)
            self._give_up()
            return
        try:
            lost = self._desk.renew(held) if held else set()
            if self._status is not None:
                self._presence.publish(self._status)
        except redis.RedisError as error:
            _log.warning("heartbeat: %s", type(error).__name__)
            return
        if lost:
            _log.warning("%d leases were lost: their results will be fenced out", len(lost))

    def _run(self) -> None:
        while not self._stop.wait(self._period_s):
            self.beat()
