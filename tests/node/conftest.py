"""A whole node in one process: real Valkey, real desk, judge and gate; fake model and sensor."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from coolhead.client import DecisionQueue
from coolhead.policy import Lane, Tier
from coolhead.task import TaskBook
from coolhead_worker.admission.fake import FakeSensor
from coolhead_worker.admission.gate import Mode
from coolhead_worker.admission.gatekeeper import Gatekeeper
from coolhead_worker.claim.desk import ClaimDesk
from coolhead_worker.claim.presence import Presence
from coolhead_worker.clock import SystemClock
from coolhead_worker.engine.fake import FakeEngine
from coolhead_worker.engine.resident import ResidentEngine
from coolhead_worker.heartbeat import Heartbeat
from coolhead_worker.judgement.artefact import FitBook
from coolhead_worker.judgement.judge import Judge
from coolhead_worker.keeper import Care, Keeper
from coolhead_worker.metrics import Metrics
from coolhead_worker.model_report import ModelReporter
from coolhead_worker.node import Node, NodePlan
from coolhead_worker.outcome import Patience
from coolhead_worker.report import Reporter

NODE = "studio-1"
REFUND = {"refund": {"type": "noul", "instructions": "Does the writer ask for a refund?"}}


@dataclass
class Rig:
    """Parts of a node that a test wants to touch."""

    queue: DecisionQueue
    sensor: FakeSensor
    engine: FakeEngine
    tiers: dict[Tier, ResidentEngine]
    metrics: Metrics
    desk: ClaimDesk
    node: Node
    connection: Any
    broken: list[str]

    def metric(self, name: str, **labels: str) -> float:
        """The value of one series now."""
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    def job(self, job_id: str) -> dict[str, str]:
        """The hash of a job."""
        return {
            k.decode(): v.decode("latin-1") for k, v in self.connection.hgetall(f"rq:job:{job_id}").items()
        }

    def front(self, lane: str = "interactive") -> list[str]:
        """Ids in a lane, front first."""
        return [job.decode() for job in self.connection.lrange(f"rq:queue:coolhead-{lane}", 0, -1)]


class HookedDesk(ClaimDesk):
    """Calls a hook between a claim and what follows it."""

    after_claim: Callable[[], None] = staticmethod(lambda: None)

    def claim(self, lanes: Any, limit: int) -> Any:
        claims = super().claim(lanes, limit)
        if claims.claimed:
            self.after_claim()
        return claims


@contextmanager
def assembled(valkey: Any, deep: Callable[[], FakeEngine] | None) -> Iterator[Rig]:
    """A node that has not entered yet."""
    clock = SystemClock()
    connection, beside = valkey.client(), valkey.client()
    # With a deep tier the fast one is never sure, so that both are asked.
    engine = FakeEngine(
        answer=None if deep is None else lambda _state, question: [0.0] * len(question.labels)
    )
    sensor = FakeSensor(clock)
    metrics = Metrics(CollectorRegistry())
    reporter = Reporter(metrics)
    gate = Gatekeeper(
        sensor, Mode.STANDARD, clock, random.Random(1), bulk_dwell_s=0.0, observer=reporter.looked
    )
    worker = f"{NODE}-abc"
    desk = HookedDesk(connection, worker=worker, node=NODE, lease_s=5.0)
    presence = Presence(connection, node=NODE, worker=worker, lanes=tuple(Lane))
    heartbeat = Heartbeat(
        ClaimDesk(beside, worker=worker, node=NODE, lease_s=5.0),
        Presence(beside, node=NODE, worker=worker, lanes=tuple(Lane)),
        clock,
        period_s=1.0,
    )
    tiers = {Tier.FAST: ResidentEngine(lambda: engine)}
    if deep is not None:
        tiers[Tier.DEEP] = ResidentEngine(deep)
    judge = Judge(tiers[Tier.FAST], tiers.get(Tier.DEEP), FitBook(), TaskBook(), NODE, clock)
    broken: list[str] = []
    keeper = Keeper(tiers, Care(hold_s=0.2, timeout_s=2.0), clock, ModelReporter(metrics), broken.append)
    plan = NodePlan(
        NODE, tuple(Lane), "fast=fake@0", batch_max=4, idle_block_s=0.05, reap_every_s=0.05,
        put_back_rest_s=0.2, gate_recheck_s=0.2, call_timeout_s=2.0, patience=Patience(2),
    )  # fmt: skip
    node = Node(plan, desk, presence, heartbeat, judge, keeper, gate, reporter, clock, gate.pause)
    queue = DecisionQueue(valkey.client())
    yield Rig(queue, sensor, engine, tiers, metrics, desk, node, valkey.client(), broken)
    queue.close()
    gate.close()
    for each in (connection, beside):
        each.close()


@pytest.fixture
def rig(valkey) -> Iterator[Rig]:
    """A node without a deep tier; call `rig.node.step()` or run it in `running`."""
    with assembled(valkey, None) as made:
        yield made


@pytest.fixture
def cascade(valkey) -> Iterator[Rig]:
    """A node with both tiers; each question is asked of both."""
    with assembled(valkey, lambda: FakeEngine("deep")) as made:
        yield made


@pytest.fixture
def running(rig: Rig) -> Iterator[Rig]:
    """The same node with its loop running in a thread."""
    thread = threading.Thread(target=rig.node.run)
    thread.start()
    yield rig
    rig.node.stop()
    thread.join(20)
    assert not thread.is_alive()
