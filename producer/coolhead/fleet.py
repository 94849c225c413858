"""Which nodes there are, what each of them does and why, and how full the lanes are.

Guarantee: reading costs the same whatever the depth of a queue (lengths and the job in front,
nothing is scanned) and changes nothing: no registry of RQ is cleaned up by looking at it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from coolhead.conversation import Command, Talk, ask_strictly, number, text
from coolhead.job import queue_name
from coolhead.policy import Lane

NODES_READ = 200  #: the most recently seen ones

_TAKING = frozenset({"idle", "busy"})


@dataclass(frozen=True, slots=True)
class Node:
    """One node. `seen_at`, `since`: unix seconds; `lanes`: those it takes jobs from now.

    `state`: starting, idle, busy, paused, draining, or gone when it has not been heard of for 15 s.
    `reason`: one line, "" when both lanes are open.
    """

    name: str
    state: str
    reason: str = ""
    lanes: tuple[str, ...] = ()
    thermal: str = ""
    source: str = ""
    models: str = ""
    version: str = ""
    metrics: str = ""
    since: float = 0.0
    seen_at: float = 0.0

    @property
    def is_up(self) -> bool:
        """True when it has been heard of lately."""
        return self.state != "gone"

    def takes(self, lane: str | None) -> bool:
        """True when it takes jobs of that lane now."""
        return self.state in _TAKING and lane in self.lanes


@dataclass(frozen=True, slots=True)
class LaneDepth:
    """How many jobs of a lane are where; `oldest_s` is the age of the job in front, if any.

    `enqueued` counts all jobs that were ever queued, exactly.
    """

    lane: Lane
    queued: int = 0
    running: int = 0
    delayed: int = 0
    finished: int = 0
    failed: int = 0
    quarantined: int = 0
    enqueued: int = 0
    oldest_s: float | None = None


@dataclass(frozen=True, slots=True)
class Fleet:
    """All nodes and lanes at one moment; `now` is the server's clock, unix seconds."""

    now: float
    nodes: tuple[Node, ...]
    lanes: tuple[LaneDepth, ...]

    def wire(self) -> dict[str, Any]:
        """Plain data, version 1."""
        return {"version": 1, **asdict(self)}


def read_fleet() -> Talk[Fleet]:
    """The fleet, in two round trips."""
    time, names, *rest = yield from ask_strictly(
        ("TIME",),
        ("ZREVRANGE", "coolhead:nodes", 0, NODES_READ - 1, "WITHSCORES"),
        *(command for lane in Lane for command in _depth_commands(lane)),
    )
    now = int(time[0]) + int(time[1]) / 1e6
    per_lane = len(rest) // len(Lane)
    depths = [rest[index * per_lane : (index + 1) * per_lane] for index in range(len(Lane))]
    seen = _scores(names)
    firsts = [("HGET", f"rq:job:{text(depth[-1])}", "first_enqueued") for depth in depths]
    hashes = [("HGETALL", f"coolhead:node:{name}") for name in seen]
    replies = yield from ask_strictly(*firsts, *hashes)
    lanes = [_depth(*said, now) for said in zip(Lane, depths, replies[: len(Lane)], strict=True)]
    nodes = [_node(*said) for said in zip(seen, seen.values(), replies[len(Lane) :], strict=True)]
    return Fleet(now, tuple(sorted(nodes, key=lambda node: node.name)), tuple(lanes))


def _depth_commands(lane: Lane) -> list[Command]:
    queue = queue_name(lane)
    sets = ("wip", "scheduled", "finished", "failed", "quarantine")
    return [
        ("LLEN", f"rq:queue:{queue}"),
        *(("ZCARD", f"rq:{name}:{queue}") for name in sets),
        ("HGET", "coolhead:enqueued", lane.value),
        ("LINDEX", f"rq:queue:{queue}", 0),
    ]


def _depth(lane: Lane, said: Sequence[Any], first: bytes | str | None, now: float) -> LaneDepth:
    queued, running, delayed, finished, failed, quarantined, enqueued, _ = said
    oldest = max(0.0, now - number(first, now)) if first else None
    total = int(number(enqueued))
    return LaneDepth(lane, queued, running, delayed, finished, failed, quarantined, total, oldest)


def _scores(reply: Any) -> dict[str, float]:
    """Member -> score, from either form of the reply."""
    flat = [part for item in reply for part in (item if isinstance(item, list | tuple) else [item])]
    return {text(name): float(score) for name, score in zip(flat[::2], flat[1::2], strict=True)}


def _node(name: str, seen_at: float, said: Mapping[Any, Any]) -> Node:
    fields = {text(key): text(value) for key, value in said.items()}
    if not fields:
        return Node(name, "gone", seen_at=seen_at)
    plain = ("reason", "thermal", "source", "models", "version", "metrics")
    return Node(
        name,
        fields.get("state", "gone"),
        lanes=tuple(lane for lane in fields.get("lanes", "").split(",") if lane),
        since=number(fields.get("since")),
        seen_at=seen_at,
        **{key: fields.get(key, "") for key in plain},
    )
