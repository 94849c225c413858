"""The one registry of the worker: typed words for what happens on a node.

Guarantee: no label carries a job id, a text, a pid or an exception; every label value comes from a
set that is closed at start (`metrics_labels`), and every such series exists with 0 from the first
scrape on, so that `rate()` sees its first event. Exact counts live in Redis; these are for rates.
All times are in seconds.
"""

from __future__ import annotations

import itertools
import platform
import sys
from collections.abc import Collection, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Enum,
    Gauge,
    Histogram,
    Info,
    disable_created_metrics,
)

from coolhead import __version__
from coolhead.answers import Outcome
from coolhead.policy import Grey, Lane, Tier
from coolhead.task import Task
from coolhead_worker.metrics_catalogue import CATALOGUE, TASKS, Series
from coolhead_worker.metrics_labels import (
    CHECKS,
    PAUSE_REASONS,
    PUT_BACK_REASONS,
    TIERS,
    Kind,
    TaskLabels,
    error_kind,
    folded,
    phase_of,
    requeue_outcome,
)
from coolhead_worker.metrics_models import ModelMetrics
from coolhead_worker.metrics_node import ConditionsCollector, ProcessCollector

if TYPE_CHECKING:
    from coolhead_worker.admission.conditions import Conditions

#: OpenMetrics allows an exemplar 128 characters for names and values; `job_id` takes 6.
MAX_EXEMPLAR_ID = 122


