"""Reading a registry, and a worker's metrics with something in every family."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from coolhead.answers import Outcome
from coolhead.policy import Grey, Lane, Tier
from coolhead.task import Task, TaskBook
from coolhead_worker.admission.conditions import Conditions, Memory, Thermal
from coolhead_worker.metrics import Metrics

SUPPORT = Task.build(
    {
        "name": "support",
        "questions": {
            "queue": {"type": "choice", "criteria": ["billing", "technical", "other"]},
            "refund": {"type": "noul", "instructions": "money back?"},
            "urgency": {"type": "score", "criteria": ["low", "high"]},
        },
    }
)
TASKS = TaskBook({"support": SUPPORT})

Key = tuple[str, frozenset[tuple[str, str]]]


def samples(registry: CollectorRegistry) -> dict[Key, float]:
    """Every sample by name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in registry.collect()
        for sample in family.samples
    }


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    """One sample, or None when there is none."""
    return samples(registry).get((name, frozenset(labels.items())))


def busy(registry: CollectorRegistry) -> Metrics:
    """Metrics of a worker to which everything has happened once."""
    metrics = Metrics(registry, tasks=TASKS)
    metrics.models.loaded(Tier.FAST, "smol", "ab" * 32, "cpu", load_s=1.5, warm_s=0.1, locked=True)
    metrics.models.loaded(Tier.DEEP, "large", "cd" * 32, "metal", load_s=2.5, warm_s=0.2, locked=False)
    metrics.calibrated("support", Tier.FAST, version="f1", method="head", match=True)
    metrics.conditions(
        Conditions(Thermal.FAIR, "fake", on_ac=True, battery=0.5, low_power=False, memory=Memory.NORMAL)
    )
    metrics.in_progress(1)
    move(metrics)
    return metrics


def move(metrics: Metrics) -> None:
    """One more event of each kind."""
    metrics.state("busy", tuple(Lane))
    metrics.error("DecodeTimeout")
    for phase in ("before_acquire", "after_acquire", "during_call"):
        metrics.gate(phase, "safe")
    metrics.paused("thermal", 0.5)
    for lane in Lane:
        metrics.queue_wait(lane, 0.2)
        metrics.put_back(lane, "thermal", "after_acquire")
        metrics.job_ended(
            lane, Outcome.SUCCEEDED, wait_s=0.2, turnaround_s=0.5, duration_s=0.3, attempts=1,
            questions=3, defers=1,
        )  # fmt: skip
        metrics.job_ended(lane, Outcome.EXPIRED, wait_s=4.0, turnaround_s=4.0)
    for tier in Tier:
        metrics.models.cold_start(tier, "start")
        metrics.models.checked(tier, "golden")
        metrics.models.kept_warm(tier)
        metrics.inference(tier, 0.03, 100, "job-1")
        metrics.decided("support", "noul", tier, "yes", 0.9)
        metrics.decided("support", "choice", tier, "billing", 0.8)
        metrics.decided("support", "score", tier, "scored", 0.7, 0.25)
    metrics.models.unloaded(Tier.DEEP, "memory")
    metrics.escalated("support", Grey.GREY_ZONE)
    metrics.flipped("support")
