"""What others see of this node: RQ's registry of workers, the node's hash, the list of nodes.

Guarantee: `rq info` lists the worker with its queues while it lives and at most 90 s longer; the
node's hash ends 15 s after the last sign of life; `coolhead:nodes` remembers a node for a day. A
worker that was killed is replaced by its successor on the node at once, and never comes back to
overwrite it. No signal handlers, no threads, no state text. May be called from any thread.
"""

from __future__ import annotations

import json
import os
import platform
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass

import redis

from coolhead import __version__
from coolhead.errors import one_line
from coolhead.job import queue_name
from coolhead.policy import Lane
from coolhead_worker.claim.scripts import script

# RQ's words for our states; it shows an unknown one as it is.
_RQ_STATES = {"starting": "started", "paused": "suspended", "draining": "busy"}


def worker_name(node: str) -> str:
    """A name for a worker of this node that no other start of it ever had."""
    return f"{node}-{secrets.token_hex(6)}"


@dataclass(frozen=True)
class NodeStatus:
    """What a node does. `since`: unix seconds of the state, by the node's clock.

    `state`: starting, idle, busy, paused or draining. `reason`: one line, "" when every lane is
    open. `lanes`: the open ones. `thermal`, `source`: the level and the sensor that says so.
    `models`: "fast=name@digest12,deep=...". `metrics`: "host:port" or "".
    """

    state: str
    reason: str
    lanes: tuple[Lane, ...]
    thermal: str
    source: str
    models: str
    metrics: str
    since: float


class Presence:
    """The public face of one worker process."""

    def __init__(self, connection: redis.Redis, *, node: str, worker: str, lanes: Sequence[Lane]) -> None:
        """`worker` comes from `worker_name(node)`; `lanes` are those this node serves at all."""
        self._node = node
        self._worker = worker
        self._queues = [queue_name(lane) for lane in lanes]
        self._script = script(connection, "presence")

    def enter(self, status: NodeStatus) -> None:
        """Register, and take earlier workers of this node off the books."""
        self._call("enter", status)

    def publish(self, status: NodeStatus) -> bool:
        """Say what this node does; also the sign of life, so call it at least every 5 s.

        Returns False when another worker has entered under this node's name; nothing is shown then.
        """
        return self._call("publish", status)

    def leave(self) -> None:
        """Take this worker and its status off the books; the list of nodes still knows the node."""
        self._call("leave", None)

    def _call(self, what: str, status: NodeStatus | None) -> bool:
        body = {
            "node": self._node,
            "worker": self._worker,
            "queues": self._queues,
            "rq": _flat(self._registration(status)) if status else [],
            "status": _flat(self._shown(status)) if status else [],
        }
        return bool(self._script(args=[what, json.dumps(body)]))

    def _registration(self, status: NodeStatus) -> dict[str, str]:
        """The fields RQ reads of a worker."""
        return {
            "queues": ",".join(self._queues),
            "pid": str(os.getpid()),
            "hostname": socket.gethostname(),
            "ip_address": "unknown",
            "version": f"coolhead {__version__}",
            "python_version": platform.python_version(),
            "state": _RQ_STATES.get(status.state, status.state),
        }

    def _shown(self, status: NodeStatus) -> dict[str, str]:
        """The fields of the node's hash."""
        return {
            "node": self._node,
            "worker": self._worker,
            "state": status.state,
            "reason": one_line(status.reason),
            "lanes": ",".join(status.lanes),
            "thermal": status.thermal,
            "source": status.source,
            "models": status.models,
            "version": __version__,
            "since": f"{status.since:.6f}",
            "metrics": status.metrics,
        }


def _flat(fields: dict[str, str]) -> list[str]:
    return [part for pair in fields.items() for part in pair]
