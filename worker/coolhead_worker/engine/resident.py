"""A model that can be given up for memory and loaded again, behind the `Engine` protocol.

Guarantee: name, digest, plan ids and the author's temperatures stay the same whether or not the model
is in memory; a call while it is away raises TierUnloaded and nothing else; giving it up waits for the
call that runs; what is loaded again is the same file, or it is not taken. A call that gave numbers
that are not finite makes the model a suspect until a self-check has passed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from coolhead.errors import (
    DecodeFailed,
    DecodeTimeout,
    ModelMismatch,
    NotFinite,
    StateTooLong,
    TierUnloaded,
)
from coolhead.questions import Question
from coolhead_worker.engine.protocol import Engine, EvalItem, Evaluation, PinnedSet, PlanKind
from coolhead_worker.engine.selfcheck import Verdict, check


class ResidentEngine:
    """An engine, and how to get it back.

    Args:
        load: brings the model into memory; called now, and for each `load()` after an `unload()`.
        examine: the self-check of this model, given the seconds for a call; None for one that compares
            the model with itself.

    Raises:
        NodeError: whatever `load` raises.
    """

    def __init__(
        self, load: Callable[[], Engine], examine: Callable[[Engine, float], Verdict] | None = None
    ) -> None:
        self._load = load
        self._examine = examine or _against_itself
        # A closed engine still knows its plans, so the last one is kept while the model is away.
        self._engine = load()
        self._loaded, self._closed = True, False
        self._lock = threading.Lock()
        self.suspect = False
        self.calls = 0  #: made so far, failed ones included
        self.name, self.digest = self._engine.name, self._engine.digest
        self.features_digest = self._engine.features_digest
        self.max_state_tokens = self._engine.max_state_tokens

    @property
    def loaded(self) -> bool:
        """Whether the model is in memory."""
        return self._loaded

    def plan_id(self, kind: PlanKind, pinned: PinnedSet | None = None) -> str:
        """See `Engine.plan_id`."""
        return self._engine.plan_id(kind, pinned)

    def temperature(self, question: Question) -> float | None:
        """See `Engine.temperature`."""
        return self._engine.temperature(question)

    def evaluate(self, items: Sequence[EvalItem], timeout_s: float) -> list[Evaluation | StateTooLong]:
        """See `Engine.evaluate`.

        Raises:
            TierUnloaded: the model is not in memory.
            DecodeFailed: closed for good; else what the model's engine raises.
        """
        with self._lock:
            engine = self._present()
            self.calls += 1
            try:
                return engine.evaluate(items, timeout_s)
            except NotFinite:
                self.suspect = True
                raise

    def examine(self, timeout_s: float) -> Verdict:
        """Check the model, with `timeout_s` seconds for a call.

        A model that passes, or can't be checked, is no suspect until it gives such numbers again.

        Raises:
            TierUnloaded, DecodeFailed, DecodeTimeout: it could not be checked.
            DecodeInterrupted: `interrupt` was called; a suspect stays one.
        """
        with self._lock:
            try:
                verdict = self._examine(self._present(), timeout_s)
            except (TierUnloaded, DecodeFailed, DecodeTimeout):
                self.suspect = False
                raise
            self.suspect = not verdict.passed
        return verdict

    def interrupt(self) -> None:
        """See `Engine.interrupt`; takes no lock, because the call that it stops holds it."""
        self._engine.interrupt()

    def unload(self) -> bool:
        """Give the memory back after the call that runs; False when it was away before."""
        with self._lock:
            if not self._loaded:
                return False
            self._loaded = self.suspect = False
            self._engine.close()
        return True

    def load(self) -> bool:
        """Bring the model back; False when it is there.

        Raises:
            ModelMismatch: the file is not the one that was there before.
            NodeError: whatever the loader raises; the model stays away then.
            DecodeFailed: closed for good.
        """
        with self._lock:
            if self._closed:
                raise DecodeFailed(f"{self.name}: this engine is closed")
            if self._loaded:
                return False
            engine = self._load()
            if (engine.digest, engine.features_digest) != (self.digest, self.features_digest):
                engine.close()
                raise ModelMismatch(
                    f"{self.name}: the file has changed since the start: restart the worker to take it"
                )
            self._engine, self._loaded = engine, True
        return True

    def close(self) -> None:
        """Give the memory back for good."""
        self.unload()
        self._closed = True

    def _present(self) -> Engine:
        if self._closed:
            raise DecodeFailed(f"{self.name}: this engine is closed")
        if not self._loaded:
            raise TierUnloaded(f"{self.name} is not in memory now: it is loaded again when there is room")
        return self._engine


def _against_itself(engine: Engine, timeout_s: float) -> Verdict:
    return check(engine, timeout_s=timeout_s)
