"""What each settlement leaves behind."""

from __future__ import annotations

import pytest
import redis
from rq.job import Job as RQJob
from rq.serializers import JSONSerializer

from coolhead.answers import Outcome
from coolhead.job import queue_name
from coolhead.policy import Lane
from coolhead_worker.claim.desk import ClaimDesk
from coolhead_worker.claim.settlement import (
    Claimed,
    Failed,
    Released,
    Retried,
    Settled,
    Succeeded,
)
from tests.claim.cases import CASES, Case
from tests.claim.jobs import end_lease, field, places, put, results, waiting

pytestmark = pytest.mark.server


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_settlement_moves_the_job_to_its_one_place(
    case: Case, desk: ClaimDesk, connection: redis.Redis
) -> None:
    put(connection, "job", lane=Lane.BULK, deadline_s=1000)
    (claimed,) = desk.claim([Lane.BULK], 1).claimed
    assert desk.settle([case.settle(claimed)]) == [Settled.SETTLED]
    assert places(connection, "job", Lane.BULK) == [case.place]
    assert {name: field(connection, "job", name) for name in case.fields} == case.fields
    assert [(entry["type"], entry["outcome"]) for entry in results(connection, "job")] == case.stream
    assert connection.ttl("rq:job:job") == pytest.approx(case.ttl_s, abs=1)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_settlement_leaves_no_trace_of_the_execution(
    case: Case, desk: ClaimDesk, connection: redis.Redis
) -> None:
    put(connection, "job")
    (claimed,) = desk.claim([Lane.INTERACTIVE], 1).claimed
    desk.settle([case.settle(claimed)])
    assert connection.keys("rq:execution*") == []
    assert connection.keys("rq:wip:*") == connection.keys("rq:lease:*") == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_deadline_is_watched_only_while_the_job_waits(
    case: Case, desk: ClaimDesk, connection: redis.Redis
) -> None:
    put(connection, "job", deadline_s=1000)
    watched = f"rq:deadline:{queue_name(Lane.INTERACTIVE)}"
    at = connection.zscore(watched, "job")
    (claimed,) = desk.claim([Lane.INTERACTIVE], 1).claimed
    assert connection.zscore(watched, "job") is None
    desk.settle([case.settle(claimed)])
    waits = case.place in ("queue", "scheduled")
    assert connection.zscore(watched, "job") == (pytest.approx(at, abs=1e-3) if waits else None)


def test_a_job_does_not_vanish_while_it_runs(desk: ClaimDesk, connection: redis.Redis) -> None:
    put(connection, "job")
    connection.expire("rq:job:job", 100)
    (claimed,) = desk.claim([Lane.INTERACTIVE], 1).claimed
    assert connection.ttl("rq:job:job") == -1
    desk.settle([Succeeded(claimed, {})])
    assert 0 < connection.ttl("rq:job:job") <= 60


def test_settlements_of_many_kinds_are_answered_in_the_order_given(
    desk: ClaimDesk, connection: redis.Redis
) -> None:
    put(connection, "a", "b", "c", "d", "e")
    a, b, c, d, e = desk.claim([Lane.INTERACTIVE], 5).claimed
    connection.delete("rq:job:c")
    end_lease(connection, b)
    desk.reap()
    settlements = [
        Released(e, "hot"),
        Succeeded(b, {}),
        Released(a, "hot"),
        Failed(c, Outcome.PERMANENT, "X", "x"),
        Succeeded(d, {"n": 1}),
    ]
    assert desk.settle(settlements) == ["settled", "lost", "settled", "gone", "settled"]
    assert waiting(connection) == ["a", "e", "b"]


def test_no_settlements_are_no_round_trip(desk: ClaimDesk, connection: redis.Redis) -> None:
    before = connection.info("stats")["total_commands_processed"]
    assert desk.settle([]) == []
    assert desk.renew([]) == set()
    assert connection.info("stats")["total_commands_processed"] == before + 1  # the first INFO itself


def test_a_result_that_is_not_json_writes_nothing(desk: ClaimDesk, connection: redis.Redis) -> None:
    put(connection, "a", "b")
    a, b = desk.claim([Lane.INTERACTIVE], 2).claimed
    with pytest.raises(ValueError, match="JSON"):
        desk.settle([Succeeded(a, {}), Succeeded(b, {"p": float("nan")})])
    assert places(connection, "a") == places(connection, "b") == ["lease"]


@pytest.mark.parametrize("ttl", [0, -1])
def test_the_time_to_live_of_a_result_is_the_jobs_own(
    ttl: int, desk: ClaimDesk, connection: redis.Redis
) -> None:
    put(connection, "good", "bad", result_ttl=ttl, failure_ttl=ttl)
    good, bad = desk.claim([Lane.INTERACTIVE], 2).claimed
    assert (good.result_ttl_s, good.failure_ttl_s) == (ttl, ttl)
    desk.settle([Succeeded(good, {}), Failed(bad, Outcome.REJECTED, "X", "x")])
    kept = {key for key in connection.keys("rq:job:*") if connection.ttl(key) == -1}
    assert kept == (set() if ttl == 0 else {b"rq:job:good", b"rq:job:bad"})
    if ttl == -1:
        assert connection.ttl("rq:results:good") == connection.ttl("rq:results:bad") == -1
        assert connection.zscore("rq:finished:coolhead-interactive", "good") == float("inf")


@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.TRANSIENT, Outcome.UNAVAILABLE])
def test_a_failure_has_a_final_outcome(outcome: Outcome) -> None:
    with pytest.raises(ValueError, match=outcome.value):
        Failed(SOME, outcome, "X", "x")


@pytest.mark.parametrize("delay", [-0.1, float("nan"), float("inf")])
def test_a_delay_is_a_number_of_seconds(delay: float) -> None:
    with pytest.raises(ValueError, match="delay"):
        Retried(SOME, delay, "X", "x")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("two\nlines\t", "two lines"),
        ("é" * 5000, "é" * 1000),
        ("lone \ud800 surrogate", "lone ? surrogate"),
        ("한국어 🙂 \x00", "한국어 🙂 \x00"),
    ],
)
def test_an_error_text_is_one_bounded_line(
    text: str, kept: str, desk: ClaimDesk, connection: redis.Redis
) -> None:
    put(connection, "job")
    (claimed,) = desk.claim([Lane.INTERACTIVE], 1).claimed
    desk.settle([Failed(claimed, Outcome.PERMANENT, "X", text)])
    assert field(connection, "job", "error") == results(connection, "job")[0]["error"] == kept
    stock = RQJob.fetch("job", connection=connection, serializer=JSONSerializer).latest_result()
    assert stock is not None
    assert stock.exc_string == f"X: {kept}"


SOME = Claimed(Lane.BULK, "job", "ex", b"", 1, 0, 0, 0.0, 0.0, 60, 60)
