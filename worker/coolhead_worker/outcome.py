"""From what happened to one job to what is written about it: by type, never by text.

Guarantee: refused or unusable input is final at the first try; a failed call is tried again with
full jitter and a bound; a node that can't work gives the job back without an attempt.
"""

from __future__ import annotations

from dataclasses import dataclass

from coolhead.answers import Decision, Outcome, Timing, Usage
from coolhead.errors import (
    CoolheadError,
    DecodeFailed,
    DecodeTimeout,
    JobRejected,
    NodeError,
)
from coolhead_worker.claim.settlement import Claimed, Failed, Released, Retried, Settlement, Succeeded
from coolhead_worker.judgement.judge import Judged

BACKOFF_BASE_S = 0.5
BACKOFF_CAP_S = 60.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a transient failure is tried: `max_attempts` runs in all."""

    max_attempts: int = 6

    def delay_s(self, attempts: int, draw: float) -> float:
        """Seconds before the next try: full jitter over min(cap, base * 2^attempts).

        Args:
            attempts: failed tries before this one, from 0.
            draw: a random number in [0, 1).

        Source: "Exponential Backoff And Jitter", the variant called full jitter.
        """
        return draw * min(BACKOFF_CAP_S, BACKOFF_BASE_S * 2.0 ** min(attempts, 30))


def answered(claimed: Claimed, judged: Judged, node: str) -> Succeeded:
    """The settlement of a job that got its answers."""
    decision = Decision(
        model=judged.model,
        answers=judged.answers,
        usage=Usage(input_tokens=judged.tokens),
        job_id=claimed.job_id,
        task=judged.task,
        node=node,
        timing=Timing(
            wait_s=max(0.0, claimed.claimed_at - claimed.first_enqueued),
            fast_s=judged.fast_s,
            deep_s=judged.deep_s,
        ),
        attempts=claimed.attempts + 1,
        defers=claimed.defers,
    )
    return Succeeded(claimed, decision.wire())


def unanswered(claimed: Claimed, error: Exception, patience: Patience, draw: float) -> Settlement:
    """The settlement of a job that got no answer."""
    code = error.code if isinstance(error, CoolheadError) else type(error).__name__
    message = str(error) if isinstance(error, CoolheadError) else f"unexpected {code} in the worker"
    if isinstance(error, JobRejected):
        return Failed(claimed, Outcome.REJECTED, code, message)
    if is_transient(error):
        if claimed.attempts + 1 < patience.max_attempts:
            return Retried(claimed, patience.delay_s(claimed.attempts, draw), code, message)
        return Failed(claimed, Outcome.PERMANENT, code, f"{message} ({claimed.attempts + 1} tries)")
    if isinstance(error, NodeError):
        return Released(claimed, message)
    return Failed(claimed, Outcome.PERMANENT, code, message)


def is_transient(error: Exception) -> bool:
    """True when the same job may succeed later on this very node."""
    return isinstance(error, DecodeFailed | DecodeTimeout) or not isinstance(error, CoolheadError)
