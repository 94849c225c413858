"""What comes back after workers died: leases, retries, jobs a stock worker dropped."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from coolhead.policy import Lane
from coolhead_worker.claim.desk import ClaimDesk, Reaped
from coolhead_worker.claim.settlement import Retried, Succeeded
from tests.claim.jobs import end_lease, field, places, put, until, waiting

pytestmark = pytest.mark.server
BOTH = (Lane.INTERACTIVE, Lane.BULK)
LIST = "rq:queue:coolhead-interactive"
Desks = Callable[..., ClaimDesk]


def test_a_dead_workers_job_comes_back_when_its_lease_ends(desks: Desks, connection: redis.Redis) -> None:
    put(connection, "job", "next")
    desks("mac-1", lease_s=0.1).claim(BOTH, 1)
    other = desks("mac-2")
    assert other.reap() == Reaped()
    until(lambda: other.reap().recovered)
    assert waiting(connection) == ["job", "next"]
    assert connection.keys("rq:execution*") == connection.keys("rq:wip:*") == []
    assert other.wait(0)


def test_a_renewed_lease_outlives_its_first_end(desks: Desks, connection: redis.Redis) -> None:
    put(connection, "job", "other")
    worker = desks("mac-1", lease_s=30.0)
    job, other = worker.claim(BOTH, 2).claimed
    end_lease(connection, job)
    end_lease(connection, other)
    before = connection.time()[0]
    assert worker.renew([job]) == set()
    assert desks("mac-2").reap().recovered == 1
    assert (places(connection, "job"), waiting(connection)) == (["lease"], ["other"])
    member = f"job:{job.execution_id}"
    assert connection.zscore("rq:lease:coolhead-interactive", member) >= before + 30
    assert connection.zscore("rq:wip:coolhead-interactive", member) >= before + 630
    assert connection.pttl(f"rq:execution:{member}") > 600_000


def test_a_renewal_creates_nothing(desks: Desks, connection: redis.Redis) -> None:
    put(connection, "job")
    worker = desks("mac-1")
    (job,) = worker.claim(BOTH, 1).claimed
    end_lease(connection, job)
    desks("mac-2").reap()
    before = {key: connection.dump(key) for key in sorted(connection.keys())}
    assert worker.renew([job]) == {job.execution_id}
    assert {key: connection.dump(key) for key in sorted(connection.keys())} == before


def test_jobs_of_several_dead_workers_come_back_in_the_order_of_the_queue(
    desks: Desks, connection: redis.Redis
) -> None:
    put(connection, *"abcdefgh")
    first, second = desks("mac-1"), desks("mac-2")
    held = [*first.claim(BOTH, 2).claimed, *second.claim(BOTH, 3).claimed, *first.claim(BOTH, 1).claimed]
    first.renew(held[:2])  # lease ends no longer tell the order of claiming
    for claimed in reversed(held):
        end_lease(connection, claimed)
    assert desks("mac-3").reap().recovered == 6
    assert waiting(connection) == list("abcdefgh")


def test_more_dead_jobs_than_one_pass_takes_come_back_in_order(desks: Desks, connection: redis.Redis) -> None:
    names = [f"job-{n:03d}" for n in range(250)]
    put(connection, *names)
    worker, at = desks("mac-1"), 0.0
    for claimed in worker.claim(BOTH, 250).claimed:
        at += 1.0  # leases that end one after the other
        address = claimed.address()
        connection.zadd(f"rq:lease:{address['q']}", {f"{address['id']}:{address['ex']}": at})
    assert worker.reap().recovered == 200
    assert worker.reap().recovered == 50
    assert waiting(connection) == names


def test_a_retry_waits_its_time_and_then_goes_to_the_end(desk: ClaimDesk, connection: redis.Redis) -> None:
    put(connection, "job", "other")
    (claimed,) = desk.claim(BOTH, 1).claimed
    desk.settle([Retried(claimed, 0.1, "DecodeFailed", "rc")])
    connection.delete("coolhead:wake")
    assert desk.reap().promoted == 0
    assert places(connection, "job") == ["scheduled"]
    until(lambda: desk.reap().promoted)
    assert waiting(connection) == ["other", "job"]
    assert field(connection, "job", "status") == "queued"
    assert desk.wait(0)


def test_a_scheduled_id_whose_job_is_gone_is_dropped(desk: ClaimDesk, connection: redis.Redis) -> None:
    connection.zadd("rq:scheduled:coolhead-interactive", {"ghost": 1.0})
    assert desk.reap() == Reaped()
    assert connection.keys() == []


def test_a_fleet_reaps_once_in_its_time(desks: Desks, connection: redis.Redis) -> None:
    put(connection, "job")
    first, second = desks("mac-1", reap_every_s=0.3), desks("mac-2", reap_every_s=0.3)
    (claimed,) = first.claim(BOTH, 1).claimed
    assert first.reap() == Reaped()
    end_lease(connection, claimed)
    assert second.reap() == Reaped()
    # Nobody gives the ticket back: it ends by itself, whoever held it.
    assert until(lambda: second.reap().recovered) == 1
    assert 0 < connection.pttl("coolhead:reap") <= 300


def test_a_job_dropped_by_a_stock_worker_comes_back(desks: Desks, connection: redis.Redis) -> None:
    put(connection, "job", "next")
    desk = desks(stuck_s=0.1)
    connection.lmove(LIST, f"{LIST}:intermediate", "LEFT", "RIGHT")
    assert desk.reap().recovered == 0
    assert waiting(connection) == ["next"]
    until(lambda: desk.reap().recovered)
    assert waiting(connection) == ["job", "next"]
    assert connection.keys("*intermediate*") == []


def test_a_job_a_stock_worker_has_just_popped_is_left_to_it(desks: Desks, connection: redis.Redis) -> None:
    desk = desks(stuck_s=0.1)
    put(connection, "job")
    connection.lmove(LIST, f"{LIST}:intermediate", "LEFT", "RIGHT")
    desk.reap()
    connection.lrem(f"{LIST}:intermediate", 1, "job")  # it started it,
    desk.reap()
    connection.zadd(f"{LIST}:intermediate:seen", {"job": 1.0}, xx=True)
    connection.rpush(f"{LIST}:intermediate", "job")  # and much later pops it again
    assert desk.reap().recovered == 0
    assert waiting(connection) == []


@pytest.mark.parametrize("status", ["started", "finished", "failed", "canceled"])
def test_a_started_or_ended_job_in_the_intermediate_list_is_not_queued_again(
    status: str, desks: Desks, connection: redis.Redis
) -> None:
    put(connection, "job")
    connection.lmove(LIST, f"{LIST}:intermediate", "LEFT", "RIGHT")
    connection.hset("rq:job:job", "status", status)
    desk = desks(stuck_s=0.0)
    desk.reap()
    assert desk.reap().recovered == 0
    assert waiting(connection) == []


def test_an_expired_lease_of_an_ended_job_is_only_tidied_up(desk: ClaimDesk, connection: redis.Redis) -> None:
    put(connection, "job")
    (claimed,) = desk.claim(BOTH, 1).claimed
    connection.hset("rq:job:job", "status", "failed")
    end_lease(connection, claimed)
    assert desk.reap() == Reaped()
    assert connection.keys("rq:lease:*") == connection.keys("rq:execution*") == []
    assert waiting(connection) == []


def test_both_lanes_are_reaped(desk: ClaimDesk, connection: redis.Redis) -> None:
    put(connection, "slow", lane=Lane.BULK)
    put(connection, "now")
    for claimed in desk.claim(BOTH, 2).claimed:
        end_lease(connection, claimed)
    assert desk.reap().recovered == 2
    assert (waiting(connection), waiting(connection, Lane.BULK)) == (["now"], ["slow"])
    desk.settle([Succeeded(claimed, {}) for claimed in desk.claim(BOTH, 2).claimed])
    assert places(connection, "slow", Lane.BULK) == ["finished"]
