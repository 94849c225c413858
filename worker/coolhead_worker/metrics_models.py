"""The words of `Metrics` for models: what is in memory, since when, and is it sound.

Guarantee: as in `metrics`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prometheus_client import Counter, Gauge

from coolhead.policy import Tier
from coolhead_worker.metrics_labels import Absence, ColdStart, SelfCheck

DIGEST_CHARS = 12

Replace = Callable[[str, tuple[str, ...], tuple[str, ...]], None]
"""Sets an info gauge: its name, the labels that identify, the labels that tell."""


class ModelMetrics:
    """Part of `Metrics`; safe from any thread."""

    def __init__(
        self, counters: Mapping[str, Counter], gauges: Mapping[str, Gauge], replace: Replace
    ) -> None:
        self._counters = counters
        self._gauges = gauges
        self._replace = replace

    def loaded(
        self, tier: Tier, name: str, digest: str, backend: str, *, load_s: float, warm_s: float, locked: bool
    ) -> None:
        """A model is in memory and warm.

        Args:
            tier: its tier.
            name: its name.
            digest: its sha256 in hex.
            backend: `metal`, `gpu` or `cpu`.
            load_s: how long verifying and loading took.
            warm_s: how long the first call took.
            locked: whether the system keeps it in memory.
        """
        self._replace("coolhead_model_info", (tier.value,), (name, digest[:DIGEST_CHARS], backend))
        for series, value in (
            ("coolhead_model_loaded", 1.0),
            ("coolhead_model_locked", float(locked)),
            ("coolhead_model_load_duration_seconds", load_s),
            ("coolhead_model_warmup_duration_seconds", warm_s),
        ):
            self._gauges[series].labels(tier.value).set(value)

    def cold_start(self, tier: Tier, reason: ColdStart) -> None:
        """A model was brought into memory: `start`, or why it had been away."""
        self._counters["coolhead_model_cold_starts_total"].labels(tier.value, reason).inc()

    def unloaded(self, tier: Tier, reason: Absence) -> None:
        """A model was given up: `memory` or `damage`."""
        for series in ("coolhead_model_loaded", "coolhead_model_locked"):
            self._gauges[series].labels(tier.value).set(0)
        self._counters["coolhead_model_unloads_total"].labels(tier.value, reason).inc()

    def checked(self, tier: Tier, result: SelfCheck) -> None:
        """A self-check: passed as `golden` or `structural`, or `failed`."""
        self._counters["coolhead_model_self_checks_total"].labels(tier.value, result).inc()

    def kept_warm(self, tier: Tier) -> None:
        """A call was made for warmth alone."""
        self._counters["coolhead_model_keep_warm_total"].labels(tier.value).inc()
