"""A queue in memory, for the tests of applications that use coolhead.

Guarantee: `FakeDecisionQueue` takes and refuses what `DecisionQueue` does, gives the same tickets,
the same kinds of error and the same kinds of decision; both pass the same tests. There is no
server, no thread and no waiting: a job is answered when somebody waits for it, and a `WaitTimeout`
comes at once.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self, Unpack

from coolhead.answers import Decision, Method, Outcome, Provenance, Status, Timing, Usage, answer_of
from coolhead.client import Tickets, decision_of, job_id_of
from coolhead.enqueue import EnqueueRules, Request, Ticket, Wanted, job_of, jobs_of, tickets_of
from coolhead.errors import (
    CoolheadError,
    JobExpired,
    JobNotFound,
    JobQuarantined,
    JobRejected,
    WaitTimeout,
)
from coolhead.fleet import Fleet, LaneDepth, Node
from coolhead.job import Job
from coolhead.policy import Lane, Policy, Tier
from coolhead.questions import Noul, Question
from coolhead.results import Answer, failure
from coolhead.standing import Standing, why_waiting
from coolhead.task import TaskBook
from coolhead.waiting import check_timeout

Probabilities = float | Sequence[float] | Mapping[str, float]
"""P(yes) of a noul, or one number for each label, by order or by name."""

_OUTCOMES: dict[type[CoolheadError], Outcome] = {
    JobRejected: Outcome.REJECTED,
    JobExpired: Outcome.EXPIRED,
    JobQuarantined: Outcome.QUARANTINED,
}

Answerer = Callable[[Job], Mapping[str, Probabilities] | None]
"""Question id -> probabilities, those left out uniform; None while nobody answers; may raise an
`Unanswered` that the job shall end with."""


def uniform(_job: Job) -> Mapping[str, Probabilities]:
    """Every option equally likely."""
    return {}


def answered_by(answerer: Answerer, job: Job, tasks: TaskBook) -> Answer | None:
    """How a job ends with this answerer; None when it does not end."""
    try:
        said = answerer(job)
        return None if said is None else decision_for(job, said, tasks)
    except CoolheadError as error:
        return failure(job.id, failed_fields(error))


def failed_fields(error: CoolheadError) -> dict[str, str]:
    """What a worker writes about a job that ends with this error."""
    outcome = _OUTCOMES.get(type(error), Outcome.PERMANENT)
    return {"outcome": outcome.value, "error_code": error.code, "error": str(error)}


def decision_for(job: Job, said: Mapping[str, Probabilities], tasks: TaskBook) -> Decision:
    """The decision with these probabilities; those left out are uniform.

    Raises:
        UnknownTask: the job names a task that is not in the book.
    """
    task = tasks.find(job.task or "") if job.questions is None else None
    questions = job.questions if task is None else task.questions
    assert questions is not None
    policy = job.policy or (task.policy if task else Policy())
    source = Provenance(
        tier=Tier.FAST,
        status=Status.UNCALIBRATED,
        method=Method.RAW,
        model="fake",
        plan="fake",
        readout="fake",
    )
    answers = {
        name: answer_of(question, _each(question, said.get(name)), policy.for_question(name), source)
        for name, question in questions.items()
    }
    return Decision(
        model="fake", answers=answers, usage=Usage(input_tokens=0), job_id=job.id, task=job.task,
        node="fake", timing=Timing(wait_s=0.0, fast_s=0.0),
    )  # fmt: skip


def _each(question: Question, said: Probabilities | None) -> list[float]:
    """One probability for each label."""
    if said is None:
        return [1.0] * len(question.labels)
    if isinstance(said, Mapping):
        return [said.get(label, 0.0) for label in question.labels]
    if isinstance(said, Sequence):
        return list(said)
    if not isinstance(question, Noul):
        raise TypeError("a single probability answers a noul only")
    return [said, 1.0 - said]


@dataclass
class _Kept:
    job: Job
    since: float
    answer: Answer | None = None


class FakeDecisionQueue:
    """`DecisionQueue` in memory.

    `answer` may be replaced at any time and counts for all jobs that have not ended; `nodes` is
    what `fleet` and a `WaitTimeout` tell; `submitted` holds every job that was taken, in order.
    """

    def __init__(
        self, answer: Answerer = uniform, *, tasks: TaskBook | None = None, rules: EnqueueRules | None = None
    ) -> None:
        self.answer = answer
        self.nodes: tuple[Node, ...] = ()
        self.submitted: list[Job] = []
        self._tasks = TaskBook() if tasks is None else tasks
        self._rules = rules or EnqueueRules()
        self._kept: dict[str, _Kept] = {}

    def submit(self, state: object, **wanted: Unpack[Wanted]) -> Ticket:
        """See `DecisionQueue.submit`."""
        return self.submit_many([job_of(state, **wanted)])[0]

    def submit_many(self, requests: Iterable[Request]) -> list[Ticket]:
        """See `DecisionQueue.submit_many`."""
        jobs = jobs_of(requests)
        return tickets_of(jobs, dict(enumerate(map(self._take, jobs))), self._rules)

    def _take(self, job: Job) -> str:
        known = self._kept.get(job.id)
        if known:
            return "old" if known.job.digest == job.digest else "conflict"
        if 0 < self._rules.max_length <= len(self._waiting(job.lane)):
            return "full"
        self._kept[job.id] = _Kept(job, time.time())
        self.submitted.append(job)
        return "new"

    def _waiting(self, lane: Lane) -> list[_Kept]:
        return [kept for kept in self._kept.values() if kept.job.lane is lane and kept.answer is None]

    def wait(self, ticket: Ticket | str, timeout_s: float | None = 30.0) -> Decision:
        """See `DecisionQueue.wait`; without an answer it gives up at once."""
        return decision_of(self._end(job_id_of(ticket), timeout_s))

    def _end(self, job_id: str, timeout_s: float | None) -> Answer:
        check_timeout(timeout_s)
        kept = self._kept.get(job_id)
        if kept is None:
            return JobNotFound(f"no job {job_id}: it was never queued here, or its result has expired")
        if kept.answer is None:
            kept.answer = answered_by(self.answer, kept.job, self._tasks)
        if kept.answer is None:
            reason = why_waiting(self.status(job_id), self.fleet())
            return WaitTimeout(f"no answer within {timeout_s or 0:g} s: {reason}")
        return kept.answer

    def decide(self, state: object, *, timeout_s: float | None = 30.0, **wanted: Unpack[Wanted]) -> Decision:
        """See `DecisionQueue.decide`."""
        return self.wait(self.submit(state, **wanted), timeout_s)

    def as_completed(self, tickets: Tickets, timeout_s: float | None = None) -> Iterator[tuple[str, Answer]]:
        """See `DecisionQueue.as_completed`."""
        for job_id in dict.fromkeys(map(job_id_of, tickets)):
            yield job_id, self._end(job_id, timeout_s)

    def wait_many(self, tickets: Tickets, timeout_s: float | None = None) -> list[Answer]:
        """See `DecisionQueue.wait_many`."""
        return [self._end(job_id_of(ticket), timeout_s) for ticket in tickets]

    def status(self, ticket: Ticket | str) -> Standing:
        """See `DecisionQueue.status`."""
        kept = self._kept.get(job_id_of(ticket))
        if kept is None:
            raise JobNotFound(f"no job {job_id_of(ticket)}: it was never queued here")
        ended, job = kept.answer, kept.job
        place = None if ended else self._waiting(job.lane).index(kept) + 1
        status = "queued" if ended is None else "finished" if isinstance(ended, Decision) else "failed"
        waited = time.time() - kept.since
        deadline = None if job.deadline_s is None else job.deadline_s - waited
        return Standing(job.id, status, job.lane, place, waited_s=waited, deadline_s=deadline)

    def fleet(self) -> Fleet:
        """See `DecisionQueue.fleet`."""
        return Fleet(time.time(), self.nodes, tuple(map(self._depth, Lane)))

    def _depth(self, lane: Lane) -> LaneDepth:
        mine = [kept for kept in self._kept.values() if kept.job.lane is lane]
        waiting = self._waiting(lane)
        finished = sum(isinstance(kept.answer, Decision) for kept in mine)
        return LaneDepth(
            lane, queued=len(waiting), finished=finished, failed=len(mine) - len(waiting) - finished,
            enqueued=len(mine), oldest_s=time.time() - waiting[0].since if waiting else None,
        )  # fmt: skip

    def close(self) -> None:
        """Nothing to close."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncFakeDecisionQueue:
    """`AsyncDecisionQueue` in memory, over a `FakeDecisionQueue` that is reached as `fake`."""

    def __init__(self, fake: FakeDecisionQueue | None = None) -> None:
        self.fake = fake or FakeDecisionQueue()

    async def submit(self, state: object, **wanted: Unpack[Wanted]) -> Ticket:
        """See `DecisionQueue.submit`."""
        return self.fake.submit(state, **wanted)

    async def submit_many(self, requests: Iterable[Request]) -> list[Ticket]:
        """See `DecisionQueue.submit_many`."""
        return self.fake.submit_many(requests)

    async def wait(self, ticket: Ticket | str, timeout_s: float | None = 30.0) -> Decision:
        """See `DecisionQueue.wait`."""
        return self.fake.wait(ticket, timeout_s)

    async def decide(
        self, state: object, *, timeout_s: float | None = 30.0, **wanted: Unpack[Wanted]
    ) -> Decision:
        """See `DecisionQueue.decide`."""
        return self.fake.decide(state, timeout_s=timeout_s, **wanted)

    async def as_completed(
        self, tickets: Tickets, timeout_s: float | None = None
    ) -> AsyncIterator[tuple[str, Answer]]:
        """See `DecisionQueue.as_completed`."""
        for pair in self.fake.as_completed(tickets, timeout_s):
            yield pair

    async def wait_many(self, tickets: Tickets, timeout_s: float | None = None) -> list[Answer]:
        """See `DecisionQueue.wait_many`."""
        return self.fake.wait_many(tickets, timeout_s)

    async def status(self, ticket: Ticket | str) -> Standing:
        """See `DecisionQueue.status`."""
        return self.fake.status(ticket)

    async def fleet(self) -> Fleet:
        """See `DecisionQueue.fleet`."""
        return self.fake.fleet()

    async def close(self) -> None:
        """Nothing to close."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