class Metrics:
    """Each call is a few additions in memory and never blocks; safe from any thread."""

    def __init__(self, registry: CollectorRegistry, *, tasks: Mapping[str, Task] | None = None) -> None:
        """Declare every series in `registry`; tasks that are not in `tasks` count as `other`."""
        # Process-wide in prometheus_client. A `_created` twin of each counter would say nothing new.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # no annotations there
        self.registry = registry
        self._tasks = TaskLabels(tasks or {})
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        self._replaced: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._conditions = ConditionsCollector()
        self._declare()
        self.models = ModelMetrics(self._counters, self._gauges, self._replace)
        self._gauges["coolhead_node_safe"].set(1)  # until a look says otherwise
        registry.register(self._conditions)
        registry.register(ProcessCollector())

    def _declare(self) -> None:
        for series in CATALOGUE.values():
            if series.kind == "info":
                Info(series.name.removesuffix("_info"), series.help, registry=self.registry).info(_build())
            elif series.kind == "stateset":
                states = series.labels[0].values
                self._state = Enum(series.name, series.help, states=states, registry=self.registry)
            elif not series.read:
                self._family(series)

    def _family(self, series: Series) -> None:
        name, labels = series.name, series.label_names
        family: Counter | Gauge | Histogram
        if series.kind == "counter":
            family = self._counters[name] = Counter(name, series.help, labels, registry=self.registry)
        elif series.kind == "gauge":
            family = self._gauges[name] = Gauge(name, series.help, labels, registry=self.registry)
        else:
            family = self._histograms[name] = Histogram(
                name, series.help, labels, registry=self.registry, buckets=series.buckets
            )
        for values in self._closed(series):
            family.labels(*values)

    def _closed(self, series: Series) -> Iterator[tuple[str, ...]]:
        """Every combination of label values that can be known at start."""
        if not series.labels:
            return iter(())
        if series.name == "coolhead_decisions_total":
            return ((task, kind, tier, word) for task, kind, word in self._tasks for tier in TIERS)
        sets = (self._tasks.names if label.values is TASKS else label.values for label in series.labels)
        return itertools.product(*sets)

    # Jobs.

    def job_ended(
        self,
        lane: Lane,
        outcome: Outcome,
        *,
        wait_s: float | None = None,
        turnaround_s: float | None = None,
        duration_s: float | None = None,
        attempts: int = 0,
        questions: int = 0,
        defers: int = 0,
    ) -> None:
        """A job is over for good.

        Args:
            lane: its lane.
            outcome: how it ended; `transient` and `unavailable` are no end: see `put_back`.
            wait_s: first enqueue to its last claim, or to its end if it never ran.
            turnaround_s: first enqueue to the result.
            duration_s: claim to the result; None for a job that never ran.
            attempts: tries, from 1; 0 for a job that never ran.
            questions: answers given; 0 when there are none.
            defers: how often it had been put back.
        """
        self._counters["coolhead_jobs_total"].labels(lane.value, outcome.value).inc()
        self._observe("coolhead_job_turnaround_seconds", lane, turnaround_s)
        self._observe("coolhead_job_duration_seconds", lane, duration_s)
        self._observe("coolhead_job_attempts", lane, attempts or None)
        self._observe("coolhead_job_questions", lane, questions or None)
        self._observe("coolhead_job_defers", lane, defers)
        if duration_s is None:  # no claim has noted this wait
            self._observe("coolhead_job_queue_wait_seconds", lane, wait_s)
        elif defers:
            self._observe("coolhead_job_admission_wait_seconds", lane, wait_s)

    def queue_wait(self, lane: Lane, seconds: float) -> None:
        """A job was claimed and is run; `seconds` since its first enqueue."""
        self._observe("coolhead_job_queue_wait_seconds", lane, seconds)

    def put_back(self, lane: Lane, kind: str, phase: str) -> None:
        """A job went back to its queue.

        Args:
            lane: its lane.
            kind: a kind of closed gate, or `transient`, `unavailable`, `drain`.
            phase: `before_acquire`, `after_acquire` or `during_call`.
        """
        reason = folded(kind, PUT_BACK_REASONS)
        self._counters["coolhead_jobs_total"].labels(lane.value, requeue_outcome(reason)).inc()
        self._counters["coolhead_job_requeues_total"].labels(lane.value, reason, phase_of(phase)).inc()

    def in_progress(self, count: int) -> None:
        """How many jobs the node holds now."""
        self._gauges["coolhead_jobs_in_progress"].set(count)

    def error(self, kind: str) -> None:
        """Something went wrong: an error's `code`, or `redis`."""
        self._counters["coolhead_errors_total"].labels(error_kind(kind)).inc()

    # Model and decisions.

    def inference(self, tier: Tier, seconds: float, tokens: int, job_id: str | None = None) -> None:
        """One model call read `tokens`; `job_id`, one of its jobs, becomes the exemplar."""
        exemplar = {"job_id": job_id} if job_id and len(job_id) <= MAX_EXEMPLAR_ID else None
        family = self._histograms["coolhead_inference_duration_seconds"]
        family.labels(tier.value).observe(max(0.0, seconds), exemplar)
        self._counters["coolhead_inference_prompt_tokens_total"].labels(tier.value).inc(max(0, tokens))

    def calibrated(self, task: str, tier: Tier, *, version: str, method: str, match: bool) -> None:
        """A fit was found for a task; `match` is False when it is for another model or plan."""
        known = self._tasks.task(task)
        self._replace("coolhead_calibration_info", (known, tier.value), (version, method))
        self._gauges["coolhead_calibration_match"].labels(known, tier.value).set(match)

    def decided(
        self,
        task: str | None,
        kind: Kind,
        tier: Tier,
        verdict: str,
        probability: float,
        score_ratio: float | None = None,
    ) -> None:
        """One answer.

        Args:
            task: the job's task; None for questions given inline.
            kind: `noul`, `choice` or `score`.
            tier: the tier that gave it.
            verdict: `yes`, `no`, an option's name or `scored`.
            probability: of the likeliest label.
            score_ratio: of a score: expected level over highest level, 0..1.
        """
        name = self._tasks.task(task)
        word = self._tasks.verdict(name, kind, verdict)
        self._counters["coolhead_decisions_total"].labels(name, kind, tier.value, word).inc()
        self._histograms["coolhead_decision_probability"].labels(name, tier.value).observe(probability)
        if score_ratio is not None:
            self._histograms["coolhead_decision_score_ratio"].labels(name).observe(score_ratio)

    def escalated(self, task: str | None, reason: Grey) -> None:
        """The deep tier was asked about one question."""
        self._counters["coolhead_escalations_total"].labels(self._tasks.task(task), reason.value).inc()

    def flipped(self, task: str | None) -> None:
        """The deep tier said something else than the fast one."""
        self._counters["coolhead_tier_flips_total"].labels(self._tasks.task(task)).inc()

    # Node.

    def state(self, name: str, lanes: Collection[Lane] | None = None) -> None:
        """What the worker does, and which lanes are open to it (None: not known, left as it is).

        Raises:
            ValueError: `name` is not one of `metrics_labels.STATES`.
        """
        self._state.state(name)
        for lane in Lane if lanes is not None else ():
            self._gauges["coolhead_node_lane_open"].labels(lane.value).set(lane in (lanes or ()))

    def conditions(self, conditions: Conditions) -> None:
        """The newest reading of the machine."""
        self._conditions.update(conditions)

    def gate(self, phase: str, result: str) -> None:
        """One look of the gate in a phase of the loop: `safe`, `unsafe` or `unknown`.

        Unknown counts as safe in `node_safe`: such a node works.
        """
        word = result if result in CHECKS else "unknown"
        self._counters["coolhead_node_safety_checks_total"].labels(phase_of(phase), word).inc()
        self._gauges["coolhead_node_safe"].set(result != "unsafe")

    def paused(self, kind: str, seconds: float) -> None:
        """Time spent with every lane closed."""
        reason = folded(kind, PAUSE_REASONS)
        self._counters["coolhead_node_paused_seconds_total"].labels(reason).inc(max(0.0, seconds))

    def _observe(self, name: str, lane: Lane, value: float | None) -> None:
        if value is not None:
            self._histograms[name].labels(lane.value).observe(max(0.0, value))

    def _replace(self, name: str, key: tuple[str, ...], rest: tuple[str, ...]) -> None:
        """Set an info gauge for `key` and take away what it said before."""
        gauge, before = self._gauges[name], self._replaced.get((name, *key))
        if before is not None:
            gauge.remove(*key, *before)
        self._replaced[name, *key] = rest
        gauge.labels(*key, *rest).set(1)


def _build() -> dict[str, str]:
    try:
        llama_cpp = version("llama-cpp-python")
    except PackageNotFoundError:
        llama_cpp = "none"
    return {
        "version": __version__,
        "llama_cpp": llama_cpp,
        "python": platform.python_version(),
        "platform": sys.platform,
    }
