"""The client of the queue: hand in requests, wait for decisions.

Guarantee: the same request handed in twice is one job; `wait` blocks in Redis and does not poll;
whatever goes wrong is a `CoolheadError` of one line. `DecisionQueue` and `AsyncDecisionQueue` are
shells: what they send and how they read it stands in `enqueue`, `waiting`, `standing` and `fleet`.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Iterator
from types import TracebackType
from typing import Self, Unpack

import redis
import redis.asyncio

from coolhead.answers import Decision
from coolhead.connection import DEFAULT_URL, connect, connect_async
from coolhead.conversation import hold, hold_async
from coolhead.enqueue import EnqueueRules, Request, Ticket, Wanted, enqueue, job_of, jobs_of
from coolhead.fleet import Fleet, read_fleet
from coolhead.results import Answer
from coolhead.standing import Standing, read_standing
from coolhead.waiting import Watch

LONGEST_BLOCK_S = 4.0

Tickets = Iterable[Ticket | str]


def job_id_of(ticket: Ticket | str) -> str:
    """The id, from a ticket or the id itself."""
    return ticket if isinstance(ticket, str) else ticket.id


def decision_of(answer: Answer) -> Decision:
    """The decision, or raise the error that came in its place."""
    if isinstance(answer, Decision):
        return answer
    raise answer


def _watch(
    connection: redis.Redis | redis.asyncio.Redis,
    tickets: Tickets,
    timeout_s: float | None,
    new: bool = False,
) -> Watch:
    given: float | None = connection.connection_pool.connection_kwargs.get("socket_timeout")
    # A read must end by itself before the connection is taken for dead.
    block_s = min(LONGEST_BLOCK_S, given / 2) if given else LONGEST_BLOCK_S
    ids = map(job_id_of, tickets)
    return Watch(ids, timeout_s=timeout_s, block_s=block_s, clock=time.monotonic, just_queued=new)


class DecisionQueue:
    """Blocking client; may be shared by threads."""

    def __init__(self, connection: redis.Redis, rules: EnqueueRules | None = None) -> None:
        """Use a connection of yours; `close` leaves it open."""
        self._connection = connection
        self._rules = rules or EnqueueRules()
        self._owned = False

    @classmethod
    def from_url(cls, url: str = DEFAULT_URL, rules: EnqueueRules | None = None) -> Self:
        """Connect to `redis://`, `rediss://` or `unix://`; nothing is sent yet.

        Raises:
            QueueUnreachable: the URL is not one.
        """
        queue = cls(connect(url), rules)
        queue._owned = True
        return queue

    def submit(self, state: object, **wanted: Unpack[Wanted]) -> Ticket:
        """Queue one request; the fields are those of `coolhead.enqueue.Wanted`. One round trip.

        Raises:
            ContractError: the request can never work, or its id stands for another one.
            QueueUnreachable, QueueDenied, QueueFull: nothing was queued.
        """
        return self.submit_many([job_of(state, **wanted)])[0]

    def submit_many(self, requests: Iterable[Request]) -> list[Ticket]:
        """Queue many requests, `Job`s or mappings of `state` and `Wanted`; a ticket each, in order.

        All are checked before the first is sent; then up to 4000 go in one round trip.

        Raises:
            ContractError: names the index of the request, from 0.
            QueueFull: says how many were taken; send the same requests again to go on.
            QueueUnreachable, QueueDenied: some may have been taken; sending again is harmless.
        """
        return hold(self._connection, enqueue(jobs_of(requests), self._rules))

    def wait(self, ticket: Ticket | str, timeout_s: float | None = 30.0) -> Decision:
        """Block until the job has ended.

        Args:
            ticket: a ticket, or a job id.
            timeout_s: seconds, 0 to look once, None for no end. Shorter outages are waited through.

        Raises:
            JobRejected, JobFailed, JobExpired, JobQuarantined: how it ended.
            JobNotFound: no such job, or its answer has expired.
            WaitTimeout: the text says where the job is and what holds the nodes.
            QueueUnreachable, QueueDenied: Redis.
        """
        return self._wait(_watch(self._connection, [ticket], timeout_s))

    def _wait(self, watch: Watch) -> Decision:
        ((_, answer),) = hold(self._connection, watch.next())
        return decision_of(answer)

    def decide(self, state: object, *, timeout_s: float | None = 30.0, **wanted: Unpack[Wanted]) -> Decision:
        """`submit` and `wait`. After a `WaitTimeout` the job is still queued, unless it has a
        `deadline_s`."""
        ticket = self.submit(state, **wanted)
        return self._wait(_watch(self._connection, [ticket], timeout_s, ticket.new))

    def as_completed(self, tickets: Tickets, timeout_s: float | None = None) -> Iterator[tuple[str, Answer]]:
        """(job id, decision or error) of each job as it ends; jobs given twice come once.

        How a job ended is never raised; those that have not ended after `timeout_s` seconds come
        with a `WaitTimeout`.

        Raises:
            QueueUnreachable, QueueDenied: Redis.
        """
        watch = _watch(self._connection, tickets, timeout_s)
        while ended := hold(self._connection, watch.next()):
            yield from ended

    def wait_many(self, tickets: Tickets, timeout_s: float | None = None) -> list[Answer]:
        """The decision or error of each job, in the order given; otherwise as `as_completed`."""
        ids = [job_id_of(ticket) for ticket in tickets]
        answers = dict(self.as_completed(ids, timeout_s))
        return [answers[job_id] for job_id in ids]

    def status(self, ticket: Ticket | str) -> Standing:
        """Where a job is.

        Raises:
            JobNotFound: no such job.
        """
        return hold(self._connection, read_standing(job_id_of(ticket)))

    def fleet(self) -> Fleet:
        """All nodes and lanes."""
        return hold(self._connection, read_fleet())

    def close(self) -> None:
        """Close the connections that `from_url` opened."""
        if self._owned:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncDecisionQueue:
    """The same for asyncio; every method means what it means in `DecisionQueue`."""

    def __init__(self, connection: redis.asyncio.Redis, rules: EnqueueRules | None = None) -> None:
        """Use a connection of yours; `close` leaves it open."""
        self._connection = connection
        self._rules = rules or EnqueueRules()
        self._owned = False

    @classmethod
    def from_url(cls, url: str = DEFAULT_URL, rules: EnqueueRules | None = None) -> Self:
        """See `DecisionQueue.from_url`; use it with `async with`."""
        queue = cls(connect_async(url), rules)
        queue._owned = True
        return queue

    async def submit(self, state: object, **wanted: Unpack[Wanted]) -> Ticket:
        """See `DecisionQueue.submit`."""
        return (await self.submit_many([job_of(state, **wanted)]))[0]

    async def submit_many(self, requests: Iterable[Request]) -> list[Ticket]:
        """See `DecisionQueue.submit_many`."""
        return await hold_async(self._connection, enqueue(jobs_of(requests), self._rules))

    async def wait(self, ticket: Ticket | str, timeout_s: float | None = 30.0) -> Decision:
        """See `DecisionQueue.wait`."""
        return await self._wait(_watch(self._connection, [ticket], timeout_s))

    async def _wait(self, watch: Watch) -> Decision:
        ((_, answer),) = await hold_async(self._connection, watch.next())
        return decision_of(answer)

    async def decide(
        self, state: object, *, timeout_s: float | None = 30.0, **wanted: Unpack[Wanted]
    ) -> Decision:
        """See `DecisionQueue.decide`."""
        ticket = await self.submit(state, **wanted)
        return await self._wait(_watch(self._connection, [ticket], timeout_s, ticket.new))

    async def as_completed(
        self, tickets: Tickets, timeout_s: float | None = None
    ) -> AsyncIterator[tuple[str, Answer]]:
        """See `DecisionQueue.as_completed`."""
        watch = _watch(self._connection, tickets, timeout_s)
        while ended := await hold_async(self._connection, watch.next()):
            for pair in ended:
                yield pair

    async def wait_many(self, tickets: Tickets, timeout_s: float | None = None) -> list[Answer]:
        """See `DecisionQueue.wait_many`."""
        ids = [job_id_of(ticket) for ticket in tickets]
        answers = {job_id: answer async for job_id, answer in self.as_completed(ids, timeout_s)}
        return [answers[job_id] for job_id in ids]

    async def status(self, ticket: Ticket | str) -> Standing:
        """See `DecisionQueue.status`."""
        return await hold_async(self._connection, read_standing(job_id_of(ticket)))

    async def fleet(self) -> Fleet:
        """See `DecisionQueue.fleet`."""
        return await hold_async(self._connection, read_fleet())

    async def close(self) -> None:
        """Close the connections that `from_url` opened."""
        if self._owned:
            await self._connection.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
