"""Waiting: what ends a wait, how it survives trouble, and how little it asks of Redis."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from coolhead.client import DecisionQueue
from coolhead.errors import CoolheadError, JobFailed, QueueError, UnknownVersion, WaitTimeout
from coolhead.waiting import STREAMS_PER_READ
from tests.client.settler import write_failure, write_retry, write_success
from tests.client.test_layout import QUESTIONS, own_decision
from tests.conftest import Valkey

FAILED = {"outcome": "permanent", "error_code": "StateTooLong", "error": "too long"}


@pytest.fixture
def connection(valkey: Valkey) -> Iterator[redis.Redis]:
    with valkey.client() as client:
        yield client


class CountingRedis(redis.Redis):
    """Counts the round trips of the client under test."""

    trips = 0

    def pipeline(self, *args: Any, **named: Any) -> Any:
        self.trips += 1
        return super().pipeline(*args, **named)


@pytest.fixture
def counting(valkey: Valkey) -> Iterator[CountingRedis]:
    with CountingRedis.from_url(valkey.url) as client:
        yield client


def blocked(connection: redis.Redis) -> Callable[[], bool]:
    """True once a client is blocked in the server."""
    return lambda: connection.info("clients")["blocked_clients"] > 0


def soon(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(500):
        if condition():
            return
        pause.wait(0.01)
    pytest.fail("it did not come to that within 5 s")


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Run `work`; the list gets its value or its error."""
    said: list[Any] = []

    def run() -> None:
        try:
            said.append(work())
        except CoolheadError as error:
            said.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, said


@pytest.mark.server
def test_a_wait_blocks_in_redis_until_the_answer_is_there(
    valkey: Valkey, connection: redis.Redis, counting: CountingRedis
) -> None:
    queue = DecisionQueue(counting)
    ticket = queue.submit("hello", questions=QUESTIONS)
    counting.trips = 0
    thread, said = in_thread(lambda: queue.wait(ticket, 20))
    soon(blocked(connection))
    write_success(connection, ticket.id, own_decision(ticket.id))
    thread.join(5)
    assert said[0].job_id == ticket.id
    assert counting.trips == 2  # one look, one blocking read


@pytest.mark.server
def test_round_trips_of_submitting_and_of_an_answer_that_is_there(
    connection: redis.Redis, counting: CountingRedis
) -> None:
    queue = DecisionQueue(counting)
    queue.submit("warm up", questions=QUESTIONS)  # teaches the script
    counting.trips = 0
    ticket = queue.submit("hello", questions=QUESTIONS)
    assert counting.trips == 1
    queue.submit_many([{"state": f"s{n}", "questions": QUESTIONS} for n in range(2000)])
    assert counting.trips == 2
    write_success(connection, ticket.id, own_decision(ticket.id))
    queue.wait(ticket)
    assert counting.trips == 3


@pytest.mark.server
def test_deciding_is_one_trip_to_queue_and_one_to_wait(
    connection: redis.Redis, counting: CountingRedis
) -> None:
    queue = DecisionQueue(counting)
    queue.submit("warm up", questions=QUESTIONS)
    counting.trips = 0
    thread, said = in_thread(lambda: queue.decide("hello", questions=QUESTIONS, job_id="j"))
    soon(blocked(connection))
    write_success(connection, "j", own_decision("j"))
    thread.join(5)
    assert said[0].job_id == "j"
    assert counting.trips == 2


@pytest.mark.server
def test_a_try_that_will_be_repeated_is_not_an_end(valkey: Valkey, connection: redis.Redis) -> None:
    with DecisionQueue.from_url(valkey.url) as queue:
        ticket = queue.submit("hello", questions=QUESTIONS)
        write_retry(connection, ticket.id, "DecodeFailed")
        thread, said = in_thread(lambda: queue.wait(ticket, 20))
        soon(blocked(connection))
        write_retry(connection, ticket.id, "DecodeFailed")
        soon(blocked(connection))
        write_success(connection, ticket.id, own_decision(ticket.id))
        thread.join(5)
        assert said[0].job_id == ticket.id


@pytest.mark.server
def test_a_timeout_between_two_tries_says_so(valkey: Valkey, connection: redis.Redis) -> None:
    with DecisionQueue.from_url(valkey.url) as queue:
        ticket = queue.submit("hello", questions=QUESTIONS)
        write_retry(connection, ticket.id, "DecodeFailed")
        with pytest.raises(WaitTimeout, match="waits for try 2 after DecodeFailed; no node is up"):
            queue.wait(ticket, 0)


