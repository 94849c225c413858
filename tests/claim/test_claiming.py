"""Which jobs a claim takes, in which order, and what it tells about them."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import redis
from rq.registry import StartedJobRegistry
from rq.serializers import JSONSerializer
from rq.suspension import resume, suspend

from coolhead.job import Job, queue_name
from coolhead.policy import Lane
from coolhead_worker.claim.desk import ClaimDesk
from coolhead_worker.claim.settlement import Released, Retried, Settled, Succeeded
from tests.claim.jobs import QUESTIONS, field, places, put, server_time, waiting

pytestmark = pytest.mark.server
BOTH = (Lane.INTERACTIVE, Lane.BULK)


def ids(desk: ClaimDesk, limit: int = 10, lanes: tuple[Lane, ...] = BOTH) -> list[str]:
    return [claimed.job_id for claimed in desk.claim(lanes, limit).claimed]


def test_jobs_come_in_the_order_of_lanes_and_queues(desk: ClaimDesk, connection: redis.Redis) -> None:
    put(connection, "slow-1", "slow-2", "slow-3", lane=Lane.BULK)
    put(connection, "now-1", "now-2")
    assert ids(desk, 3) == ["now-1", "now-2", "slow-1"]
    assert ids(desk, 3) == ["slow-2", "slow-3"]
    assert ids(desk, 3) == []


def test_a_closed_lane_is_left_alone(desk: ClaimDesk, connection: redis.Redis) -> None:
    put(connection, "slow", lane=Lane.BULK)
    put(connection, "now")
    assert ids(desk, lanes=(Lane.INTERACTIVE,)) == ["now"]
    assert waiting(connection, Lane.BULK) == ["slow"]


def test_a_claimed_job_tells_all_that_the_node_needs(desk: ClaimDesk, connection: redis.Redis) -> None:
    before = server_time(connection)
    put(connection, "job", lane=Lane.BULK, result_ttl=77, failure_ttl=88)
    (claimed,) = desk.claim(BOTH, 1).claimed
    assert claimed.lane is Lane.BULK
    assert Job.decode(claimed.data) == Job.make("I want my money back.", questions=QUESTIONS, job_id="job")
    assert (claimed.deliveries, claimed.attempts, claimed.defers) == (1, 0, 0)
    assert (claimed.result_ttl_s, claimed.failure_ttl_s) == (77, 88)
    assert before <= claimed.first_enqueued <= claimed.claimed_at <= server_time(connection)


def test_a_lease_is_seconds_and_rqs_own_cleanup_far_behind_it(
    desks: Callable[..., ClaimDesk], connection: redis.Redis
) -> None:
    put(connection, "job")
    (claimed,) = desks(lease_s=7.0).claim(BOTH, 1).claimed
    member = f"job:{claimed.execution_id}"
    lease = connection.zscore("rq:lease:coolhead-interactive", member)
    started = connection.zscore("rq:wip:coolhead-interactive", member)
    assert lease == pytest.approx(claimed.claimed_at + 7, abs=1e-3)
    assert started == pytest.approx(claimed.claimed_at + 607, abs=1e-3)
    registry = StartedJobRegistry(queue_name(Lane.INTERACTIVE), connection, serializer=JSONSerializer)
    assert registry.get_job_ids(cleanup=False) == ["job"]
    assert field(connection, "job", "status") == "started"
    assert field(connection, "job", "node") == "mac-1"


@pytest.mark.parametrize("status", ["finished", "failed", "canceled", "stopped"])
def test_an_ended_job_in_the_queue_is_skipped(status: str, desk: ClaimDesk, connection: redis.Redis) -> None:
    put(connection, "ended", "next")
    connection.hset("rq:job:ended", "status", status)
    assert ids(desk) == ["next"]
    assert field(connection, "ended", "status") == status


def test_an_id_without_a_job_is_skipped(desk: ClaimDesk, connection: redis.Redis) -> None:
    put(connection, "gone", "next")
    connection.delete("rq:job:gone")
    assert ids(desk) == ["next"]
    assert connection.exists("rq:job:gone") == 0


def test_a_job_that_runs_elsewhere_is_skipped(desk: ClaimDesk, connection: redis.Redis) -> None:
    put(connection, "job")
    assert ids(desk) == ["job"]
    connection.rpush("rq:queue:coolhead-interactive", "job")
    assert ids(desk) == []
    assert places(connection, "job") == ["lease"]


def test_a_job_without_data_is_given_out_so_that_it_is_refused_in_the_open(
    desk: ClaimDesk, connection: redis.Redis
) -> None:
    put(connection, "job")
    connection.hdel("rq:job:job", "data")
    (claimed,) = desk.claim(BOTH, 1).claimed
    assert claimed.data == b""


def test_a_job_without_our_fields_gets_defaults(desk: ClaimDesk, connection: redis.Redis) -> None:
    put(connection, "job")
    ours = ("first_enqueued", "deliveries", "attempts", "defers", "result_ttl", "failure_ttl")
    connection.hdel("rq:job:job", *ours)
    (claimed,) = desk.claim(BOTH, 1).claimed
    assert claimed.first_enqueued == claimed.claimed_at
    assert (claimed.result_ttl_s, claimed.failure_ttl_s) == (500, 604800)
    assert (claimed.deliveries, claimed.attempts, claimed.defers) == (1, 0, 0)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_released_jobs_go_to_the_front_in_their_old_order(
    order: tuple[int, ...], desk: ClaimDesk, connection: redis.Redis
) -> None:
    put(connection, "a", "b", "c", "d")
    claimed = desk.claim(BOTH, 3).claimed
    released = [Released(claimed[index], "hot") for index in order]
    assert desk.settle(released) == [Settled.SETTLED] * 3
    assert waiting(connection) == ["a", "b", "c", "d"]


def test_jobs_of_several_claims_are_released_in_their_old_order(
    desk: ClaimDesk, connection: redis.Redis
) -> None:
    put(connection, *"abcdefgh")
    held = [claimed for _ in range(3) for claimed in desk.claim(BOTH, 2).claimed]
    desk.settle([Released(claimed, "hot") for claimed in reversed(held)])
    assert waiting(connection) == list("abcdefgh")


def test_retries_at_once_queue_up_at_the_end_in_their_old_order(
    desk: ClaimDesk, connection: redis.Redis
) -> None:
    put(connection, *"abcd")
    claimed = desk.claim(BOTH, 2).claimed
    desk.settle([Retried(job, 0.0, "DecodeFailed", "rc") for job in reversed(claimed)])
    assert waiting(connection) == list("cdab")


@pytest.mark.parametrize("limit", [0, -1, 1001])
def test_a_limit_out_of_range_is_refused(limit: int, desk: ClaimDesk) -> None:
    with pytest.raises(ValueError, match="limit"):
        desk.claim(BOTH, limit)


def test_rq_suspend_stops_claims_and_rq_resume_starts_them(desk: ClaimDesk, connection: redis.Redis) -> None:
    put(connection, "job")
    suspend(connection)
    claims = desk.claim(BOTH, 1)
    assert (claims.suspended, claims.claimed) == (True, ())
    resume(connection)
    assert ids(desk) == ["job"]


def test_every_way_into_a_queue_wakes_a_waiting_worker(desk: ClaimDesk, connection: redis.Redis) -> None:
    put(connection, "job")
    assert desk.wait(5.0)
    assert not desk.wait(0)
    claimed = desk.claim(BOTH, 1).claimed
    desk.settle([Released(claimed[0], "hot")])
    assert desk.wait(5.0)
    claimed = desk.claim(BOTH, 1).claimed
    desk.settle([Retried(claimed[0], 0.0, "DecodeFailed", "rc")])
    assert desk.wait(5.0)


def test_a_wait_ends_without_work(desk: ClaimDesk) -> None:
    assert not desk.wait(0.02)
    assert not desk.wait(-1.0)


def test_a_claim_that_finds_nothing_clears_old_wake_tokens(desk: ClaimDesk, connection: redis.Redis) -> None:
    put(connection, "a", "b", "c")
    desk.claim(BOTH, 2)
    assert connection.llen("coolhead:wake") == 3
    desk.claim(BOTH, 2)
    assert connection.llen("coolhead:wake") == 0


def test_a_claim_looks_at_a_bounded_number_of_dead_ids_and_comes_back(
    desk: ClaimDesk, connection: redis.Redis
) -> None:
    connection.rpush("rq:queue:coolhead-interactive", *[f"dead-{n}" for n in range(1000)])
    put(connection, "alive")
    connection.delete("coolhead:wake")
    rounds = 0
    while not ids(desk, 8):
        assert desk.wait(0), "work was left behind without a token"
        rounds += 1
    assert rounds == 1


def test_claim_and_settle_are_one_round_trip_each(desk: ClaimDesk, connection: redis.Redis) -> None:
    put(connection, *"abcdefgh")
    desk.claim((Lane.BULK,), 1)  # loads the scripts
    desk.settle([Succeeded(claimed, {}) for claimed in desk.claim(BOTH, 1).claimed])
    before = connection.info("commandstats")
    claims = desk.claim(BOTH, 8)
    desk.settle([Succeeded(claimed, {}) for claimed in claims.claimed])
    after = connection.info("commandstats")
    assert after["cmdstat_evalsha"]["calls"] - before["cmdstat_evalsha"]["calls"] == 2
    assert len(claims.claimed) == 7
