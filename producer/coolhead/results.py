"""What a result stream and a job's hash say about how a job ended.

Guarantee: the kind of an error follows from the field `outcome` alone, never from a text; every
form in which the Redis clients give a stream is read; an answer that this version can't read is
an error, never a guess.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from coolhead.answers import Decision, Outcome
from coolhead.conversation import text
from coolhead.errors import (
    CoolheadError,
    JobExpired,
    JobFailed,
    JobQuarantined,
    JobRejected,
    Unanswered,
    UnknownVersion,
    one_line,
)

Answer = Decision | CoolheadError
"""How a job ended: with its decision, or with the error that stands for it."""

Fields = Mapping[str, str]

_SUCCEEDED, _FAILED, _STOPPED, _RETRIED, _GIVEN_UP = "1", "2", "3", "4", "5"  # the types of RQ

_ERRORS: Mapping[str, type[Unanswered]] = {
    Outcome.REJECTED: JobRejected,
    Outcome.EXPIRED: JobExpired,
    Outcome.QUARANTINED: JobQuarantined,
}

_FOREIGN = "ended without an outcome: another kind of worker took it from coolhead's queue"


def entries_of(reply: Any) -> Iterator[tuple[str, list[tuple[str, Fields]]]]:
    """(job id, [(entry id, fields), ...]) for each stream in the reply to an XREAD.

    The shape of the reply depends on the protocol and the version of the Redis client.
    """
    streams: Iterable[Any] = reply.items() if isinstance(reply, Mapping) else reply or ()
    for stream, entries in streams:
        flat = entries[0] if entries and isinstance(entries[0], list) else entries
        yield text(stream).removeprefix("rq:results:"), [(text(key), _fields(said)) for key, said in flat]


def _fields(said: Any) -> dict[str, str]:
    pairs = said.items() if isinstance(said, Mapping) else zip(said[::2], said[1::2], strict=True)
    return {text(key): text(value) for key, value in pairs}


def ended_by_entry(job_id: str, fields: Fields) -> Answer | None:
    """What one entry of a result stream says; None for a try that will be repeated."""
    kind = fields.get("type", "")
    if kind == _RETRIED:
        return None
    if kind == _SUCCEEDED:
        return _decision(job_id, fields.get("return_value", ""))
    return failure(job_id, fields)


def ended_by_hash(job_id: str, status: str, fields: Fields) -> Unanswered | None:
    """What a job's hash says when its stream says nothing: stopped by hand, or cleaned up by RQ."""
    if status in ("canceled", "stopped"):
        return JobFailed(f"job {job_id} was {status} by hand")
    return failure(job_id, fields) if status == "failed" else None


def failure(job_id: str, fields: Fields) -> Unanswered:
    """The error for the fields `outcome`, `error_code` and `error`."""
    outcome = fields.get("outcome", "")
    if not outcome:
        return JobFailed(f"job {job_id} {_FOREIGN}")
    code, said = fields.get("error_code", ""), fields.get("error", "")
    kind = _ERRORS.get(outcome, JobFailed)
    own = f" [{code}]" if code and code != kind.__name__ else ""
    return kind(f"job {job_id} {outcome}{own}: {one_line(said) or 'no reason given'}")


def _decision(job_id: str, value: str) -> Answer:
    try:
        return Decision.from_wire(json.loads(base64.b64decode(value, validate=True)))
    except (ValueError, TypeError, RecursionError, ValidationError):
        return UnknownVersion(f"the answer of job {job_id} is of another version: upgrade the older side")
