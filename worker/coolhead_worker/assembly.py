"""Puts a node together from its settings: the only place where every room is named.

Guarantee: inside `assembled` models are verified and resident, fits match them, the queue has
answered and nothing has been taken from it yet; on the way out, and when anything fails on the way
in, everything that was opened is closed again, last first.
"""

from __future__ import annotations

import contextlib
import logging
import platform
import random
import sys
from collections.abc import Iterator
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
from coolhead_worker.engine.llama_engine import LlamaEngine
from coolhead_worker.engine.modelfile import ModelFile
from coolhead_worker.engine.protocol import Engine
from coolhead_worker.exposition import MetricsServer
from coolhead_worker.heartbeat import Heartbeat
from coolhead_worker.judgement.artefact import FitBook
from coolhead_worker.judgement.judge import Judge
from coolhead_worker.lock import NodeLock
from coolhead_worker.metrics import Metrics
from coolhead_worker.node import Node, NodePlan
from coolhead_worker.outcome import Patience
from coolhead_worker.report import Reporter
from coolhead_worker.settings import ModelSettings, Settings

_log = logging.getLogger("coolhead.node")


class Readiness:
    """What `/readyz` says: not before the models are resident."""

    def __init__(self) -> None:
        self._missing = "starting"

    def waiting_for(self, what: str) -> None:
        """Not ready: `what` is being done."""
        self._missing = what

    def done(self) -> None:
        """Ready from now on."""
        self._missing = ""

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
        ready.waiting_for("loading models")
        engines = load_engines(settings, cache, stack, metrics, clock)
        fits = FitBook.load(settings.fits, engines)
        _report_fits(metrics, fits)
        judge = Judge(engines[Tier.FAST], engines.get(Tier.DEEP), fits, tasks, settings.node, clock)
        node = _node(settings, judge, metrics, clock, connection, address, _models(engines), stack)
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
    settings: Settings, cache: Path | None, stack: ExitStack, metrics: Metrics | None, clock: Clock
) -> dict[Tier, Engine]:
    """Both tiers' models, verified and resident; closed with `stack`."""
    engines: dict[Tier, Engine] = {}
    for tier, model in ((Tier.FAST, settings.fast), (Tier.DEEP, settings.deep)):
        if model is None:
            continue
        start = clock.monotonic()
        engine = LlamaEngine(_file(model), threads=settings.threads, cache=cache)
        stack.callback(engine.close)
        engines[tier] = engine
        seconds = clock.monotonic() - start
        _log.info("%s model %s is resident after %.1f s", tier.value, engine.name, seconds)
        if metrics is not None:
            metrics.model_loaded(tier, engine.name, engine.digest, _backend(), seconds)
    return engines


def _file(model: ModelSettings) -> ModelFile:
    return ModelFile(model.path, model.sha256, model.name)


def _backend() -> str:
    on_apple_silicon = sys.platform == "darwin" and platform.machine() == "arm64"
    return "metal" if on_apple_silicon else "cpu"


def _models(engines: dict[Tier, Engine]) -> str:
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
        _presence(settings, connection, worker), heartbeat, judge, gate, reporter, clock, gate.pause,
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
