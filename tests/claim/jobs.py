"""Puts jobs into queues with plain commands, and looks at where they are.

The layout is RQ's, with the fields and keys of ours that a producer writes.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from typing import Any

import redis

from coolhead.job import Job, queue_name
from coolhead.policy import Lane
from coolhead_worker.claim.settlement import Claimed

QUESTIONS = {"refund": {"type": "noul", "instructions": "Does the writer ask for a refund?"}}


def server_time(connection: redis.Redis) -> float:
    seconds, micros = connection.time()
    return seconds + micros / 1e6


def put(
    connection: redis.Redis,
    *job_ids: str,
    lane: Lane = Lane.INTERACTIVE,
    deadline_s: float | None = None,
    result_ttl: int = 60,
    failure_ttl: int = 3600,
) -> None:
    """Queue jobs, first one first; a negative deadline has passed already."""
    queue, now = queue_name(lane), server_time(connection)
    for job_id in job_ids:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(now))
        fields: dict[str, Any] = {
            "status": "queued", "created_at": stamp, "enqueued_at": stamp, "origin": queue,
            "data": Job.make("I want my money back.", questions=QUESTIONS, job_id=job_id).encode(),
            "description": "coolhead inline", "timeout": 180, "result_ttl": result_ttl,
            "failure_ttl": failure_ttl, "started_at": "", "ended_at": "", "worker_name": "",
            "first_enqueued": f"{now:.6f}", "deliveries": 0, "attempts": 0, "defers": 0,
        }  # fmt: skip
        if deadline_s is not None:
            fields["deadline_at"] = f"{now + deadline_s:.6f}"
            connection.zadd(f"rq:deadline:{queue}", {job_id: now + deadline_s})
        connection.hset(f"rq:job:{job_id}", mapping=fields)
        connection.sadd("rq:queues", f"rq:queue:{queue}")
        connection.rpush(f"rq:queue:{queue}", job_id)
        connection.rpush("coolhead:wake", "1")
        connection.ltrim("coolhead:wake", -64, -1)


def waiting(connection: redis.Redis, lane: Lane = Lane.INTERACTIVE) -> list[str]:
    """The ids in the queue, front first."""
    return [job_id.decode() for job_id in connection.lrange(f"rq:queue:{queue_name(lane)}", 0, -1)]


def field(connection: redis.Redis, job_id: str, name: str) -> str:
    """A field of the job's hash, "" when absent."""
    return (connection.hget(f"rq:job:{job_id}", name) or b"").decode()


def results(connection: redis.Redis, job_id: str) -> list[dict[str, str]]:
    """The entries of the result stream, oldest first."""
    entries = connection.xrange(f"rq:results:{job_id}")
    return [{key.decode(): value.decode() for key, value in said.items()} for _, said in entries]


def answers(connection: redis.Redis, job_id: str) -> list[Any]:
    """The values of all successes in the result stream."""
    said = [entry for entry in results(connection, job_id) if entry["type"] == "1"]
    return [json.loads(base64.b64decode(entry["return_value"])) for entry in said]


def places(connection: redis.Redis, job_id: str, lane: Lane = Lane.INTERACTIVE) -> list[str]:
    """Every place that gives the job a future or an end: there must be exactly one."""
    queue, ends = queue_name(lane), ("scheduled", "finished", "failed")
    asked = connection.pipeline(transaction=True)
    asked.lrange(f"rq:queue:{queue}", 0, -1)
    asked.zrange(f"rq:lease:{queue}", 0, -1)
    for name in ends:
        asked.zscore(f"rq:{name}:{queue}", job_id)
    queued, leases, *scores = asked.execute()
    found = ["queue"] * queued.count(job_id.encode())
    found += ["lease" for member in leases if member.decode().rpartition(":")[0] == job_id]
    found += [name for name, score in zip(ends, scores, strict=True) if score is not None]
    return found


def end_lease(connection: redis.Redis, claimed: Claimed) -> None:
    """Let the lease of a job be over now, as if its worker had died long ago."""
    address = claimed.address()
    connection.zadd(f"rq:lease:{address['q']}", {f"{address['id']}:{address['ex']}": 1.0}, xx=True)


def until(condition: Callable[[], Any], timeout_s: float = 10.0) -> Any:
    """Poll until the condition holds; returns what it returned."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.01)
