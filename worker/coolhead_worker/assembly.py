"""Puts a node together from its settings: the only place where every room is named.

Guarantee: inside `assembled` models are verified, resident, warm and sound, fits match them, the queue has
answered and nothing has been taken from it yet; on the way out, and when anything fails on the way
in, everything that was opened is closed again, last first.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import redis
from prometheus_client import CollectorRegistry

from coolhead.connection import connect, explained, place_of
from coolhead.errors import InvalidSettings
from coolhead.policy import Tier
from coolhead.task import TaskBook
from coolhead_worker.admission.choose import sensor_for
from coolhead_worker.admission.gatekeeper import Gatekeeper
from coolhead_worker.admission.sensor import Sensor
from coolhead_worker.claim.desk import ClaimDesk
from coolhead_worker.claim.presence import Presence, worker_name
from coolhead_worker.clock import Clock, SystemClock
from coolhead_worker.engine.goldens import SHIPPED, load_goldens
from coolhead_worker.engine.modelfile import ModelFile
from coolhead_worker.engine.protocol import Engine, PlanKind
from coolhead_worker.engine.resident import ResidentEngine
from coolhead_worker.engine.warmth import keep_warm_s
from coolhead_worker.exposition import MetricsServer
from coolhead_worker.heartbeat import Heartbeat
from coolhead_worker.judgement.artefact import FitBook
from coolhead_worker.judgement.judge import Judge
from coolhead_worker.keeper import Care, Keeper
from coolhead_worker.loading import Loader, LoadOrder
from coolhead_worker.lock import NodeLock
from coolhead_worker.metrics import Metrics
from coolhead_worker.model_report import ModelReporter
from coolhead_worker.node import Node, NodePlan
from coolhead_worker.outcome import Patience
from coolhead_worker.report import Reporter
from coolhead_worker.settings import Settings


class Readiness:
    """What `/readyz` says: not before the models are warm and sound, and not after one is broken."""

    def __init__(self) -> None:
        self._missing = "starting"
        self._is_started = False

    def waiting_for(self, what: str) -> None:
        """Not ready: `what` is being done. A model that is loaded again later changes nothing."""
        if not self._is_started:
            self._missing = what

    def done(self) -> None:
        """Ready from now on."""
        self._is_started, self._missing = True, ""

    def broken(self, why: str) -> None:
        """Not ready any more: this node will end."""
        self._missing = why

    def __call__(self) -> tuple[bool, str]:
        return (not self._missing, self._missing or "ready")


@contextlib.contextmanager
def assembled(settings: Settings, cache: Path | None = None) -> Iterator[Node]:
    """A node that is ready to `run()`.

    Args:
        settings: the node's settings.
        cache: where digests of model files are remembered; None for the user's cache folder.

    Raises:
        NodeBusy: another worker holds this node.
        NodeError: a model, a fit, the metrics port or a setting is not usable.
        QueueError: Redis does not answer or refuses.
        InvalidTask: a task file does not parse.
    """
    with ExitStack() as stack:
        stack.enter_context(NodeLock(settings.lock_file))
        clock = SystemClock()
        tasks = TaskBook.load(settings.tasks)
        metrics = Metrics(CollectorRegistry(), tasks=tasks)
        ready = Readiness()
        address = _serve(settings, metrics, ready, stack)
        connection = _queue(settings, stack)
        engines = load_engines(settings, cache, stack, metrics, clock, ready.waiting_for)
        fits = FitBook.load(settings.fits, engines, tasks)
        _report_fits(metrics, fits)
        judge = Judge(engines[Tier.FAST], engines.get(Tier.DEEP), fits, tasks, settings.node, clock)
        keeper = _keeper(settings, engines, metrics, clock, ready)
        node = _node(settings, judge, keeper, metrics, clock, connection, address, _models(engines), stack)
        ready.done()
        yield node


def _serve(settings: Settings, metrics: Metrics, ready: Readiness, stack: ExitStack) -> str:
    server = MetricsServer(
        metrics.registry, settings.metrics_host, settings.metrics_port, live=lambda: True, ready=ready
    )
    port = server.start()
    stack.callback(server.close)
    return f"{settings.metrics_host}:{port}"


def _queue(settings: Settings, stack: ExitStack) -> redis.Redis:
    """A connection that has answered once, so that a wrong URL or user is told at the start."""
    connection = connect(settings.redis_url, name=f"coolhead-worker-{settings.node}")
    stack.callback(connection.close)
    try:
        connection.exists("rq:suspended")
    except (redis.RedisError, OSError) as error:
        raise explained(error, place_of(connection)) from None
    return connection


def load_engines(
    settings: Settings,
    cache: Path | None,
    stack: ExitStack,
    metrics: Metrics | None,
    clock: Clock,
    tell: Callable[[str], None] = lambda _step: None,
) -> dict[Tier, ResidentEngine]:
    """Both tiers' models, verified, resident, warm and sound; closed with `stack`.

    Args:
        settings: which models, and how.
        cache: where digests are remembered; None for the user's cache folder.
        stack: closes them.
        metrics: None for a command that ends: nothing is locked into memory for it.
        clock: measures how long it takes.
        tell: hears in one line what is being done.

    Raises:
        NodeError: a model is missing, not the pinned one, damaged, or fails its self-check.
        InvalidSettings: the golden file is not usable.
    """
    reporter = ModelReporter(metrics or Metrics(CollectorRegistry()))
    engines: dict[Tier, ResidentEngine] = {}
    order = load_order(settings, cache, mlock=settings.mlock and metrics is not None)
    for tier, file in model_files(settings).items():
        loader = Loader(tier, file, order, clock, reporter, tell)
        engines[tier] = ResidentEngine(loader, loader.examine)
        stack.callback(engines[tier].close)
        reporter.cold_start(tier, "start")
    return engines


def load_order(settings: Settings, cache: Path | None, *, mlock: bool) -> LoadOrder:
    """How this node loads its models; InvalidSettings when the golden file is not usable."""
    own = [] if settings.golden is None else load_goldens(settings.golden)
    golden = [*load_goldens(SHIPPED), *own]
    return LoadOrder(settings.threads, mlock=mlock, golden=golden, own=own, cache=cache)


def model_files(settings: Settings) -> dict[Tier, ModelFile]:
    """The model files of a node, by tier."""
    models = ((Tier.FAST, settings.fast), (Tier.DEEP, settings.deep))
    return {tier: ModelFile(m.path, m.sha256, m.name) for tier, m in models if m is not None}


def _keeper(
    settings: Settings,
    engines: Mapping[Tier, ResidentEngine],
    metrics: Metrics,
    clock: Clock,
    ready: Readiness,
) -> Keeper:
    warm_s = {
        tier: keep_warm_s(settings.keep_warm_s, engine.plan_id(PlanKind.ISOLATED))
        for tier, engine in engines.items()
    }
    care = Care(settings.memory_hold_s, warm_s, settings.call_timeout_s)
    return Keeper(engines, care, clock, ModelReporter(metrics), ready.broken)


def _models(engines: Mapping[Tier, Engine]) -> str:
    return ",".join(f"{tier.value}={engine.name}@{engine.digest[:12]}" for tier, engine in engines.items())


def _report_fits(metrics: Metrics, fits: FitBook) -> None:
    for record in fits.records:
        for question in record.questions:
            metrics.calibrated(
                record.task, question.tier, version=record.fit, method=question.method.value, match=True
            )


def _node(
    settings: Settings,
    judge: Judge,
    keeper: Keeper,
    metrics: Metrics,
    clock: Clock,
    connection: redis.Redis,
    address: str,
    models: str,
    stack: ExitStack,
) -> Node:
    worker = worker_name(settings.node)
    reporter = Reporter(metrics)
    rng = random.Random()  # noqa: S311  # jitter, not a secret
    gate = Gatekeeper(_sensor(settings, clock), settings.mode, clock, rng, observer=reporter.looked)
    stack.callback(gate.close)
    # The heartbeat works beside the loop, so it has a connection, a desk and a presence of its own.
    beside = connect(settings.redis_url, name=f"coolhead-heartbeat-{settings.node}")
    stack.callback(beside.close)
    heartbeat = Heartbeat(
        _desk(settings, beside, worker), _presence(settings, beside, worker), clock,
        period_s=settings.lease_s / 3, hang_s=2 * settings.call_timeout_s + settings.lease_s,
    )  # fmt: skip
    return Node(
        _plan(settings, models, address), _desk(settings, connection, worker),
        _presence(settings, connection, worker), heartbeat, judge, keeper, gate, reporter, clock,
        gate.pause,
    )  # fmt: skip


def _sensor(settings: Settings, clock: Clock) -> Sensor:
    if settings.sensor == "scripted" and settings.scripted_path is None:
        raise InvalidSettings("sensor = 'scripted' needs scripted_path")
    if settings.scripted_path is not None and not settings.scripted_path.is_file():
        raise InvalidSettings(
            f"no sensor script {settings.scripted_path}: write a level such as nominal into it"
        )
    return sensor_for(sys.platform, settings.scripted_path, clock)


def _desk(settings: Settings, connection: redis.Redis, worker: str) -> ClaimDesk:
    return ClaimDesk(
        connection, worker=worker, node=settings.node, lease_s=settings.lease_s,
        max_deliveries=settings.max_deliveries,
    )  # fmt: skip


def _presence(settings: Settings, connection: redis.Redis, worker: str) -> Presence:
    return Presence(connection, node=settings.node, worker=worker, lanes=settings.lanes)


def _plan(settings: Settings, models: str, address: str) -> NodePlan:
    return NodePlan(
        node=settings.node,
        lanes=settings.lanes,
        models=models,
        metrics=address,
        batch_max=settings.batch_max,
        call_timeout_s=settings.call_timeout_s,
        idle_block_s=settings.idle_block_s,
        reap_every_s=settings.reap_every_s,
        put_back_rest_s=settings.put_back_rest_s,
        patience=Patience(settings.max_attempts),
    )
