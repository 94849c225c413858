"""The deep model of a node: given up when memory gets critical or it is damaged, and brought back.

Guarantee: what is done is what `engine.residency` decides; a model that can't be brought back is
tried again later and later, and the node goes on with its fast tier; nothing is loaded while every
lane is closed.
"""

from __future__ import annotations

from coolhead.errors import CoolheadError
from coolhead.policy import Tier
from coolhead_worker.admission.conditions import Conditions, Memory
from coolhead_worker.clock import Clock
from coolhead_worker.engine.residency import Move, decide, next_hold, normal_since
from coolhead_worker.engine.resident import ResidentEngine
from coolhead_worker.metrics_labels import Absence
from coolhead_worker.model_report import ModelReporter


class DeepTier:
    """One thread tends it: the node's loop, between jobs."""

    def __init__(self, engine: ResidentEngine, clock: Clock, reporter: ModelReporter, hold_s: float) -> None:
        """`hold_s`: how long memory must have been normal before the model comes back."""
        self._engine = engine
        self._clock = clock
        self._reporter = reporter
        self._base_s = self._hold_s = hold_s
        self._normal_since: float | None = None
        self._back_at: float | None = None
        self._absence: Absence = "memory"
        self.reason = ""  #: why the model is away, in one line; "" while it is in memory

    def tend(self, conditions: Conditions, *, is_open: bool) -> None:
        """Act on the newest reading; `is_open` tells whether this node may work now."""
        now = self._clock.monotonic()
        memory = self._memory(conditions)
        self._normal_since = normal_since(memory, self._normal_since, now)
        move = decide(
            memory, loaded=self._engine.loaded, normal_since=self._normal_since, now=now, hold_s=self._hold_s
        )
        if move is Move.UNLOAD:
            source = conditions.memory_source or "source not named"
            self.give_up("memory", f"memory pressure critical ({source})")
        elif move is Move.LOAD and is_open:
            self._bring_back()

    def give_up(self, absence: Absence, why: str) -> None:
        """Unload the model; `why` is for people."""
        if not self._engine.unload():
            return
        now = self._clock.monotonic()
        resident_s = None if self._back_at is None else now - self._back_at
        self._hold_s = next_hold(self._hold_s, self._base_s, resident_s)
        self._normal_since, self._absence = None, absence
        self.reason = f"deep model unloaded: {why}"
        self._reporter.unloaded(Tier.DEEP, absence, why)

    def _bring_back(self) -> None:
        try:
            self._engine.load()
        except CoolheadError as error:
            # As if it had come back and had to go at once: the next try waits longer.
            self._hold_s = next_hold(self._hold_s, self._base_s, 0.0)
            self._normal_since = None
            self._reporter.failed(Tier.DEEP, "loaded again", error)
            return
        self._back_at = self._clock.monotonic()
        self.reason = ""
        self._reporter.cold_start(Tier.DEEP, self._absence)

    def _memory(self, conditions: Conditions) -> Memory:
        """Where nobody can read it, memory does not keep a model away that left for damage."""
        if self._absence == "damage" and conditions.memory is Memory.UNKNOWN:
            return Memory.NORMAL
        return conditions.memory
