"""Answers in the official System One form, with what coolhead knows beside them as `x_` fields.

Guarantee: an answer built by `answer_of` has probabilities over exactly the question's labels,
finite, in [0, 1], summing to 1 within 1e-9; score and confidence are computed from the very
numbers that are sent; nothing in an answer was generated as text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from coolhead.policy import Debias, Grey, Thresholds, Tier, verdict
from coolhead.questions import Content, Noul, Question, Score


class Outcome(StrEnum):
    """How a job ends, or goes on."""

    SUCCEEDED = "succeeded"
    REJECTED = "rejected"  #: never retried: the policy refuses
    PERMANENT = "permanent"  #: never retried: this input can't be judged
    TRANSIENT = "transient"  #: backed off and tried again, bounded
    UNAVAILABLE = "unavailable"  #: this node can't; another may
    EXPIRED = "expired"  #: the deadline passed
    QUARANTINED = "quarantined"  #: it ended its worker too often


class Status(StrEnum):
    """How much the probability of an answer may be trusted."""

    CERTIFIED = "certified"  #: accepted under a threshold with a stated error bound
    FITTED = "fitted"  #: calibrated on the user's labels, but not accepted under a certificate
    MODEL = "model"  #: calibrated by the model's author, not on the user's labels
    UNCALIBRATED = "uncalibrated"  #: placeholder temperature; nobody measured this question


class Method(StrEnum):
    """How logits became probabilities."""

    RAW = "raw"
    TEMPERATURE = "temperature"
    TEMPERATURE_BIAS = "temperature_bias"
    HEAD = "head"


class Provenance(BaseModel):
    """Where one answer comes from.

    `mass` is None for a learned head; `debias` tells in how many orders the options were read;
    `deep_unavailable`: the deep tier was wanted, but its model is not in memory now.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    tier: Tier = Field(alias="x_tier")
    escalated: Grey | None = Field(default=None, alias="x_escalated")
    flipped: bool = Field(default=False, alias="x_flipped")
    status: Status = Field(alias="x_status")
    method: Method = Field(alias="x_method")
    fit: str | None = Field(default=None, alias="x_fit")
    model: str = Field(alias="x_model")
    plan: str = Field(alias="x_plan")
    readout: str = Field(alias="x_readout")
    mass: float | None = Field(default=None, alias="x_mass")
    debias: Debias = Field(default=Debias.RAW, alias="x_debias")
    deep_unavailable: bool = Field(default=False, alias="x_deep_unavailable")


class NoulAnswer(Provenance):
    """P(yes), and the verdict of the thresholds."""

    type: Literal["noul"] = "noul"
    noul: float
    verdict: bool = Field(alias="x_verdict")

    @property
    def probabilities(self) -> dict[str, float]:
        """{"yes": p, "no": 1 - p}."""
        return {"yes": self.noul, "no": 1.0 - self.noul}


class ChoiceAnswer(Provenance):
    """The likeliest option."""

    type: Literal["choice"] = "choice"
    choice: str
    confidence: float
    probabilities: dict[str, float]


class ScoreAnswer(Provenance):
    """The expected level, from 0; `verdict` is the likeliest level."""

    type: Literal["score"] = "score"
    score: float
    confidence: float
    legend: dict[str, Content]
    probabilities: dict[str, float]
    verdict: int = Field(alias="x_verdict")


Answer = Annotated[NoulAnswer | ChoiceAnswer | ScoreAnswer, Field(discriminator="type")]


class Usage(BaseModel):
    """Tokens read; nothing is ever generated."""

    model_config = ConfigDict(frozen=True)

    input_tokens: int
    output_tokens: Literal[0] = 0


class Timing(BaseModel):
    """Seconds, by the server's clock for the wait and the node's monotonic clock for the rest.

    `wait_s`: first enqueue to the claim that led to the answer. `fast_s`, `deep_s`: the model
    calls (of the whole batch); `deep_s` is 0 when the deep tier was not asked.
    """

    model_config = ConfigDict(frozen=True)

    wait_s: float
    fast_s: float
    deep_s: float = 0.0

    @property
    def inference_s(self) -> float:
        """Both model calls together."""
        return self.fast_s + self.deep_s


class Decision(BaseModel):
    """The whole answer to a job: what `client.wait` and RQ's `return_value()` give."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    model: str
    answers: dict[str, Answer]
    usage: Usage
    version: Literal[1] = Field(default=1, alias="x_version")
    job_id: str = Field(alias="x_job_id")
    task: str | None = Field(default=None, alias="x_task")
    node: str = Field(alias="x_node")
    timing: Timing = Field(alias="x_timing")
    attempts: int = Field(default=1, alias="x_attempts")
    defers: int = Field(default=0, alias="x_defers")

    def wire(self) -> dict[str, Any]:
        """Plain data: official names, `x_` extras."""
        return self.model_dump(mode="json", by_alias=True)

    @classmethod
    def from_wire(cls, value: object) -> Decision:
        """The inverse of `wire`."""
        return cls.model_validate(value)


def choice_confidence(probabilities: Sequence[float]) -> float:
    """(k * max p - 1) / (k - 1): 0 at uniform, 1 at certainty (the formula of System One)."""
    k = len(probabilities)
    return min(1.0, max(0.0, (k * max(probabilities) - 1.0) / (k - 1.0)))


def score_confidence(probabilities: Sequence[float]) -> float:
    """1 - (expected distance from the mode) / (the same under uniform), clamped at 0.

    Source: the ordinal confidence of System One; U = sum |i - (n-1)/2| / n.
    """
    n = len(probabilities)
    mode = max(range(n), key=probabilities.__getitem__)
    spread = math.fsum(p * abs(i - mode) for i, p in enumerate(probabilities))
    uniform = math.fsum(abs(i - (n - 1) / 2) for i in range(n)) / n
    return min(1.0, max(0.0, 1.0 - spread / uniform))


def normalised(probabilities: Sequence[float]) -> tuple[float, ...]:
    """The same proportions, summing to 1 within 1e-9.

    Raises:
        ValueError: an entry is negative or not finite, or all are 0.
    """
    if any(not math.isfinite(p) or p < 0.0 for p in probabilities):
        raise ValueError("a probability is negative or not finite")
    total = math.fsum(probabilities)
    if total <= 0.0:
        raise ValueError("all probabilities are 0")
    return tuple(p / total for p in probabilities)


def answer_of(
    question: Question, probabilities: Sequence[float], limits: Thresholds, source: Provenance
) -> NoulAnswer | ChoiceAnswer | ScoreAnswer:
    """Build the answer of one question.

    Args:
        question: the question.
        probabilities: one per label, in the order of `question.labels`.
        limits: the thresholds in force (for the verdict of a noul).
        source: where the numbers come from.

    Raises:
        ValueError: the probabilities do not fit the question or are no distribution.
    """
    if len(probabilities) != len(question.labels):
        raise ValueError(f"{len(probabilities)} probabilities for {len(question.labels)} labels")
    p = normalised(probabilities)
    known = source.model_dump()
    said = verdict(question, p, limits)
    if isinstance(question, Noul):
        return NoulAnswer(**known, noul=p[0], verdict=bool(said))
    by_label = dict(zip(question.labels, p, strict=True))
    if isinstance(question, Score):
        return ScoreAnswer(
            **known,
            score=math.fsum(i * q for i, q in enumerate(p)),
            confidence=score_confidence(p),
            legend=dict(zip(question.labels, question.criteria, strict=True)),
            probabilities=by_label,
            verdict=int(said),
        )
    return ChoiceAnswer(**known, choice=str(said), confidence=choice_confidence(p), probabilities=by_label)
