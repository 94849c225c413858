"""The envelope of a job: what a producer writes and a worker reads.

Guarantee: `decode(encode(job)) == job` for every job that exists; the id is a hash of what is
asked (state, questions or task, policy), so the same question asked twice is the same job; an
envelope of another version, another function or odd bytes is refused with a typed error.

The bytes are what RQ's JSON serializer writes, zlib-compressed as RQ does, so stock RQ tools can
show a job. No pickle is read or written.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from typing import Annotated, Any, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from coolhead.errors import FunctionRefused, InvalidJob, InvalidState, UnknownVersion, one_line
from coolhead.policy import Lane, Policy
from coolhead.questions import Content, Questions, canonical, explain, holds_nul

VERSION = 1
FUNCTION = "coolhead.job.decide"
MAX_STATE_BYTES = 1 << 20
MAX_ENVELOPE_BYTES = 4 << 20
QUEUE_PREFIX = "coolhead-"

_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")


def queue_name(lane: Lane) -> str:
    """The RQ queue of a lane: `coolhead-interactive`, `coolhead-bulk`."""
    return QUEUE_PREFIX + lane.value


def decide(_envelope: dict[str, Any]) -> NoReturn:
    """What a stock RQ worker calls when it takes one of our jobs: a clear refusal.

    Raises:
        FunctionRefused: always; `coolhead-worker` never calls this function.
    """
    raise FunctionRefused("only coolhead-worker can run this job: stop the rq worker on this queue")


def check_state(state: object) -> Content:
    """The state as text, object or list.

    Args:
        state: text, UTF-8 bytes, or a JSON object or list.

    Raises:
        InvalidState: empty, NUL inside, not UTF-8, not JSON, or over `MAX_STATE_BYTES`.
    """
    if isinstance(state, bytes | bytearray):
        try:
            state = bytes(state).decode()
        except UnicodeDecodeError as error:
            raise InvalidState(f"the state is not UTF-8 at byte {error.start}: decode it first") from None
    if not isinstance(state, str | dict | list):
        raise InvalidState(f"the state must be text, an object or a list, not {type(state).__name__}")
    if not state or (isinstance(state, str) and not state.strip()):
        raise InvalidState("the state is empty: there is nothing to decide on")
    _check_bytes(state)
    return state


def _check_bytes(state: Content) -> None:
    try:
        text = canonical(state)
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidState("the state holds a lone surrogate: it is not valid Unicode") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidState(f"the state is not JSON: {one_line(str(error))}") from None
    if holds_nul(text):
        raise InvalidState("the state holds a NUL character: remove it")
    if size > MAX_STATE_BYTES:
        raise InvalidState(f"the state has {size} bytes; at most {MAX_STATE_BYTES} are taken")


class Job(BaseModel):
    """One request for decisions on one state.

    `questions` is None when the worker shall use its own task file of the name `task`.
    `deadline_s` counts from the moment the server takes the job.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    state: Content
    questions: Questions | None = None
    task: str | None = None
    policy: Policy | None = None
    lane: Lane = Lane.INTERACTIVE
    deadline_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None

    @classmethod
    def make(
        cls,
        state: object,
        *,
        questions: object = None,
        task: str | None = None,
        policy: object = None,
        lane: str = Lane.INTERACTIVE,
        deadline_s: float | None = None,
        job_id: str | None = None,
    ) -> Job:
        """Check everything and build a job.

        Args:
            state: text, UTF-8 bytes, object or list.
            questions: questions in wire form, or None to use the worker's task `task`.
            task: name of a task (with `questions`: only a name for metrics and fits).
            policy: policy in wire form; None for the task's or the default.
            lane: "interactive" or "bulk".
            deadline_s: seconds until the job expires; None for never.
            job_id: 1..128 letters, digits, `-`, `_`; None for the hash of the content.

        Raises:
            ContractError: the kind that fits, in one line.
        """
        parsed = None if questions is None else Questions.parse(questions)
        if parsed is None and task is None:
            raise InvalidJob("give questions, or the name of a task")
        values: dict[str, Any] = {
            "state": check_state(state),
            "questions": parsed,
            "task": task,
            "policy": None if policy is None else Policy.parse(policy),
        }
        content = {key: _plain(value) for key, value in values.items()}
        values["id"] = job_id if job_id is not None else content_hash(content)
        if not isinstance(values["id"], str) or not _ID.fullmatch(values["id"]):
            raise InvalidJob("a job id has 1..128 letters, digits, '-' or '_'")
        try:
            job = cls(**values, lane=Lane(lane), deadline_s=deadline_s)
        except ValidationError as error:
            raise InvalidJob(explain(error, "job")) from None
        except ValueError:
            raise InvalidJob(f"lane: {lane!r} is not one of {', '.join(Lane)}") from None
        job._check_size()
        return job

    def _check_size(self) -> None:
        """What a worker would refuse is refused here."""
        size = len(self._call())
        if size > MAX_ENVELOPE_BYTES:
            raise InvalidJob(f"state, questions and policy have {size} bytes; at most {MAX_ENVELOPE_BYTES}")

    @property
    def digest(self) -> str:
        """Hash of what is asked, whatever the id."""
        return content_hash(
            {key: _plain(getattr(self, key)) for key in ("state", "questions", "task", "policy")}
        )

    def encode(self) -> bytes:
        """The bytes for the `data` field of an RQ job."""
        return zlib.compress(self._call(), 1)

    def _call(self) -> bytes:
        body = {
            "v": VERSION,
            "id": self.id,
            "state": self.state,
            "questions": _plain(self.questions),
            "task": self.task,
            "policy": _plain(self.policy),
            "lane": self.lane.value,
            "deadline_s": self.deadline_s,
        }
        return canonical([FUNCTION, None, [body], {}]).encode()

    @classmethod
    def decode(cls, data: bytes) -> Job:
        """The inverse of `encode`.

        Raises:
            FunctionRefused: the job names another function.
            UnknownVersion: the envelope is of another version.
            ContractError: anything else that is not a valid envelope.
        """
        body = _open(data)
        version = body.pop("v", None)
        if version != VERSION:
            raise UnknownVersion(f"envelope version {version!r} is not {VERSION}: upgrade the older side")
        try:
            return cls.make(
                body.pop("state", None),
                job_id=body.pop("id", None),
                **{
                    key: body.pop(key) for key in ("questions", "task", "policy", "deadline_s") if key in body
                },
                lane=str(body.pop("lane", "")),
                **body,
            )
        except TypeError as error:
            raise InvalidJob(f"envelope: {error}") from None


