"""A claimed job, and the four things that can become of it.

Guarantee: a settlement that exists can be written: its outcome is final where it must be, its
delay is a number, its texts are one line of bounded length in valid Unicode.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from coolhead.answers import Outcome
from coolhead.errors import one_line
from coolhead.job import queue_name
from coolhead.policy import Lane

MAX_MESSAGE = 1000  #: characters of an error's text
MAX_REASON = 200  #: characters of the reason of a put-back

_FINAL_FAILURES = frozenset({Outcome.REJECTED, Outcome.PERMANENT, Outcome.EXPIRED})


@dataclass(frozen=True, slots=True)
class Claimed:
    """A job this worker holds under a lease. Times are the server's, in unix seconds.

    `execution_id` is new with every claim and sorts in the order of claiming within one desk; it is
    the token that fences late writers out. `deliveries` counts this claim and those whose worker
    never settled; `attempts` counts tries that failed; `defers` counts put-backs.
    `result_ttl_s`, `failure_ttl_s`: how long the ended job is kept; -1 for ever, 0 not at all.
    """

    lane: Lane
    job_id: str
    execution_id: str
    data: bytes
    deliveries: int
    attempts: int
    defers: int
    first_enqueued: float
    claimed_at: float
    result_ttl_s: int
    failure_ttl_s: int

    def address(self) -> dict[str, Any]:
        """Where the lease is, for the scripts."""
        return {"q": queue_name(self.lane), "id": self.job_id, "ex": self.execution_id}


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The job has its answer: `result` is plain JSON data."""

    claimed: Claimed
    result: dict[str, Any]

    def row(self) -> dict[str, Any]:
        """What the script writes.

        Raises:
            ValueError: `result` is not JSON (NaN included).
        """
        text = json.dumps(self.result, allow_nan=False, separators=(",", ":"))
        return {"verb": "succeeded", "value": base64.b64encode(text.encode()).decode()}


@dataclass(frozen=True, slots=True)
class Failed:
    """The job ends without an answer. `code` is the stable name of the error.

    Raises:
        ValueError: `outcome` is not one of rejected, permanent, expired.
    """

    claimed: Claimed
    outcome: Outcome
    code: str
    message: str

    def __post_init__(self) -> None:
        if self.outcome not in _FINAL_FAILURES:
            raise ValueError(f"a job does not fail as {self.outcome.value}")

    def row(self) -> dict[str, Any]:
        """What the script writes."""
        return {"verb": "failed", "outcome": self.outcome.value, **_error(self.code, self.message)}


@dataclass(frozen=True, slots=True)
class Retried:
    """The job is tried again `delay_s` seconds from now (0: at once), at the end of its queue.

    Raises:
        ValueError: `delay_s` is negative or not finite.
    """

    claimed: Claimed
    delay_s: float
    code: str
    message: str

    def __post_init__(self) -> None:
        if not (math.isfinite(self.delay_s) and self.delay_s >= 0.0):
            raise ValueError(f"a delay of {self.delay_s} s")

    def row(self) -> dict[str, Any]:
        """What the script writes."""
        return {"verb": "retried", "delay": self.delay_s, **_error(self.code, self.message)}


@dataclass(frozen=True, slots=True)
class Released:
    """The job goes back to the front of its queue, and this was no attempt."""

    claimed: Claimed
    reason: str

    def row(self) -> dict[str, Any]:
        """What the script writes."""
        return {"verb": "released", "reason": _clean(self.reason, MAX_REASON)}


Settlement = Succeeded | Failed | Retried | Released


class Settled(StrEnum):
    """What the server made of a settlement."""

    SETTLED = "settled"  #: written, now or by an earlier try of the same settlement
    LOST = "lost"  #: fenced out: the lease had been taken away; nothing was written
    GONE = "gone"  #: somebody deleted the job


def writing_order(settlements: Sequence[Settlement]) -> list[int]:
    """Indices in the order of writing, for any order given.

    Released jobs come last claimed first, because each is put in front of the one before it; the
    others in the order of claiming, because retries queue up at the end.
    """

    def claimed_as(index: int) -> str:
        return settlements[index].claimed.execution_id

    released = [i for i, settlement in enumerate(settlements) if isinstance(settlement, Released)]
    others = [i for i, settlement in enumerate(settlements) if not isinstance(settlement, Released)]
    return sorted(others, key=claimed_as) + sorted(released, key=claimed_as, reverse=True)


def full_row(settlement: Settlement) -> dict[str, Any]:
    """One entry of what the script reads.

    Raises:
        ValueError: a result is not JSON.
    """
    claimed = settlement.claimed
    return {**claimed.address(), "at": f"{claimed.claimed_at:.6f}", **settlement.row()}


def _error(code: str, message: str) -> dict[str, Any]:
    return {"code": _clean(code, MAX_REASON), "message": _clean(message, MAX_MESSAGE)}


def _clean(text: str, limit: int) -> str:
    """One line, at most `limit` characters, without lone surrogates."""
    return one_line(text).encode("utf-8", "replace").decode()[:limit]
