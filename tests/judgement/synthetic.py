"""A task, labelled rows and an engine whose features carry the label, as strongly as a test wants."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from coolhead.errors import StateTooLong
from coolhead.questions import Question
from coolhead.task import Task
from coolhead_worker.engine.fake import FakeEngine
from coolhead_worker.engine.protocol import EvalItem, Evaluation

FEATURES = 12

TASK = Task.build(
    {
        "name": "tickets",
        "questions": {
            "queue": {"type": "choice", "criteria": ["billing", "technical", "sales"]},
            "refund": {"type": "noul", "instructions": "Does the author ask for money back?"},
            "urgency": {"type": "score", "criteria": ["low", "middle", "high"]},
        },
        "labels": {"urgency": {"first": 1}},
    }
)
QUEUE, REFUND, URGENCY = (TASK.questions[name] for name in ("queue", "refund", "urgency"))


def text_of_row(i: int) -> str:
    """A state that names its labels: the synthetic engine reads them, blurred."""
    return f"ticket {i} queue {i % 3} refund {i // 3 % 2} urgency {i // 7 % 3}"


def row(i: int, **extra: object) -> dict[str, object]:
    """A labelled row in wire form."""
    return {
        "text": text_of_row(i),
        "queue": QUEUE.labels[i % 3],
        "refund": i // 3 % 2 == 0,
        "urgency": 1 + i // 7 % 3,
        **extra,
    }


def write_rows(path: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in rows), "utf-8")
    return path


def noise(text: str, count: int) -> np.ndarray:
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    return np.random.default_rng(seed).normal(size=count)


class SyntheticEngine(FakeEngine):
    """Features: one column per label of every question, `signal` high (the queue's 0.6 of it), under
    unit noise.

    Text readouts see the label with strength `text`, plus a liking for the first option.
    """

    def __init__(self, name: str = "fake", *, signal: float = 3.0, text: float = 0.5, **more) -> None:
        super().__init__(name, feature_count=FEATURES, answer=self._logits, **more)
        self.signal, self.text = signal, text

    def evaluate(self, items: Sequence[EvalItem], timeout_s: float) -> list[Evaluation | StateTooLong]:
        said = super().evaluate(items, timeout_s)
        return [
            one
            if isinstance(one, StateTooLong) or one.features is None
            else replace(one, features=self._features(item.state))
            for item, one in zip(items, said, strict=True)
        ]

    def _features(self, state: str) -> np.ndarray:
        words = state.split()
        queue, refund, urgency = (int(words[at]) for at in (3, 5, 7))
        features = noise(self.name + state, FEATURES)
        for column, strength in ((queue, 0.6), (3 + refund, 1.0), (5 + urgency, 1.0)):
            features[column] += strength * self.signal
        return features

    def _logits(self, state: str, question: Question) -> Sequence[float] | None:
        place = {QUEUE.fingerprint: 3, REFUND.fingerprint: 5, URGENCY.fingerprint: 7}.get(
            question.fingerprint
        )
        if place is None or not state.startswith("ticket "):
            return None
        logits = noise(self.name + question.type + state, len(question.labels))
        logits[int(state.split()[place])] += self.text
        logits[0] += 2.0
        return list(logits)
