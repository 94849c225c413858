"""Turns what happened in the loop into metrics and log lines; decides nothing.

Guarantee: no state text, job content or exception text becomes a label or a log line; the loop
never fails because reporting did.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from coolhead.answers import ChoiceAnswer, NoulAnswer, Outcome, ScoreAnswer
from coolhead.errors import CoolheadError, DecodeInterrupted
from coolhead.policy import Tier
from coolhead_worker.admission.conditions import Conditions
from coolhead_worker.admission.gate import Admission, checked
from coolhead_worker.admission.gatekeeper import AFTER_ACQUIRE
from coolhead_worker.claim.desk import Claims, Reaped
from coolhead_worker.claim.presence import NodeStatus
from coolhead_worker.claim.settlement import (
    Claimed,
    Failed,
    Retried,
    Settled,
    Settlement,
    Succeeded,
)
from coolhead_worker.judgement.judge import Judged
from coolhead_worker.metrics import Metrics

_log = logging.getLogger("coolhead.node")


class Reporter:
    """The one place where the loop meets metrics and logs."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._outage = False
        self._put_back: set[str] = set()

    def dropped(self, claims: Claims) -> None:
        """Jobs that a claim ended without running them."""
        for lane, waited_s in claims.expired:
            self._metrics.job_ended(lane, Outcome.EXPIRED, wait_s=waited_s, turnaround_s=waited_s)
        for lane in claims.quarantined:
            self._metrics.job_ended(lane, Outcome.QUARANTINED)
            _log.error("a job of lane %s was quarantined: coolhead queue ls", lane.value)

    def looked(self, phase: str, conditions: Conditions, admission: Admission) -> None:
        """One look of the gate."""
        self._metrics.gate(phase, checked(conditions, admission))

    def put_back(self, back: Sequence[Claimed], admission: Admission, phase: str) -> None:
        """Jobs handed back because their lane closed between the claim and the call, or during it."""
        self._put_back |= {claimed.execution_id for claimed in back}
        for claimed in back:
            self._metrics.put_back(claimed.lane, admission.kind, phase)
            _log.info("handed back: %s", admission.reason, extra={"job": claimed.job_id})

    def started(self, batch: Sequence[Claimed], running: Sequence[Claimed]) -> None:
        """A batch is held; `running` are the jobs of it that go into the model call."""
        self._metrics.in_progress(len(batch))
        for claimed in running:
            self._metrics.queue_wait(claimed.lane, max(0.0, claimed.claimed_at - claimed.first_enqueued))

    def ended(self) -> None:
        """Nothing is held any more."""
        self._put_back.clear()
        self._metrics.in_progress(0)

    def called(self, batch: Sequence[Claimed], results: Sequence[Judged | Exception]) -> None:
        """One model call for a batch, and the deep one if there was one."""
        judged = [(c, r) for c, r in zip(batch, results, strict=True) if isinstance(r, Judged)]
        if judged:
            first, result = judged[0]
            tokens = sum(r.tokens - r.deep_tokens for _, r in judged)
            self._metrics.inference(Tier.FAST, result.fast_s, tokens, first.job_id)
        deep = [(c, r) for c, r in judged if r.deep_s > 0]
        if deep:
            first, result = deep[0]
            self._metrics.inference(
                Tier.DEEP, result.deep_s, sum(r.deep_tokens for _, r in deep), first.job_id
            )

    def judged(self, claimed: Claimed, result: Judged | Exception) -> None:
        """What the model call gave for one job; a call that was stopped was told by `put_back`."""
        if isinstance(result, Judged):
            self._answers(result)
            return
        if isinstance(result, DecodeInterrupted):
            return
        code = result.code if isinstance(result, CoolheadError) else type(result).__name__
        self._metrics.error(code)
        level = logging.INFO if isinstance(result, CoolheadError) else logging.ERROR
        _log.log(level, "not answered: %s", code, extra={"job": claimed.job_id})

    def _answers(self, judged: Judged) -> None:
        for answer in judged.answers.values():
            top = max(answer.probabilities.values())
            self._metrics.decided(
                judged.task, answer.type, answer.tier, verdict_of(answer), top, score_ratio(answer)
            )
            if answer.escalated is not None:
                self._metrics.escalated(judged.task, answer.escalated)
            if answer.flipped:
                self._metrics.flipped(judged.task)

    def settled(self, settlements: Sequence[Settlement], settled: Sequence[Settled], seconds: float) -> None:
        """The settlements of a batch, in the order given; `seconds` since its claim.

        A job that was released but not put back by the gate was released because this node can't work.
        """
        for settlement, state in zip(settlements, settled, strict=False):
            claimed = settlement.claimed
            if state is not Settled.SETTLED:
                _log.warning("result fenced out: %s", state.value, extra={"job": claimed.job_id})
                continue
            if isinstance(settlement, Succeeded | Failed):
                self._ended(settlement, seconds)
            elif isinstance(settlement, Retried):
                self._metrics.put_back(claimed.lane, "transient", AFTER_ACQUIRE)
            elif claimed.execution_id not in self._put_back:
                self._metrics.put_back(claimed.lane, "unavailable", AFTER_ACQUIRE)

    def _ended(self, settlement: Succeeded | Failed, seconds: float) -> None:
        claimed = settlement.claimed
        outcome = Outcome.SUCCEEDED if isinstance(settlement, Succeeded) else settlement.outcome
        questions = len(settlement.result["answers"]) if isinstance(settlement, Succeeded) else 0
        wait_s = max(0.0, claimed.claimed_at - claimed.first_enqueued)
        self._metrics.job_ended(
            claimed.lane, outcome, wait_s=wait_s, turnaround_s=wait_s + seconds, duration_s=seconds,
            attempts=claimed.attempts + 1, questions=questions, defers=claimed.defers,
        )  # fmt: skip

    def reaped(self, reaped: Reaped) -> None:
        """What a reap found."""
        for lane, waited_s in reaped.expired_jobs:
            self._metrics.job_ended(lane, Outcome.EXPIRED, wait_s=waited_s, turnaround_s=waited_s)
        for lane in reaped.quarantined_lanes:
            self._metrics.job_ended(lane, Outcome.QUARANTINED)
        if reaped.recovered or reaped.quarantined or reaped.expired:
            _log.warning(
                "reaped: %d recovered, %d quarantined, %d expired",
                reaped.recovered, reaped.quarantined, reaped.expired,
            )  # fmt: skip

    def waited(self, admission: Admission, seconds: float) -> None:
        """Time spent outside the closed gate."""
        if not admission.lanes:
            self._metrics.paused(admission.kind, seconds)

    def status(self, status: NodeStatus, conditions: Conditions, *, changed: bool) -> None:
        """The node's state; `changed` when what others see of it differs from before."""
        self._metrics.state(status.state, status.lanes)
        self._metrics.conditions(conditions)
        if changed:
            open_lanes = ", ".join(lane.value for lane in status.lanes) or "none"
            _log.info("open lanes: %s%s", open_lanes, f"; {status.reason}" if status.reason else "")

    def redis_failed(self, error: Exception) -> None:
        """Redis did not answer; said once per outage, counted each time."""
        self._metrics.error("redis")
        if not self._outage:
            _log.warning("no answer from Redis (%s): trying again until it is back", type(error).__name__)
        self._outage = True

    def redis_back(self) -> None:
        """The first answer after an outage."""
        if self._outage:
            _log.warning("Redis answers again")
        self._outage = False


def verdict_of(answer: NoulAnswer | ChoiceAnswer | ScoreAnswer) -> str:
    """The verdict as a metric label: yes/no, the option, or `scored`."""
    if isinstance(answer, NoulAnswer):
        return "yes" if answer.verdict else "no"
    return answer.choice if isinstance(answer, ChoiceAnswer) else "scored"


def score_ratio(answer: NoulAnswer | ChoiceAnswer | ScoreAnswer) -> float | None:
    """Of a score: expected level over highest level, 0..1; None for other kinds."""
    return answer.score / (len(answer.probabilities) - 1) if isinstance(answer, ScoreAnswer) else None