def content_hash(content: dict[str, Any]) -> str:
    """32 hex digits of sha256 over the canonical JSON."""
    return hashlib.sha256(canonical(content).encode()).hexdigest()[:32]


def _plain(value: object) -> object:
    return value.wire() if isinstance(value, Questions | Policy) else value


def _open(data: bytes) -> dict[str, Any]:
    """The envelope inside RQ's job data."""
    try:
        raw = zlib.decompressobj().decompress(data, MAX_ENVELOPE_BYTES + 1)
    except zlib.error:
        raw = data
    if len(raw) > MAX_ENVELOPE_BYTES:
        raise InvalidJob(f"the envelope is larger than {MAX_ENVELOPE_BYTES} bytes")
    try:
        call = json.loads(raw)
        function, instance, args, kwargs = call
    except (ValueError, TypeError, RecursionError):
        raise InvalidJob("the job's data is not a JSON call: it was not written by coolhead") from None
    if function != FUNCTION or instance is not None:
        raise FunctionRefused(f"the job names {str(function)[:80]!r}: this worker runs only {FUNCTION}")
    if not (isinstance(args, list) and len(args) == 1 and isinstance(args[0], dict) and kwargs == {}):
        raise InvalidJob("the job's arguments are not one envelope")
    return dict(args[0])