@pytest.mark.server
@pytest.mark.parametrize("failed_before", [True, False])
def test_a_failed_job_that_was_queued_again_is_waited_for(
    valkey: Valkey, connection: redis.Redis, failed_before: bool
) -> None:
    with DecisionQueue.from_url(valkey.url) as queue:
        ticket = queue.submit("hello", questions=QUESTIONS)

        def fail_and_requeue() -> None:
            with connection.pipeline() as pipe:
                pipe.xadd(f"rq:results:{ticket.id}", {"type": 2, **FAILED})
                pipe.hset(f"rq:job:{ticket.id}", "status", "queued")
                pipe.execute()

        if failed_before:
            fail_and_requeue()
        thread, said = in_thread(lambda: queue.wait(ticket, 20))
        soon(blocked(connection))
        if not failed_before:
            fail_and_requeue()
            soon(blocked(connection))
        assert not said
        write_success(connection, ticket.id, own_decision(ticket.id))
        thread.join(5)
        assert said[0].job_id == ticket.id


@pytest.mark.server
def test_a_failure_ends_a_wait_that_is_blocked(valkey: Valkey, connection: redis.Redis) -> None:
    with DecisionQueue.from_url(valkey.url) as queue:
        ticket = queue.submit("hello", questions=QUESTIONS)
        thread, said = in_thread(lambda: queue.wait(ticket, 20))
        soon(blocked(connection))
        write_failure(connection, ticket.id, FAILED)
        thread.join(5)
        assert type(said[0]) is JobFailed
        assert "[StateTooLong]: too long" in str(said[0])


@pytest.mark.server
@pytest.mark.parametrize("status", ["canceled", "stopped"])
def test_a_job_stopped_by_hand_ends_the_wait(valkey: Valkey, connection: redis.Redis, status: str) -> None:
    with DecisionQueue.from_url(valkey.url) as queue:
        ticket = queue.submit("hello", questions=QUESTIONS)
        connection.hset(f"rq:job:{ticket.id}", "status", status)
        with pytest.raises(JobFailed, match=f"was {status} by hand"):
            queue.wait(ticket, 5)


@pytest.mark.server
def test_an_answer_of_another_version_is_refused(valkey: Valkey, connection: redis.Redis) -> None:
    with DecisionQueue.from_url(valkey.url) as queue:
        ticket = queue.submit("hello", questions=QUESTIONS)
        write_success(connection, ticket.id, {**own_decision(ticket.id), "x_version": 2})
        with pytest.raises(UnknownVersion, match="upgrade"):
            queue.wait(ticket, 5)


@pytest.mark.server
def test_more_jobs_than_one_read_holds_all_end(valkey: Valkey, connection: redis.Redis) -> None:
    count = STREAMS_PER_READ + 60
    with DecisionQueue.from_url(valkey.url) as queue:
        tickets = queue.submit_many([{"state": f"s{n}", "questions": QUESTIONS} for n in range(count)])
        for ticket in tickets[: count - 1]:
            connection.xadd(f"rq:results:{ticket.id}", {"type": 2, **FAILED})
            connection.hset(f"rq:job:{ticket.id}", "status", "failed")
        answers = queue.wait_many(tickets, 0.1)
    assert [type(answer) for answer in answers] == [JobFailed] * (count - 1) + [WaitTimeout]


@pytest.mark.server
def test_threads_share_one_queue(valkey: Valkey, connection: redis.Redis) -> None:
    with DecisionQueue.from_url(valkey.url) as queue:
        work = [
            in_thread(lambda n=n: queue.decide(f"s{n}", questions=QUESTIONS, job_id=f"j{n}"))
            for n in range(8)
        ]
        soon(lambda: connection.info("clients")["blocked_clients"] == 8)
        for n in range(8):
            write_success(connection, f"j{n}", own_decision(f"j{n}"))
        for n, (thread, said) in enumerate(work):
            thread.join(5)
            assert said[0].job_id == f"j{n}"


@pytest.mark.server
def test_an_unexpected_answer_of_redis_is_one_line(valkey: Valkey, connection: redis.Redis) -> None:
    connection.set("rq:results:j", "not a stream")
    with DecisionQueue.from_url(valkey.url) as queue, pytest.raises(QueueError, match="wrong kind of value"):
        queue.wait("j", 5)
