"""Jobs whose time is over, and jobs that end their workers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis
from rq.job import Job as RQJob
from rq.registry import FailedJobRegistry
from rq.results import Result
from rq.serializers import JSONSerializer

from coolhead.job import queue_name
from coolhead.policy import Lane
from coolhead_worker.claim.desk import ClaimDesk, Claims
from coolhead_worker.claim.settlement import Released, Retried, Settled, Succeeded
from tests.claim.jobs import answers, end_lease, field, places, put, results, waiting

pytestmark = pytest.mark.server
BOTH = (Lane.INTERACTIVE, Lane.BULK)
DEADLINES = "rq:deadline:coolhead-interactive"


def pass_deadline(connection: redis.Redis, job_id: str) -> None:
    connection.hset(f"rq:job:{job_id}", "deadline_at", "1.0")
    connection.zadd(DEADLINES, {job_id: 1.0}, xx=True)


def stock(connection: redis.Redis, job_id: str) -> RQJob:
    return RQJob.fetch(job_id, connection=connection, serializer=JSONSerializer)


def test_a_claim_expires_what_is_too_late_and_takes_what_is_not(
    desk: ClaimDesk, connection: redis.Redis
) -> None:
    put(connection, "late", deadline_s=-0.5)
    put(connection, "in-time", deadline_s=1000)
    put(connection, "patient")
    claims = desk.claim(BOTH, 2)
    assert [claimed.job_id for claimed in claims.claimed] == ["in-time", "patient"]
    ((lane, waited_s),) = claims.expired
    assert lane is Lane.INTERACTIVE
    assert 0.0 <= waited_s < 5.0
    assert places(connection, "late") == ["failed"]
    assert connection.exists(DEADLINES) == 0


def test_a_reap_expires_what_no_claim_looks_at(desk: ClaimDesk, connection: redis.Redis) -> None:
    put(connection, "first")
    put(connection, "late", deadline_s=-0.5)
    put(connection, "last", deadline_s=1000)
    reaped = desk.reap()
    assert (reaped.expired, [lane for lane, _ in reaped.expired_jobs]) == (1, [Lane.INTERACTIVE])
    assert waiting(connection) == ["first", "last"]
    assert places(connection, "late") == ["failed"]
    assert connection.zrange(DEADLINES, 0, -1) == [b"last"]


def test_an_expired_job_says_how_long_it_waited_and_why(desk: ClaimDesk, connection: redis.Redis) -> None:
    put(connection, "job", deadline_s=1000)
    (claimed,) = desk.claim(BOTH, 1).claimed
    desk.settle([Released(claimed, "thermal serious (scripted)")])
    connection.hset("rq:job:job", "first_enqueued", claimed.first_enqueued - 12.34)
    pass_deadline(connection, "job")
    ((_, waited_s),) = desk.claim(BOTH, 1).expired
    assert waited_s == pytest.approx(12.34, abs=2.0)
    error = field(connection, "job", "error")
    assert (
        error == f"waited {waited_s:.1f} s, past its deadline; last put back for: thermal serious (scripted)"
    )
    (entry,) = results(connection, "job")
    assert (entry["type"], entry["outcome"], entry["error_code"]) == ("2", "expired", "JobExpired")
    assert entry["error"] == error
    latest = stock(connection, "job").latest_result()
    assert latest is not None
    assert (latest.type, latest.exc_string) == (Result.Type.FAILED, f"JobExpired: {error}")
    registry = FailedJobRegistry(queue_name(Lane.INTERACTIVE), connection)
    assert registry.get_job_ids(cleanup=False) == ["job"]


def test_an_expired_job_names_the_error_of_its_last_try(desk: ClaimDesk, connection: redis.Redis) -> None:
    put(connection, "job", deadline_s=1000)
    (claimed,) = desk.claim(BOTH, 1).claimed
    desk.settle([Retried(claimed, 100.0, "DecodeTimeout", "30 s")])
    pass_deadline(connection, "job")
    assert desk.reap().expired == 1
    assert field(connection, "job", "error").endswith("; last try failed with DecodeTimeout")
    assert places(connection, "job") == ["failed"]


def test_an_expired_job_that_nobody_touched_says_so(desk: ClaimDesk, connection: redis.Redis) -> None:
    put(connection, "job", deadline_s=-1)
    desk.reap()
    assert field(connection, "job", "error").endswith("past its deadline; no node took it")


def test_a_running_job_outlives_its_deadline_and_a_released_one_does_not(
    desk: ClaimDesk, connection: redis.Redis
) -> None:
    put(connection, "runs", "returns", deadline_s=1000)
    runs, returns = desk.claim(BOTH, 2).claimed
    connection.hset("rq:job:runs", "deadline_at", "1.0")
    connection.hset("rq:job:returns", "deadline_at", "1.0")
    assert desk.reap().expired == 0
    assert desk.settle([Succeeded(runs, {}), Released(returns, "hot")]) == [Settled.SETTLED] * 2
    assert desk.reap().expired == 1
    assert (places(connection, "runs"), places(connection, "returns")) == (["finished"], ["failed"])


def test_a_retry_that_is_due_after_its_deadline_never_runs(desk: ClaimDesk, connection: redis.Redis) -> None:
    put(connection, "job", deadline_s=1000)
    (claimed,) = desk.claim(BOTH, 1).claimed
    desk.settle([Retried(claimed, 100.0, "DecodeFailed", "rc")])
    connection.zadd("rq:scheduled:coolhead-interactive", {"job": 1.0})
    pass_deadline(connection, "job")
    reaped = desk.reap()
    assert (reaped.expired, reaped.promoted) == (1, 0)
    assert desk.claim(BOTH, 1) == Claims()


def die(desk: ClaimDesk, connection: redis.Redis, limit: int = 10) -> list[str]:
    """Claim, and die with the batch in hand; another pass brings it back."""
    batch = desk.claim(BOTH, limit).claimed
    for claimed in batch:
        end_lease(connection, claimed)
    return [claimed.job_id for claimed in batch]


def test_a_job_that_ends_its_workers_is_set_aside_and_its_neighbours_live(
    desk: ClaimDesk, connection: redis.Redis
) -> None:
    put(connection, "a", "poison", "b")
    batches = []
    for _ in range(20):
        claims = desk.claim(BOTH, 10)
        batch = [claimed.job_id for claimed in claims.claimed]
        batches.append(batch)
        for claimed in claims.claimed:
            if "poison" in batch:
                end_lease(connection, claimed)
            else:
                desk.settle([Succeeded(claimed, {"job": claimed.job_id})])
        reaped = desk.reap()
        if not batch and not reaped.recovered:
            break
    assert batches == [["a", "poison", "b"], ["a", "poison", "b"], ["a"], ["poison"], ["b"], []]
    assert [answers(connection, job_id) for job_id in "ab"] == [[{"job": "a"}], [{"job": "b"}]]
    assert places(connection, "poison") == ["failed"]
    assert connection.zrange("rq:quarantine:coolhead-interactive", 0, -1) == [b"poison"]


def test_a_quarantined_job_says_what_happened_and_on_which_worker(
    desk: ClaimDesk, connection: redis.Redis
) -> None:
    put(connection, "poison")
    for _ in range(3):
        assert die(desk, connection) == ["poison"]
        reaped = desk.reap()
    assert reaped.quarantined_lanes == (Lane.INTERACTIVE,)
    (entry,) = results(connection, "poison")
    assert (entry["type"], entry["outcome"], entry["error_code"]) == ("2", "quarantined", "JobQuarantined")
    said = "given out 3 times, and its worker ended each time; the last was mac-1-0a1b"
    assert entry["error"] == field(connection, "poison", "error") == said


def test_a_suspect_behind_others_waits_for_its_own_batch(desk: ClaimDesk, connection: redis.Redis) -> None:
    put(connection, "a", "suspect", "b")
    put(connection, "c", lane=Lane.BULK)
    connection.hset("rq:job:suspect", "deliveries", 2)
    batches = [[claimed.job_id for claimed in desk.claim(BOTH, 10).claimed] for _ in range(4)]
    assert batches == [["a"], ["suspect"], ["b", "c"], []]


def test_a_suspect_in_the_next_lane_ends_the_batch_too(desk: ClaimDesk, connection: redis.Redis) -> None:
    put(connection, "a")
    put(connection, "suspect", "b", lane=Lane.BULK)
    connection.hset("rq:job:suspect", "deliveries", 2)
    batches = [[claimed.job_id for claimed in desk.claim(BOTH, 10).claimed] for _ in range(3)]
    assert batches == [["a"], ["suspect"], ["b"]]


def test_a_claim_quarantines_what_was_given_out_too_often(
    desks: Callable[..., ClaimDesk], connection: redis.Redis
) -> None:
    put(connection, "poison", "a")
    connection.hset("rq:job:poison", "deliveries", 3)
    claims = desks().claim(BOTH, 10)
    assert [claimed.job_id for claimed in claims.claimed] == ["a"]
    assert claims.quarantined == (Lane.INTERACTIVE,)
    assert places(connection, "poison") == ["failed"]


def test_put_backs_and_retries_never_lead_to_quarantine(desk: ClaimDesk, connection: redis.Redis) -> None:
    put(connection, "job")
    for turn in range(10):
        (claimed,) = desk.claim(BOTH, 1).claimed
        assert (claimed.deliveries, claimed.attempts, claimed.defers) == (1, turn // 2, (turn + 1) // 2)
        again = Retried(claimed, 0.0, "DecodeFailed", "rc") if turn % 2 else Released(claimed, "hot")
        desk.settle([again])


def test_a_requeued_job_starts_afresh(desk: ClaimDesk, connection: redis.Redis) -> None:
    put(connection, "job", deadline_s=-1)
    connection.hset("rq:job:job", mapping={"attempts": 4, "defers": 7, "defer_reason": "hot"})
    connection.zadd("rq:quarantine:coolhead-interactive", {"job": 1.0})
    assert desk.reap().expired == 1
    registry = FailedJobRegistry(queue_name(Lane.INTERACTIVE), connection, serializer=JSONSerializer)
    registry.requeue("job")
    (claimed,) = desk.claim(BOTH, 1).claimed
    assert (claimed.deliveries, claimed.attempts, claimed.defers) == (1, 0, 0)
    assert connection.zcard("rq:quarantine:coolhead-interactive") == 0
    assert desk.settle([Succeeded(claimed, {"n": 1})]) == [Settled.SETTLED]
    assert places(connection, "job") == ["finished"]
    assert stock(connection, "job").return_value() == {"n": 1}
