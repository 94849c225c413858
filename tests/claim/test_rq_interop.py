"""Stock RQ on the same server: its tools read our jobs, and its workers do no harm."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis
from rq import Queue
from rq.job import Job as RQJob
from rq.job import JobStatus
from rq.registry import FailedJobRegistry, FinishedJobRegistry, ScheduledJobRegistry, StartedJobRegistry
from rq.results import Result
from rq.serializers import JSONSerializer

from coolhead.answers import Outcome
from coolhead.job import FUNCTION, queue_name
from coolhead.policy import Lane
from coolhead_worker.claim.desk import ClaimDesk
from coolhead_worker.claim.presence import Presence, worker_name
from coolhead_worker.claim.settlement import Failed, Retried, Settled, Succeeded
from tests.claim.jobs import field, put, waiting
from tests.claim.test_presence import status

pytestmark = pytest.mark.server
BOTH = (Lane.INTERACTIVE, Lane.BULK)
NAME = queue_name(Lane.INTERACTIVE)


def run_rq(*arguments: str) -> str:
    rq = Path(sys.executable).with_name("rq")
    done = subprocess.run([rq, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def fetch(connection: redis.Redis, job_id: str) -> RQJob:
    return RQJob.fetch(job_id, connection=connection, serializer=JSONSerializer)


def test_rq_reads_a_job_through_its_whole_life(desk: ClaimDesk, connection: redis.Redis) -> None:
    put(connection, "job")
    assert fetch(connection, "job").get_status() == JobStatus.QUEUED
    assert fetch(connection, "job").func_name == FUNCTION
    (claimed,) = desk.claim(BOTH, 1).claimed
    running = fetch(connection, "job")
    assert (running.get_status(), running.worker_name) == (JobStatus.STARTED, "mac-1-0a1b")
    (execution,) = running.get_executions()
    assert (execution.id, execution.job_id) == (claimed.execution_id, "job")
    assert execution.created_at.timestamp() == pytest.approx(claimed.claimed_at, abs=1e-3)
    desk.settle([Succeeded(claimed, {"answers": {"refund": {"noul": 0.9}}})])
    ended = fetch(connection, "job")
    assert ended.get_status() == JobStatus.FINISHED
    assert ended.return_value() == {"answers": {"refund": {"noul": 0.9}}}
    assert ended.started_at is not None
    assert ended.ended_at is not None
    assert ended.ended_at >= ended.started_at
    latest = ended.latest_result()
    assert latest is not None
    assert (latest.type, latest.worker_name) == (Result.Type.SUCCESSFUL, "mac-1-0a1b")
    assert latest.execution_id == claimed.execution_id


def test_rqs_registries_know_where_each_job_is(desk: ClaimDesk, connection: redis.Redis) -> None:
    put(connection, "good", "bad", "later", "runs", "waits")
    good, bad, later, _ = desk.claim(BOTH, 4).claimed
    settlements = [
        Succeeded(good, {}),
        Failed(bad, Outcome.REJECTED, "JobRejected", "no"),
        Retried(later, 60.0, "DecodeFailed", "rc"),
    ]
    desk.settle(settlements)
    registries: dict[Any, list[str]] = {
        FinishedJobRegistry: ["good"], FailedJobRegistry: ["bad"],
        ScheduledJobRegistry: ["later"], StartedJobRegistry: ["runs"],
    }  # fmt: skip
    for kind, expected in registries.items():
        assert kind(NAME, connection, serializer=JSONSerializer).get_job_ids(cleanup=False) == expected
    assert Queue(NAME, connection=connection, serializer=JSONSerializer).job_ids == ["waits"]
    kinds = [entry.type for entry in fetch(connection, "later").results()]
    assert kinds == [Result.Type.RETRIED]
    # RQ's own cleanup of everything must find nothing to do while leases stand.
    StartedJobRegistry(NAME, connection, serializer=JSONSerializer).cleanup()
    assert fetch(connection, "runs").get_status() == JobStatus.STARTED


def test_rq_info_shows_queues_and_workers(desk: ClaimDesk, connection: redis.Redis, valkey: Any) -> None:
    name = worker_name("mac-1")
    Presence(connection, node="mac-1", worker=name, lanes=BOTH).enter(status("busy"))
    put(connection, "a", "b", "c")
    put(connection, "slow", lane=Lane.BULK)
    a, b = desk.claim(BOTH, 2).claimed
    desk.settle([Succeeded(a, {})])
    said = run_rq("info", "--raw", "--url", valkey.url)
    assert f"queue {NAME} 1, 1 executing, 1 finished, 0 failed" in said
    assert "queue coolhead-bulk 1, 0 executing, 0 finished, 0 failed" in said
    assert f"worker {name} (" in said
    assert "busy coolhead-interactive, coolhead-bulk. jobs: 0 finished, 0 failed" in said
    assert desk.settle([Succeeded(b, {})]) == [Settled.SETTLED]


def run_stock_worker(url: str, *queues: str) -> str:
    return run_rq(
        "worker", "--burst", "--url", url, "--worker-class", "rq.SimpleWorker",
        "--serializer", "rq.serializers.JSONSerializer", *queues,
    )  # fmt: skip


def test_a_stock_worker_on_its_own_queue_is_not_disturbed(
    desk: ClaimDesk, connection: redis.Redis, valkey: Any
) -> None:
    put(connection, "ours")
    stock = Queue("reports", connection=connection, serializer=JSONSerializer).enqueue(
        "builtins.len", [1, 2, 3]
    )
    (claimed,) = desk.claim(BOTH, 1).claimed
    run_stock_worker(valkey.url, "reports")
    desk.reap()
    assert desk.settle([Succeeded(claimed, {"n": 1})]) == [Settled.SETTLED]
    assert fetch(connection, stock.id).return_value() == 3
    assert fetch(connection, "ours").return_value() == {"n": 1}


def test_a_stock_worker_on_our_queue_refuses_our_jobs_in_the_open(
    desk: ClaimDesk, connection: redis.Redis, valkey: Any
) -> None:
    put(connection, "runs", "taken")
    (claimed,) = desk.claim(BOTH, 1).claimed
    run_stock_worker(valkey.url, NAME)
    taken = fetch(connection, "taken")
    assert taken.get_status() == JobStatus.FAILED
    latest = taken.latest_result()
    assert latest is not None
    assert "FunctionRefused" in (latest.exc_string or "")
    assert desk.settle([Succeeded(claimed, {"n": 1})]) == [Settled.SETTLED]
    assert fetch(connection, "runs").return_value() == {"n": 1}


def test_a_job_put_in_by_stock_rq_is_claimed(desk: ClaimDesk, connection: redis.Redis) -> None:
    queue = Queue(NAME, connection=connection, serializer=JSONSerializer)
    stock = queue.enqueue(FUNCTION, {"v": 1}, result_ttl=30)
    (claimed,) = desk.claim(BOTH, 1).claimed
    assert (claimed.job_id, claimed.result_ttl_s, claimed.deliveries) == (stock.id, 30, 1)
    desk.settle([Succeeded(claimed, {"n": 1})])
    assert fetch(connection, stock.id).return_value() == {"n": 1}


def test_a_job_that_rq_requeues_runs_again(desk: ClaimDesk, connection: redis.Redis, valkey: Any) -> None:
    put(connection, "job")
    (claimed,) = desk.claim(BOTH, 1).claimed
    desk.settle([Failed(claimed, Outcome.PERMANENT, "StateTooLong", "9000 tokens")])
    run_rq("requeue", "--url", valkey.url, "--serializer", "rq.serializers.JSONSerializer",
           "--queue", NAME, "job")  # fmt: skip
    assert waiting(connection) == ["job"]
    (again,) = desk.claim(BOTH, 1).claimed
    desk.settle([Succeeded(again, {"n": 2})])
    assert fetch(connection, "job").return_value() == {"n": 2}
    assert field(connection, "job", "outcome") == "succeeded"
    assert connection.ttl("rq:job:job") > 0
