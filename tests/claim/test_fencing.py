"""Who may write about a job, when several workers believe that they hold it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis
from rq.job import Job as RQJob
from rq.serializers import JSONSerializer

from coolhead.policy import Lane
from coolhead_worker.claim.desk import ClaimDesk
from coolhead_worker.claim.settlement import Claimed, Released, Settled, Succeeded
from tests.claim.cases import CASES, Case
from tests.claim.jobs import answers, end_lease, field, put, results, waiting

pytestmark = pytest.mark.server


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_settlement_sent_twice_is_written_once(
    case: Case, desk: ClaimDesk, connection: redis.Redis
) -> None:
    put(connection, "job")
    (claimed,) = desk.claim([Lane.INTERACTIVE], 1).claimed
    settlement = case.settle(claimed)
    desk.settle([settlement])
    before = {key: connection.dump(key) for key in sorted(connection.keys())}
    assert desk.settle([settlement]) == [Settled.SETTLED]
    assert {key: connection.dump(key) for key in sorted(connection.keys())} == before


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_worker_whose_lease_was_taken_away_writes_nothing(
    case: Case, desks: Callable[..., ClaimDesk], connection: redis.Redis
) -> None:
    slow, quick = desks("mac-1"), desks("mac-2")
    put(connection, "job")
    (late,) = slow.claim([Lane.INTERACTIVE], 1).claimed
    end_lease(connection, late)
    assert quick.reap().recovered == 1
    (again,) = quick.claim([Lane.INTERACTIVE], 1).claimed
    assert (again.job_id, again.deliveries) == ("job", 2)
    before = {key: connection.dump(key) for key in sorted(connection.keys())}
    assert slow.renew([late]) == {late.execution_id}
    assert slow.settle([case.settle(late)]) == [Settled.LOST]
    assert {key: connection.dump(key) for key in sorted(connection.keys())} == before
    assert quick.settle([Succeeded(again, {"from": "quick"})]) == [Settled.SETTLED]
    assert slow.settle([Succeeded(late, {"from": "slow"})]) == [Settled.LOST]
    assert answers(connection, "job") == [{"from": "quick"}]


def test_a_late_worker_may_settle_while_nobody_has_taken_the_job(
    desk: ClaimDesk, connection: redis.Redis
) -> None:
    put(connection, "job")
    (claimed,) = desk.claim([Lane.INTERACTIVE], 1).claimed
    end_lease(connection, claimed)
    assert desk.settle([Succeeded(claimed, {})]) == [Settled.SETTLED]
    assert desk.reap().recovered == 0


def test_a_deleted_job_is_gone_and_stays_gone(desk: ClaimDesk, connection: redis.Redis) -> None:
    put(connection, "job")
    (claimed,) = desk.claim([Lane.INTERACTIVE], 1).claimed
    connection.delete("rq:job:job")
    assert desk.renew([claimed]) == {claimed.execution_id}
    assert desk.settle([Succeeded(claimed, {})]) == [Settled.GONE]
    assert [key for key in connection.keys("*") if b"job" in key] == []


def test_a_job_canceled_while_it_runs_stays_canceled(desk: ClaimDesk, connection: redis.Redis) -> None:
    put(connection, "job")
    (claimed,) = desk.claim([Lane.INTERACTIVE], 1).claimed
    RQJob.fetch("job", connection=connection, serializer=JSONSerializer).cancel()
    assert desk.settle([Released(claimed, "hot")]) == [Settled.LOST]
    end_lease(connection, claimed)
    assert desk.reap().recovered == 0
    assert field(connection, "job", "status") == "canceled"
    assert waiting(connection) == []


TAKEN_AWAY: dict[str, Callable[[redis.Redis, Claimed], object]] = {
    "a stock cleanup dropped the execution": lambda connection, claimed: connection.delete(
        "rq:wip:coolhead-interactive"
    ),
    "a reap dropped the lease": lambda connection, claimed: connection.delete(
        "rq:lease:coolhead-interactive"
    ),
    "somebody changed the status": lambda connection, claimed: connection.hset(
        "rq:job:job", "status", "canceled"
    ),
}


@pytest.mark.parametrize("how", TAKEN_AWAY)
def test_each_sign_of_a_lease_taken_away_is_enough(
    how: str, desk: ClaimDesk, connection: redis.Redis
) -> None:
    put(connection, "job")
    (claimed,) = desk.claim([Lane.INTERACTIVE], 1).claimed
    TAKEN_AWAY[how](connection, claimed)
    before = connection.hgetall("rq:job:job")
    assert desk.settle([Succeeded(claimed, {})]) == [Settled.LOST]
    assert connection.hgetall("rq:job:job") == before
    assert results(connection, "job") == []
