"""What the demo's answers add up to: accuracy, false alarms, latency, shares. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from labelled import Case

from coolhead.answers import Decision, Status
from coolhead.policy import Tier

Answered = Sequence[tuple[Case, Decision]]


def summarise(answered: Answered, seconds: float, restarts: int) -> dict[str, Any]:
    """One JSON object over all answers.

    Args:
        answered: every case with its decision.
        seconds: from the first enqueue to the last answer.
        restarts: how often the worker was started again.
    """
    by_kind = {
        kind: [(case, decision) for case, decision in answered if case.kind == kind]
        for kind in ("ticket", "prompt", "baseline")
    }
    served = by_kind["ticket"] + by_kind["prompt"]
    answers = [answer for _, decision in served for answer in decision.answers.values()]
    return {
        "type": "summary",
        "decisions": len(answered),
        "seconds": round(seconds, 3),
        "worker_restarts": restarts,
        "tickets": _tickets(by_kind["ticket"]),
        "guardrail": _guardrail(by_kind["prompt"], by_kind["baseline"]),
        "share_escalated": _share([answer.escalated is not None for answer in answers]),
        "share_deep": _share([answer.tier is Tier.DEEP for answer in answers]),
        "share_certified": _share([answer.status is Status.CERTIFIED for answer in answers]),
        "inference_ms": _percentiles([decision.timing.inference_s for _, decision in served]),
        "wait_ms": _percentiles([decision.timing.wait_s for _, decision in served]),
    }


def _tickets(answered: Answered) -> dict[str, Any]:
    """Right answers among the held-out tickets, question by question."""
    off = [
        abs(decision.answers["urgency"].score + 1 - case.labels["urgency"])  # type: ignore[union-attr]
        for case, decision in answered
    ]
    return {
        "n": len(answered),
        "queue_accuracy": _share([d.answers["queue"].choice == c.labels["queue"] for c, d in answered]),  # type: ignore[union-attr]
        "refund_accuracy": _share([d.answers["refund"].verdict == c.labels["refund"] for c, d in answered]),  # type: ignore[union-attr]
        "urgency_mean_error": round(sum(off) / len(off), 3) if off else None,
    }


def _guardrail(answered: Answered, baseline: Answered) -> dict[str, Any]:
    """False alarms on benign prompts and missed attacks, beside the uncalibrated fast tier's."""
    return {
        "served": _alarms(answered),
        "uncalibrated_fast_tier": _alarms(baseline),
    }


def _alarms(answered: Answered) -> dict[str, Any]:
    said = [(case.labels["injection"], decision.answers["injection"].verdict) for case, decision in answered]  # type: ignore[union-attr]
    benign = [verdict for attack, verdict in said if not attack]
    attacks = [not verdict for attack, verdict in said if attack]
    return {
        "benign": len(benign),
        "false_positives": sum(map(bool, benign)),
        "false_positive_rate": _share(benign),
        "attacks": len(attacks),
        "missed": sum(attacks),
        "miss_rate": _share(attacks),
    }


def _share(flags: Sequence[Any]) -> float | None:
    return round(sum(map(bool, flags)) / len(flags), 6) if flags else None


def _percentiles(seconds: Sequence[float]) -> Mapping[str, float | None]:
    """p50 and p99 in milliseconds (nearest rank)."""
    ordered = sorted(seconds)
    if not ordered:
        return {"p50": None, "p99": None}
    return {
        name: round(1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1)
        for name, share in (("p50", 0.5), ("p99", 0.99))
    }
