"""The asyncio client: many waits on one loop, cancelled waits, nothing left open."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Awaitable, Callable, Iterator

import pytest
import redis
import redis.asyncio

from coolhead.answers import Decision
from coolhead.client import AsyncDecisionQueue
from coolhead.errors import QueueUnreachable
from tests.client.settler import write_success
from tests.client.test_layout import QUESTIONS, own_decision
from tests.conftest import Valkey

pytestmark = pytest.mark.server


@pytest.fixture
def connection(valkey: Valkey) -> Iterator[redis.Redis]:
    with valkey.client() as client:
        yield client


async def soon(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.01)


def blocked_clients(connection: redis.Redis) -> int:
    return int(connection.info("clients")["blocked_clients"])


def test_many_waits_share_one_loop(valkey: Valkey, connection: redis.Redis) -> None:
    async def work() -> list[Decision]:
        async with AsyncDecisionQueue.from_url(valkey.url) as queue:
            waits: list[Awaitable[Decision]] = [
                queue.decide(f"s{n}", questions=QUESTIONS, job_id=f"j{n}") for n in range(20)
            ]
            all_of_them = asyncio.gather(*waits)
            await soon(lambda: blocked_clients(connection) == 20)
            for n in range(20):
                write_success(connection, f"j{n}", own_decision(f"j{n}"))
            return await all_of_them

    assert [decision.job_id for decision in asyncio.run(work())] == [f"j{n}" for n in range(20)]


def test_a_cancelled_wait_leaves_the_queue_usable(valkey: Valkey, connection: redis.Redis) -> None:
    async def work() -> Decision:
        # One connection for all: a reply that the cancelled wait left unread would be seen by the next.
        own = redis.asyncio.Redis.from_url(valkey.url, max_connections=1)
        async with own:
            queue = AsyncDecisionQueue(own)
            ticket = await queue.submit("hello", questions=QUESTIONS)
            waiting = asyncio.create_task(queue.wait(ticket, 30))
            await soon(lambda: blocked_clients(connection) == 1)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            write_success(connection, ticket.id, own_decision(ticket.id))
            assert (await queue.status(ticket)).status == "finished"
            return await queue.wait(ticket, 5)

    assert asyncio.run(work()).node == "n"


def test_a_loop_may_be_left_and_another_entered(valkey: Valkey) -> None:
    async def work(text: str) -> bool:
        async with AsyncDecisionQueue.from_url(valkey.url) as queue:
            return (await queue.submit(text, questions=QUESTIONS)).new

    assert [asyncio.run(work("a")), asyncio.run(work("b")), asyncio.run(work("a"))] == [True, True, False]


def test_nothing_is_left_open(valkey: Valkey) -> None:
    async def work() -> None:
        async with AsyncDecisionQueue.from_url(valkey.url) as queue:
            ticket = await queue.submit("hello", questions=QUESTIONS)
            async for _ in queue.as_completed([ticket], 0.05):
                break
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(work(), debug=True)
        gc.collect()
    assert [str(warning.message) for warning in caught] == []


def test_no_server_is_unreachable_here_too() -> None:
    async def work() -> None:
        async with AsyncDecisionQueue.from_url("unix:///nowhere/valkey.sock") as queue:
            await queue.submit("hello", questions=QUESTIONS)

    with pytest.raises(QueueUnreachable, match=r"unix:///nowhere/valkey\.sock"):
        asyncio.run(work())
