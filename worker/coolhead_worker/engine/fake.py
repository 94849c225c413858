"""An engine without a model, for tests of everything above the engine.

Guarantee: the numbers of an item depend only on its state and question (hashes of the text), so
they are the same in every process; failures and delays come exactly at the calls they were asked
for.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from coolhead.errors import DecodeFailed, DecodeInterrupted, DecodeTimeout, StateTooLong
from coolhead.questions import Question
from coolhead_worker.engine.plan import set_digest
from coolhead_worker.engine.protocol import EvalItem, Evaluation, Floats, PinnedSet, PlanKind, Readout

Effect = BaseException | threading.Event
"""An exception to raise, or an event to wait for until the call's timeout."""

Answer = Callable[[str, Question], Sequence[float] | None]
"""Logits for a state and question, or None for hashed ones."""


class FakeEngine:
    """Deterministic logits from hashes.

    Args:
        effects: what happens at call number n, counted from 1.
        answer: logits by hand, one per label.
        mass: option mass of every readout.
        feature_count: length of the features.
        max_state_tokens: words of a state beyond which it is refused.
        plan: begins every plan id.
        temperatures: calibration of the model's author by question type.
    """

    def __init__(
        self,
        name: str = "fake",
        *,
        effects: Mapping[int, Effect] | None = None,
        answer: Answer | None = None,
        mass: float = 0.9,
        feature_count: int = 16,
        max_state_tokens: int = 2048,
        plan: str = "fake-v1",
        temperatures: Mapping[str, float] | None = None,
    ) -> None:
        self.name = name
        self.digest = hashlib.sha256(name.encode()).hexdigest()
        self._plan = plan
        self._temperatures = dict(temperatures or {})
        self.features_digest = hashlib.sha256(str(feature_count).encode()).hexdigest()[:32]
        self.max_state_tokens = max_state_tokens
        self.effects: dict[int, Effect] = dict(effects or {})
        self.calls: list[tuple[EvalItem, ...]] = []
        self.closed = False
        self.interrupted = threading.Event()
        self._answer, self._mass, self._feature_count = answer, mass, feature_count

    def plan_id(self, kind: PlanKind, pinned: PinnedSet | None = None) -> str:
        """The plan's name, its kind, and for a pinned one a hash of what stands before the state."""
        if kind is not PlanKind.PINNED:
            return f"{self._plan}.{kind}"
        return f"{self._plan}.{kind}.{set_digest(pinned or PinnedSet({}))}"

    def temperature(self, question: Question) -> float | None:
        """What was given for this type of question."""
        return self._temperatures.get(question.type)

    def interrupt(self) -> None:
        """End the wait of a running call."""
        self.interrupted.set()

    def evaluate(self, items: Sequence[EvalItem], timeout_s: float) -> list[Evaluation | StateTooLong]:
        """See `Engine.evaluate`; a word counts as a token.

        Raises:
            DecodeTimeout: the event of this call was not set within `timeout_s` seconds.
            DecodeInterrupted: `interrupt` was called while it waited.
            DecodeFailed: closed.
        """
        if self.closed:
            raise DecodeFailed("this engine is closed")
        self.calls.append(tuple(items))
        self.interrupted.clear()
        effect = self.effects.get(len(self.calls))
        if isinstance(effect, BaseException):
            raise effect
        if effect is not None:
            self._await(effect, timeout_s)
        return [self._evaluate_one(item) for item in items]

    def close(self) -> None:
        """Refuse further calls."""
        self.closed = True

    def _await(self, event: threading.Event, timeout_s: float) -> None:
        until = time.monotonic() + timeout_s
        while not event.wait(0.005):
            if self.interrupted.is_set():
                raise DecodeInterrupted
            if time.monotonic() >= until:
                raise DecodeTimeout(f"the model call was aborted after {timeout_s:.3g} s")

    def _evaluate_one(self, item: EvalItem) -> Evaluation | StateTooLong:
        tokens = len(item.state.split())
        if tokens > self.max_state_tokens:
            return StateTooLong(
                f"the state has {tokens} tokens, {self.name} reads at most "
                f"{self.max_state_tokens}: shorten it"
            )
        readouts = {name: self._readout(item.state, question) for name, question in item.questions.items()}
        features = _numbers(f"{self.name}\0{item.state}", self._feature_count) if item.trunk else None
        return Evaluation(readouts, features, tokens)

    def _readout(self, state: str, question: Question) -> Readout:
        given = None if self._answer is None else self._answer(state, question)
        k = len(question.labels)
        logits = (
            _numbers(f"{self.name}\0{state}\0{question.fingerprint}", k)
            if given is None
            else np.asarray(given, dtype=np.float64)
        )
        if logits.shape != (k,):
            raise ValueError(f"the answer by hand has shape {logits.shape} for {k} labels")
        peak = logits.max()
        return Readout(logits - peak - np.log(np.exp(logits - peak).sum()), self._mass, "names")


def _numbers(text: str, count: int) -> Floats:
    """`count` numbers in -4 .. 4 from a hash of `text`."""
    raw = hashlib.shake_256(text.encode("utf-8", "surrogatepass")).digest(4 * count)
    return np.frombuffer(raw, dtype="<u4").astype(np.float64) / 2**32 * 8.0 - 4.0
