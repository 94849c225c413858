"""Turns what happens to models into metrics and log lines; decides nothing.

Guarantee: as in `report`: no text of a job, never a failure of its own.
"""

from __future__ import annotations

import logging

from coolhead.errors import CoolheadError
from coolhead.policy import Tier
from coolhead_worker.engine.protocol import Engine
from coolhead_worker.engine.selfcheck import Verdict
from coolhead_worker.metrics import Metrics
from coolhead_worker.metrics_labels import Absence, ColdStart, SelfCheck

_log = logging.getLogger("coolhead.node")


class ModelReporter:
    """The one place where the care of models meets metrics and logs."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def loading(self, tier: Tier, share: float) -> None:
        """A load that takes long; `share` of it is done, 0..1."""
        _log.info("loading the %s model: %.0f %%", tier.value, 100 * share)

    def loaded(
        self, tier: Tier, engine: Engine, backend: str, *, load_s: float, warm_s: float, locked: bool
    ) -> None:
        """A model is in memory, warm and sound; times in seconds."""
        self._metrics.models.loaded(
            tier, engine.name, engine.digest, backend, load_s=load_s, warm_s=warm_s, locked=locked
        )
        _log.info(
            "%s model %s is resident after %.1f s%s, warm after %.1f s more",
            tier.value, engine.name, load_s, " (locked)" if locked else "", warm_s,
        )  # fmt: skip

    def not_locked(self, tier: Tier, why: str) -> None:
        """The weights may be paged out."""
        _log.warning("the %s model is not locked into memory: %s", tier.value, why)

    def no_golden(self, tier: Tier) -> None:
        """The operator's golden file says nothing of this model."""
        _log.warning(
            "no golden in the file given fits the %s model: "
            "it is only checked against itself: coolhead-worker selfcheck --record FILE",
            tier.value,
        )

    def cold_start(self, tier: Tier, reason: ColdStart) -> None:
        """A model was brought into memory: `start`, or why it had been away."""
        self._metrics.models.cold_start(tier, reason)
        if reason != "start":
            _log.info("the %s model is in memory again", tier.value)

    def unloaded(self, tier: Tier, reason: Absence, why: str) -> None:
        """A model was given up; `reason` is `memory` or `damage`, `why` is for people."""
        self._metrics.models.unloaded(tier, reason)
        _log.warning("the %s model is unloaded: %s", tier.value, why)

    def checked(self, tier: Tier, verdict: Verdict) -> None:
        """The outcome of a self-check."""
        passed: SelfCheck = "golden" if verdict.golden else "structural"
        self._metrics.models.checked(tier, passed if verdict.passed else "failed")
        if verdict.passed:
            _log.info("the %s model passed its self-check (%s)", tier.value, passed)
        else:
            _log.critical("the %s model failed its self-check: %s", tier.value, verdict.reason)

    def kept_warm(self, tier: Tier) -> None:
        """A call was made for warmth alone."""
        self._metrics.models.kept_warm(tier)

    def failed(self, tier: Tier, what: str, error: CoolheadError) -> None:
        """Something that the node tries again later did not work."""
        self._metrics.error(error.code)
        _log.warning("the %s model could not be %s: %s: %s", tier.value, what, error.code, error)
