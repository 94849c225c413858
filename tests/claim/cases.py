"""Every kind of settlement, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field as of

from coolhead.answers import Outcome
from coolhead_worker.claim.settlement import Claimed, Failed, Released, Retried, Settlement, Succeeded


@dataclass(frozen=True)
class Case:
    name: str
    settle: Callable[[Claimed], Settlement]
    place: str
    stream: list[tuple[str, str]]  # type and outcome of each entry
    fields: dict[str, str] = of(default_factory=dict)
    ttl_s: int = -1


CASES = [
    Case(
        "success",
        lambda claimed: Succeeded(claimed, {"yes": 0.25}),
        "finished",
        [("1", "succeeded")],
        {"status": "finished", "outcome": "succeeded", "error": "", "deliveries": "1", "attempts": "0"},
        60,
    ),
    Case(
        "rejection",
        lambda claimed: Failed(claimed, Outcome.REJECTED, "JobRejected", "low mass\non both tiers"),
        "failed",
        [("2", "rejected")],
        {
            "status": "failed",
            "outcome": "rejected",
            "error_code": "JobRejected",
            "error": "low mass on both tiers",
        },
        3600,
    ),
    Case(
        "permanent failure",
        lambda claimed: Failed(claimed, Outcome.PERMANENT, "StateTooLong", "9000 tokens"),
        "failed",
        [("2", "permanent")],
        {"status": "failed", "outcome": "permanent", "error_code": "StateTooLong", "attempts": "0"},
        3600,
    ),
    Case(
        "retry later",
        lambda claimed: Retried(claimed, 30.0, "DecodeFailed", "rc -3"),
        "scheduled",
        [("4", "transient")],
        {
            "status": "scheduled",
            "outcome": "",
            "error_code": "DecodeFailed",
            "error": "rc -3",
            "deliveries": "0",
            "attempts": "1",
            "worker_name": "",
        },
    ),
    Case(
        "retry at once",
        lambda claimed: Retried(claimed, 0.0, "DecodeTimeout", "30 s"),
        "queue",
        [("4", "transient")],
        {"status": "queued", "deliveries": "0", "attempts": "1", "started_at": ""},
    ),
    Case(
        "release",
        lambda claimed: Released(claimed, "thermal serious (scripted)"),
        "queue",
        [],
        {
            "status": "queued",
            "defer_reason": "thermal serious (scripted)",
            "deliveries": "0",
            "attempts": "0",
            "defers": "1",
            "worker_name": "",
            "node": "",
        },
    ),
]
