"""Someone who settles: takes queued jobs and writes results as a node would, per the layout of RQ."""

from __future__ import annotations

import base64
import json
import threading
import zlib
from typing import Any

import redis

from coolhead.errors import CoolheadError
from coolhead.fleet import Node
from coolhead.job import Job, queue_name
from coolhead.policy import Lane
from coolhead.task import TaskBook
from coolhead.testing import Answerer, decision_for, failed_fields, uniform


def write_success(connection: redis.Redis, job_id: str, value: Any, ttl_s: int = 60) -> None:
    """What `settle` writes for an answer."""
    fields = {
        "type": 1,
        "return_value": base64.b64encode(json.dumps(value).encode()),
        "outcome": "succeeded",
    }
    _write(connection, job_id, "finished", {"outcome": "succeeded"}, fields, ttl_s)


def write_failure(connection: redis.Redis, job_id: str, said: dict[str, str], ttl_s: int = 60) -> None:
    """What `settle` writes for an error."""
    text = base64.b64encode(zlib.compress(f"{said['error_code']}: {said['error']}".encode()))
    _write(connection, job_id, "failed", said, {"type": 2, "exc_string": text, **said}, ttl_s)


def write_retry(connection: redis.Redis, job_id: str, code: str) -> None:
    """What `settle` writes for a try that will be repeated."""
    said = {"outcome": "transient", "error_code": code, "error": "the model call failed"}
    connection.xadd(f"rq:results:{job_id}", {"type": 4, **said})
    connection.hset(
        f"rq:job:{job_id}", mapping={"status": "scheduled", "attempts": 1, "error_code": code, "error": "x"}
    )


def _write(
    connection: redis.Redis,
    job_id: str,
    status: str,
    of_hash: dict[str, str],
    of_stream: dict[str, Any],
    ttl_s: int,
) -> None:
    with connection.pipeline() as pipe:
        pipe.hset(f"rq:job:{job_id}", mapping={"status": status, **of_hash})
        pipe.xadd(f"rq:results:{job_id}", of_stream)
        pipe.expire(f"rq:job:{job_id}", ttl_s)
        pipe.expire(f"rq:results:{job_id}", ttl_s)
        pipe.execute()


def write_node(connection: redis.Redis, node: Node) -> None:
    """What a node shows of itself; one that is gone has only its place in the list."""
    seconds, micros = connection.time()
    connection.zadd("coolhead:nodes", {node.name: node.seen_at or seconds + micros / 1e6})
    if node.is_up:
        fields = {name: getattr(node, name) for name in ("state", "reason", "thermal", "source", "since")}
        connection.hset(
            f"coolhead:node:{node.name}",
            mapping={"node": node.name, **fields, "lanes": ",".join(node.lanes)},
        )


class Settler(threading.Thread):
    """Takes jobs and settles them with `answer`; those it does not answer it keeps for later."""

    def __init__(self, connection: redis.Redis, tasks: TaskBook | None = None) -> None:
        super().__init__(daemon=True)
        self.answer: Answerer = uniform
        self.seen: list[Job] = []
        self._connection = connection
        self._tasks = tasks or TaskBook()
        self._stopping = threading.Event()
        self._changed = threading.Lock()
        self._kept: list[Job] = []
        self._holding = False

    def answer_with(self, answer: Answerer) -> None:
        """From now on, and for all jobs that were kept."""
        with self._changed:
            self.answer = answer
            kept, self._kept = self._kept, []
            for job in kept:
                self._settle(job)

    def run(self) -> None:
        while not self._stopping.is_set():
            self._connection.blpop(["coolhead:wake"], timeout=0.2)
            with self._changed:
                self._take_all()

    def hold(self) -> None:
        """Leave queued jobs where they are."""
        with self._changed:
            self._holding = True

    def let_go(self) -> None:
        """Go on with what has been queued in the meantime."""
        with self._changed:
            self._holding = False
            self._take_all()

    def _take_all(self) -> None:
        if self._holding:
            return
        for lane in Lane:
            while job_id := self._connection.lpop(f"rq:queue:{queue_name(lane)}"):
                data = self._connection.hget(f"rq:job:{job_id.decode()}", "data")
                job = Job.decode(data)
                self.seen.append(job)
                self._settle(job)

    def _settle(self, job: Job) -> None:
        try:
            said = self.answer(job)
            if said is None:
                self._kept.append(job)
            else:
                write_success(self._connection, job.id, decision_for(job, said, self._tasks).wire())
        except CoolheadError as error:
            write_failure(self._connection, job.id, failed_fields(error))

    def stop(self) -> None:
        """End the thread and close its connection."""
        self._stopping.set()
        self._connection.rpush("coolhead:wake", "1")
        self.join(10)
        self._connection.close()
