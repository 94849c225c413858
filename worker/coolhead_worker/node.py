"""The loop of a node: gate, claim, gate again, one model call, settle.

Guarantee: a job is taken only while its lane is open, looked at again after it was taken and
before the model is called, and handed back to the front, uncounted, when its lane has closed in
between or while the model was at work; no job is held while waiting; whatever a call returns or
raises, every claimed job is settled, and the settlement is repeated through an outage of Redis until
it is in or fenced out.
Two calls never overlap: there is one loop and one call in it; models are looked after between jobs.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import redis

from coolhead.errors import (
    CoolheadError,
    DecodeFailed,
    DecodeInterrupted,
    DecodeTimeout,
    NotFinite,
    TierUnloaded,
)
from coolhead.job import Job
from coolhead.policy import Lane
from coolhead_worker.admission.gate import Admission
from coolhead_worker.admission.gatekeeper import AFTER_ACQUIRE, BEFORE_ACQUIRE, DURING_CALL, Gatekeeper
from coolhead_worker.admission.watch import Watch
from coolhead_worker.claim.desk import ClaimDesk
from coolhead_worker.claim.presence import NodeStatus, Presence
from coolhead_worker.claim.settlement import Claimed, Released, Settlement
from coolhead_worker.clock import Clock
from coolhead_worker.heartbeat import Heartbeat
from coolhead_worker.judgement.judge import Judge, Judged, JudgeItem
from coolhead_worker.keeper import Keeper
from coolhead_worker.outcome import Patience, answered, unanswered
from coolhead_worker.report import Reporter

_log = logging.getLogger("coolhead.node")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NodePlan:
    """What the loop needs to know. Times in seconds."""

    node: str
    lanes: tuple[Lane, ...]
    models: str
    metrics: str = ""
    batch_max: int = 8
    call_timeout_s: float = 30.0
    idle_block_s: float = 1.0
    reap_every_s: float = 1.0
    put_back_rest_s: float = 2.0
    gate_recheck_s: float = 30.0
    settle_patience_s: float = 30.0
    patience: Patience = field(default_factory=Patience)


class Node:
    """One worker. `stop()` may be called from a signal handler."""

    def __init__(
        self,
        plan: NodePlan,
        desk: ClaimDesk,
        presence: Presence,
        heartbeat: Heartbeat,
        judge: Judge,
        keeper: Keeper,
        gate: Gatekeeper,
        reporter: Reporter,
        clock: Clock,
        rest: Callable[[float], object],
    ) -> None:
        """`rest(seconds)` pauses between two tries at Redis; it returns early at a stop."""
        self._plan = plan
        self._desk = desk
        self._presence = presence
        self._heartbeat = heartbeat
        self._judge = judge
        self._keeper = keeper
        self._gate = gate
        self._reporter = reporter
        self._clock = clock
        self._rest = rest
        self._stopping = False
        self._resting_until = 0.0
        self._next_reap = 0.0
        self._outage_s = 0.0
        self._status = NodeStatus(
            state="starting", reason="", lanes=(), thermal="unknown", source="",
            models=plan.models, metrics=plan.metrics, since=clock.wall(),
        )  # fmt: skip

    def stop(self) -> None:
        """Ask the loop to end after the batch in hand."""
        self._stopping = True
        self._gate.wake()

    def run(self) -> None:
        """Work until `stop()`; registers first, takes itself off the books last.

        Raises:
            ModelCorrupt: the fast model is damaged; nothing is held any more.
        """
        self._through_outages(lambda: self._presence.enter(self._status))
        self._heartbeat.start(self._status)
        try:
            while not self._stopping:
                self._through_outages(self.step)
        finally:
            self._heartbeat.close()
            self._leave()

    def step(self) -> int:
        """One turn of the loop; returns the number of jobs settled.

        Raises:
            redis.RedisError: the queue did not answer; no job is held.
            ModelCorrupt: the fast model is damaged; no job is held.
        """
        self._reap()
        admission = self._gate.check(BEFORE_ACQUIRE)
        lanes = tuple(lane for lane in self._plan.lanes if lane in admission.lanes)
        self._keeper.tend(self._gate.conditions, is_open=bool(lanes))
        if not lanes or self._resting():
            self._wait_outside(admission)
            return 0
        self._show("idle", admission)
        claims = self._desk.claim(lanes, self._plan.batch_max)
        self._reporter.dropped(claims)
        if not claims.claimed:
            self._desk.wait(self._plan.idle_block_s)
            return 0
        return self._run_batch(claims.claimed)

    def _run_batch(self, batch: Sequence[Claimed]) -> int:
        started = self._clock.monotonic()
        self._heartbeat.hold(batch)
        try:
            admission = self._gate.check(AFTER_ACQUIRE)
            self._show("busy", admission)
            keep = [claimed for claimed in batch if claimed.lane in admission.lanes]
            back = [claimed for claimed in batch if claimed.lane not in admission.lanes]
            settlements: list[Settlement] = [Released(claimed, admission.reason) for claimed in back]
            self._reporter.put_back(back, admission, AFTER_ACQUIRE)
            self._reporter.started(batch, keep)
            settlements += self._decide(keep)
            self._settle(settlements, started)
        finally:
            self._heartbeat.hold(())
            self._reporter.ended()
        if any(isinstance(settlement, Released) for settlement in settlements):
            # Released jobs stand at the front: without a rest this node would take them at once.
            self._resting_until = self._clock.monotonic() + self._plan.put_back_rest_s
        return len(settlements)

    def _decide(self, batch: Sequence[Claimed]) -> list[Settlement]:
        """One settlement for each job, from one model call (two when some go deep)."""
        items: list[JudgeItem] = []
        results: dict[str, Judged | Exception] = {}
        for claimed in batch:
            try:
                items.append(JudgeItem(Job.decode(claimed.data)))
            except CoolheadError as error:
                results[claimed.execution_id] = error
        runnable = [claimed for claimed in batch if claimed.execution_id not in results]
        answers = self._call(runnable, items)
        self._reporter.called(runnable, answers)
        results |= {claimed.execution_id: answer for claimed, answer in zip(runnable, answers, strict=True)}
        return [self._settlement(claimed, results[claimed.execution_id]) for claimed in batch]

    def _call(self, batch: Sequence[Claimed], items: Sequence[JudgeItem]) -> Sequence[Judged | Exception]:
        """The model call, stopped when nothing of the batch may run any more."""
        if not items:
            return []
        try:
            with Watch(self._gate, {claimed.lane for claimed in batch}, self._keeper.interrupt):
                return self._ask(items)
        except DecodeInterrupted:
            admission = self._gate.admission
            self._reporter.put_back(batch, admission, DURING_CALL)
            return [DecodeInterrupted(f"{admission.reason} during the call")] * len(items)
        finally:
            if self._stopping:  # the watch may have used up the wake-up of `stop()`
                self._gate.wake()

    def _ask(self, items: Sequence[JudgeItem]) -> Sequence[Judged | Exception]:
        try:
            return self._judge.judge(items, self._plan.call_timeout_s)
        except DecodeInterrupted:
            raise
        except NotFinite as error:
            return [self._keeper.explain(error)] * len(items)
        except (DecodeFailed, DecodeTimeout, TierUnloaded) as error:
            return [error] * len(items)
        except Exception as error:  # noqa: BLE001  # a fault of ours must not cost a job: it is tried again
            _log.exception("the model call failed in an unexpected way")
            return [error] * len(items)

    def _settlement(self, claimed: Claimed, result: Judged | Exception) -> Settlement:
        self._reporter.judged(claimed, result)
        if isinstance(result, Judged):
            return answered(claimed, result, self._plan.node)
        draw = random.random()  # noqa: S311  # jitter, not a secret
        return unanswered(claimed, result, self._plan.patience, draw)

    def _settle(self, settlements: Sequence[Settlement], started: float) -> None:
        """Write the results, through outages: a computed answer is never thrown away.

        Repeating is harmless: a settlement that is already in is fenced out.
        """
        settled = self._through_outages(lambda: self._desk.settle(settlements), settling=True)
        seconds = self._clock.monotonic() - started
        self._reporter.settled(settlements, settled or [], seconds)

    def _reap(self) -> None:
        now = self._clock.monotonic()
        if now >= self._next_reap:
            self._next_reap = now + self._plan.reap_every_s
            self._reporter.reaped(self._desk.reap())

    def _resting(self) -> bool:
        return self._clock.monotonic() < self._resting_until

    def _wait_outside(self, admission: Admission) -> None:
        """Wait for better conditions while holding nothing; woken by the sensor and by `stop()`."""
        self._show("paused" if not admission.lanes else "idle", admission)
        started = self._clock.monotonic()
        resting = max(0.0, self._resting_until - started)
        # Reaping goes on while the gate is closed: expiry must not wait for cool weather.
        pause = min(self._plan.gate_recheck_s, self._plan.reap_every_s)
        if resting:
            self._gate.pause(min(resting, pause))
        else:
            self._gate.wait_until_open(self._plan.lanes, lambda: self._stopping, pause)
        self._reporter.waited(admission, self._clock.monotonic() - started)

    def _show(self, state: str, admission: Admission) -> None:
        """Publish the status when it has changed; the heartbeat repeats it."""
        conditions = self._gate.conditions
        lanes = tuple(lane for lane in self._plan.lanes if lane in admission.lanes)
        status = NodeStatus(
            state=state, reason="; ".join(filter(None, (admission.reason, self._keeper.reason))),
            lanes=lanes, thermal=conditions.thermal.value, source=conditions.thermal_source,
            models=self._plan.models, metrics=self._plan.metrics,
            since=self._status.since if state == self._status.state else self._clock.wall(),
        )  # fmt: skip
        if status == self._status:
            return
        public = (status.reason, status.lanes, status.thermal) != (
            self._status.reason, self._status.lanes, self._status.thermal,
        )  # fmt: skip
        self._status = status
        self._heartbeat.show(status)
        self._reporter.status(status, conditions, changed=public)
        if public:
            # busy <-> idle changes with every batch: only the heartbeat shows those.
            self._presence.publish(status)

    def _through_outages(self, call: Callable[[], T], *, settling: bool = False) -> T | None:
        """Repeat `call` until Redis answers; the one retry loop of this process.

        After `stop()` a settlement is still tried for `settle_patience_s`, anything else not at
        all; then the lease gives the jobs to another node.
        """
        stopped_at: float | None = None
        while True:
            try:
                result = call()
            except redis.RedisError as error:
                self._reporter.redis_failed(error)
                if self._stopping:
                    now = self._clock.monotonic()
                    stopped_at = now if stopped_at is None else stopped_at
                    if not settling or now - stopped_at > self._plan.settle_patience_s:
                        return None
                self._outage_s = min(10.0, 2 * self._outage_s or 0.1)
                self._rest(self._outage_s * (0.5 + random.random() / 2))  # noqa: S311  # jitter
            else:
                self._outage_s = 0.0
                self._reporter.redis_back()
                return result

    def _leave(self) -> None:
        try:
            self._presence.leave()
        except redis.RedisError as error:
            _log.warning("could not sign off: %s", type(error).__name__)
