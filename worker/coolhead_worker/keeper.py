"""Looks after the models of a node between jobs: soundness, memory, warmth.

Guarantee: a model whose numbers were not finite is examined before it serves again; a fast model that
fails ends the node (its jobs go back uncounted), a deep one is given up and tried again later. Nothing
is done for warmth while the gate is closed, and then at most one tiny call between two jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from coolhead.errors import CoolheadError, DecodeInterrupted, ModelCorrupt, NotFinite
from coolhead.policy import Tier
from coolhead_worker.admission.conditions import Conditions
from coolhead_worker.clock import Clock
from coolhead_worker.deep_tier import DeepTier
from coolhead_worker.engine.resident import ResidentEngine
from coolhead_worker.engine.warmth import WARM
from coolhead_worker.model_report import ModelReporter


@dataclass(frozen=True, slots=True)
class Care:
    """How models are looked after. Times in seconds.

    `hold_s`: memory must have been normal for so long before the deep model comes back.
    `keep_warm_s`: idleness after which a call is made for warmth, by tier; 0 for never.
    `timeout_s`: limit of each call made here.
    """

    hold_s: float = 60.0
    keep_warm_s: Mapping[Tier, float] | None = None
    timeout_s: float = 30.0


class Keeper:
    """One thread tends: the node's loop. `interrupt` is for everybody."""

    def __init__(
        self,
        tiers: Mapping[Tier, ResidentEngine],
        care: Care,
        clock: Clock,
        reporter: ModelReporter,
        broken: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        """`broken` hears, once, why this node will not serve any more."""
        self._tiers = tiers
        self._care = care
        self._clock = clock
        self._reporter = reporter
        self._on_broken = broken
        self._broken: ModelCorrupt | None = None
        deep = tiers.get(Tier.DEEP)
        self._deep = None if deep is None else DeepTier(deep, clock, reporter, care.hold_s)
        self._seen = dict.fromkeys(tiers, 0)
        self._used = dict.fromkeys(tiers, clock.monotonic())

    @property
    def reason(self) -> str:
        """Why not all models are in memory, in one line; "" when they are."""
        return "" if self._deep is None else self._deep.reason

    def interrupt(self) -> None:
        """Stop the model call that runs; nothing when none does."""
        for engine in self._tiers.values():
            engine.interrupt()

    def tend(self, conditions: Conditions, *, is_open: bool) -> None:
        """What is due now, between two jobs.

        Args:
            conditions: the newest reading.
            is_open: whether a lane of this node is open.

        Raises:
            ModelCorrupt: the fast model failed its self-check: this node can't serve.
        """
        if is_open:
            self._look_into_suspects()
        if self._broken is not None:
            raise self._broken
        if self._deep is not None:
            self._deep.tend(conditions, is_open=is_open)
        if is_open:
            self._keep_warm()

    def explain(self, error: NotFinite) -> CoolheadError:
        """The error of the jobs whose call gave numbers that are not finite: the model's, or the call's.

        Raises:
            DecodeInterrupted: the machine turned unsafe before this was known.
        """
        self._look_into(Tier.FAST)
        return self._broken or error

    def _look_into_suspects(self) -> None:
        for tier, engine in self._tiers.items():
            if engine.suspect:
                with suppress(DecodeInterrupted):  # it stays a suspect
                    self._look_into(tier)

    def _look_into(self, tier: Tier) -> None:
        try:
            # A check is one or two calls, and a batch is ended when it outlives its time.
            verdict = self._tiers[tier].examine(self._care.timeout_s / 2)
        except DecodeInterrupted:
            raise
        except CoolheadError as error:
            self._reporter.failed(tier, "checked", error)
            return
        self._reporter.checked(tier, verdict)
        if verdict.passed:
            return
        if tier is Tier.DEEP and self._deep is not None:
            self._deep.give_up("damage", f"it failed its self-check: {verdict.reason}")
            return
        name = self._tiers[tier].name
        self._broken = ModelCorrupt(
            f"the fast model {name} is damaged: {verdict.reason}: restart the worker; if it fails again, "
            "fetch the file again"
        )
        self._on_broken(str(self._broken))

    def _keep_warm(self) -> None:
        """One tiny call for the model that has been idle for longest, when that is due."""
        now = self._clock.monotonic()
        for tier, engine in self._tiers.items():
            if engine.calls != self._seen[tier]:
                self._seen[tier], self._used[tier] = engine.calls, now
        due = [tier for tier, engine in self._tiers.items() if engine.loaded and self._is_due(tier, now)]
        if due:
            self._warm(min(due, key=lambda tier: self._used[tier]), now)

    def _is_due(self, tier: Tier, now: float) -> bool:
        after_s = (self._care.keep_warm_s or {}).get(tier, 0.0)
        return after_s > 0 and now - self._used[tier] >= after_s

    def _warm(self, tier: Tier, now: float) -> None:
        self._used[tier] = now
        try:
            self._tiers[tier].evaluate([WARM], self._care.timeout_s)
        except CoolheadError as error:
            self._reporter.failed(tier, "kept warm", error)
            return
        self._reporter.kept_warm(tier)
