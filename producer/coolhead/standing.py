"""Where a job stands, and in one line why it has no answer yet.

Guarantee: the line names what an operator has to know (the nodes and what holds each of them)
and never a word of the job's state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from coolhead.conversation import Command, Talk, ask, number, text
from coolhead.errors import JobNotFound
from coolhead.fleet import Fleet, Node
from coolhead.job import QUEUE_PREFIX, queue_name
from coolhead.policy import Lane

NODES_NAMED = 3  #: of more nodes only the number is told
PLACES_COUNTED = 1000  #: how far into the queue a place is looked for

_FIELDS = (
    "status", "origin", "first_enqueued", "deadline_at", "deliveries", "attempts", "defers",
    "defer_reason", "node", "outcome", "error_code", "error",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Standing:
    """One job, as Redis has it now.

    `status`: queued, scheduled (waits for another try), started, finished, failed, canceled.
    `place`: from 1, in its queue; None when it does not wait or is further back than looked.
    `waited_s`: since it was first queued. `deadline_s`: until it expires, None for never.
    `outcome`: "" until it has ended.
    """

    id: str
    status: str
    lane: Lane | None
    place: int | None
    waited_s: float
    deadline_s: float | None = None
    deliveries: int = 0
    attempts: int = 0
    defers: int = 0
    defer_reason: str = ""
    node: str = ""
    outcome: str = ""
    error_code: str = ""
    error: str = ""

    def wire(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def read_standings(job_ids: Sequence[str]) -> Talk[dict[str, Standing]]:
    """Where jobs stand, in one round trip; those that do not exist are left out.

    A user who may not look for places in the lists gets everything else.
    """
    commands: list[Command] = [("TIME",)]
    for job_id in job_ids:
        commands.append(("HMGET", f"rq:job:{job_id}", *_FIELDS))
        commands += [_place_command(lane, job_id) for lane in Lane]
    time, *replies = yield from ask(*commands)
    for needed in (time, *replies[:: 1 + len(Lane)]):
        if isinstance(needed, Exception):
            raise needed
    now = int(time[0]) + int(time[1]) / 1e6
    width = 1 + len(Lane)
    found = {}
    for index, job_id in enumerate(job_ids):
        fields, *places = replies[index * width : (index + 1) * width]
        if fields[0] is not None:
            found[job_id] = _standing(job_id, dict(zip(_FIELDS, map(text, fields), strict=True)), places, now)
    return found


def read_standing(job_id: str) -> Talk[Standing]:
    """Where one job stands.

    Raises:
        JobNotFound: no such job.
    """
    found = yield from read_standings([job_id])
    if job_id not in found:
        raise JobNotFound(f"no job {job_id}: it was never queued here, or its result has expired")
    return found[job_id]


def _place_command(lane: Lane, job_id: str) -> Command:
    return ("LPOS", f"rq:queue:{queue_name(lane)}", job_id, "MAXLEN", PLACES_COUNTED)


def _standing(job_id: str, said: dict[str, str], places: Sequence[Any], now: float) -> Standing:
    origin = said["origin"].removeprefix(QUEUE_PREFIX)
    place = next((int(at) + 1 for at in places if isinstance(at, int)), None)
    return Standing(
        id=job_id,
        status=said["status"],
        lane=Lane(origin) if origin in set(Lane) else None,
        place=place,
        waited_s=max(0.0, now - number(said["first_enqueued"], now)),
        deadline_s=number(said["deadline_at"], now) - now if said["deadline_at"] else None,
        deliveries=int(number(said["deliveries"])),
        attempts=int(number(said["attempts"])),
        defers=int(number(said["defers"])),
        **{key: said[key] for key in ("defer_reason", "node", "outcome", "error_code", "error")},
    )


def why_waiting(job: Standing, fleet: Fleet) -> str:
    """One line: the status, and what stands between the job and its answer."""
    if job.status == "started":
        return f"running on node {job.node}" if job.node else "running"
    if job.status == "scheduled":
        failed = f" after {job.error_code}" if job.error_code else ""
        return f"waits for try {job.attempts + 1}{failed}; {_what_holds(job, fleet)}"
    if job.status != "queued":
        return job.status
    place = f" (place {job.place})" if job.place else ""
    back = f"; put back {job.defers} times" if job.defers else ""
    return f"queued{place}; {_what_holds(job, fleet)}{back}"


def _what_holds(job: Standing, fleet: Fleet) -> str:
    live = [node for node in fleet.nodes if node.is_up]
    if not live:
        gone = max(fleet.nodes, key=lambda node: node.seen_at, default=None)
        last = f" (node {gone.name} was last seen {fleet.now - gone.seen_at:.0f} s ago)" if gone else ""
        return f"no node is up{last}"
    open_ones = [node for node in live if node.takes(job.lane)]
    if open_ones:
        others = f" and {len(open_ones) - 1} more" if len(open_ones) > 1 else ""
        return f"node {open_ones[0].name}{others} at work"
    return "; ".join(_told(live, job))


def _told(nodes: Sequence[Node], job: Standing) -> list[str]:
    lines = [_closed(node, job) for node in nodes[:NODES_NAMED]]
    return lines + ([f"and {len(nodes) - NODES_NAMED} more nodes"] if len(nodes) > NODES_NAMED else [])


def _closed(node: Node, job: Standing) -> str:
    """E.g. "node studio-3 paused: thermal serious (scripted)"."""
    doing = node.state if not node.lanes or node.state == "draining" else f"closed for {job.lane}"
    return f"node {node.name} {doing}" + (f": {node.reason}" if node.reason else "")
