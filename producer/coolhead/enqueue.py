"""From requests to queued jobs: what to send to Redis and what it answered.

Guarantee: every request is checked before the first is sent; the same job sent twice is queued
once; a refusal for length never drops a job silently: the error says how many were taken, and
sending the same jobs again goes on where it stopped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from typing import Any, TypedDict, Unpack

from redis.exceptions import NoScriptError

from coolhead.conversation import Command, Talk, ask, text
from coolhead.errors import ContractError, IdConflict, InvalidJob, QueueFull, one_line
from coolhead.job import Job, queue_name
from coolhead.policy import Lane
from coolhead.task import Task

JOBS_PER_CALL = 500  #: jobs of one script run; a script stops everybody else, about 13 us a job
BYTES_PER_CALL = 4 << 20
CALLS_PER_TRIP = 8

_SCRIPT = files("coolhead").joinpath("enqueue.lua").read_text("utf-8")
_SHA = hashlib.sha1(_SCRIPT.encode(), usedforsecurity=False).hexdigest()
_RQ_TIMEOUT_S = 180  # for stock tools only: coolhead's workers hold jobs by lease


@dataclass(frozen=True, slots=True)
class Ticket:
    """A job in the queue. `new` is False when the same job was already there, or had ended."""

    id: str
    lane: Lane
    new: bool = True


@dataclass(frozen=True, slots=True)
class EnqueueRules:
    """How jobs are queued.

    `max_length`: jobs that may wait in a lane, 0 for any number. `result_ttl_s`, `failure_ttl_s`:
    whole seconds, from 1, that an answer or a failure can be read; in that time the same job is
    not run again.
    """

    max_length: int = 0
    result_ttl_s: int = 600
    failure_ttl_s: int = 7 * 86400

    def __post_init__(self) -> None:
        if self.max_length < 0 or self.result_ttl_s < 1 or self.failure_ttl_s < 1:
            raise InvalidJob("max_length must be 0 or more, result_ttl_s and failure_ttl_s 1 or more")


class Wanted(TypedDict, total=False):
    """What is asked about a state.

    questions: questions in wire form; left out, those of `task`.
    task: the name of a task that the workers have, or a `Task` whose questions and policy are sent.
    policy: policy in wire form; left out, the task's or the default.
    lane: "interactive" (default) or "bulk".
    deadline_s: seconds until the job expires; left out, never.
    job_id: 1..128 letters, digits, `-`, `_`; left out, the hash of the content.
    """

    questions: object
    task: str | Task | None
    policy: object
    lane: str
    deadline_s: float | None
    job_id: str | None


Request = Job | Mapping[str, Any]
"""A job, or a mapping of `state` and the fields of `Wanted`."""


def job_of(state: object, **wanted: Unpack[Wanted]) -> Job:
    """Check a request and build its job. `state`: text, UTF-8 bytes, object or list.

    Raises:
        ContractError: the kind that fits, in one line.
    """
    task = wanted.get("task")
    fields: dict[str, Any] = {key: value for key, value in wanted.items() if value is not None}
    if isinstance(task, Task):
        own = {"questions": task.questions, "policy": task.policy}
        fields = {**own, **fields, "task": task.name}
    if not isinstance(fields.get("job_id", ""), str):
        raise InvalidJob(f"a job id is text, not {type(fields['job_id']).__name__}")
    return Job.make(state, **fields)


def jobs_of(requests: Iterable[Request]) -> list[Job]:
    """Check all requests; errors as of `job_of`, with the index of the request from 0."""
    jobs = []
    for index, request in enumerate(requests):
        try:
            jobs.append(request if isinstance(request, Job) else job_of(**request))
        except ContractError as error:
            raise type(error)(f"requests[{index}]: {error}") from None
        except TypeError as error:
            said = str(error).replace("Job.make()", "a request").replace("job_of()", "a request")
            raise InvalidJob(f"requests[{index}]: {said}") from None
    return jobs


def enqueue(jobs: Sequence[Job], rules: EnqueueRules) -> Talk[list[Ticket]]:
    """Queue all jobs; one ticket each, in order.

    Raises:
        IdConflict: an id stands for another request; all other jobs were taken.
        QueueFull: a lane is at its cap; the text says how many jobs were taken.
    """
    words: dict[int, str] = {}
    calls = _calls(jobs, rules)
    while trip := list(islice(calls, CALLS_PER_TRIP)):
        replies = yield from _run([command for _, command in trip])
        for (indices, _), reply in zip(trip, replies, strict=True):
            words.update(zip(indices, map(text, reply), strict=True))
        if "full" in words.values():
            break
    return tickets_of(jobs, words, rules)


def _calls(jobs: Sequence[Job], rules: EnqueueRules) -> Iterator[tuple[list[int], Command]]:
    """Script calls with the indices of their jobs: one lane each, bounded in jobs and bytes."""
    for lane in Lane:
        indices: list[int] = []
        arguments: list[Any] = []
        size = 0
        for index, job in enumerate(jobs):
            if job.lane is not lane:
                continue
            data = job.encode()
            if indices and (len(indices) == JOBS_PER_CALL or size + len(data) > BYTES_PER_CALL):
                yield indices, _command(lane, rules, arguments)
                indices, arguments, size = [], [], 0
            indices.append(index)
            arguments += (job.id, job.digest, _deadline(job), _description(job), data)
            size += len(data)
        if indices:
            yield indices, _command(lane, rules, arguments)


def _command(lane: Lane, rules: EnqueueRules, arguments: Sequence[Any]) -> Command:
    head = (lane.value, rules.max_length, _RQ_TIMEOUT_S, rules.result_ttl_s, rules.failure_ttl_s)
    return ("EVALSHA", _SHA, 1, f"rq:queue:{queue_name(lane)}", *head, *arguments)


def _deadline(job: Job) -> str:
    return "" if job.deadline_s is None else repr(job.deadline_s)


def _description(job: Job) -> str:
    """What stock tools show; never the state."""
    return f"coolhead {one_line(job.task)[:64] if job.task else 'inline'}"


def _run(commands: Sequence[Command]) -> Talk[list[list[Any]]]:
    """Run script calls in one round trip; a server that does not know the script gets it."""
    replies = yield from ask(*commands)
    unknown = [index for index, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
    if unknown:
        # EVAL teaches the server; the calls behind it in the same trip find the script there.
        again = [commands[index] for index in unknown]
        again[0] = ("EVAL", _SCRIPT, *again[0][2:])
        for index, reply in zip(unknown, (yield from ask(*again)), strict=True):
            replies[index] = reply
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies


def tickets_of(jobs: Sequence[Job], words: Mapping[int, str], rules: EnqueueRules) -> list[Ticket]:
    """The tickets for the script's words ("new", "old", "conflict", "full") by index of the job."""
    conflicts = [jobs[index].id for index, word in sorted(words.items()) if word == "conflict"]
    if conflicts:
        others = f" ({len(conflicts)} of {len(jobs)} jobs)" if len(jobs) > 1 else ""
        raise IdConflict(f"job id {conflicts[0]} already stands for another request{others}: use a new id")
    taken = sum(word in ("new", "old") for word in words.values())
    if taken < len(jobs):
        raise QueueFull(
            f"{taken} of {len(jobs)} jobs were taken, then {rules.max_length} were waiting in their lane: "
            "slow down and send the same jobs again"
        )
    return [Ticket(job.id, job.lane, words[index] == "new") for index, job in enumerate(jobs)]
