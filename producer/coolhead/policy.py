"""What to accept, what to escalate, what to refuse: pure rules on probabilities.

Guarantee: a `Policy` that exists has finite thresholds in range; the same answer under the same
thresholds always gets the same verdict. The defaults 0.20 (accept "no" below) and 0.75 (the deep
tier says "yes" at or above) are the placeholders of the reference article, and the temperature
1.45 that goes with them stands in `coolhead_worker.judgement.calibration`; an answer made with
them is reported as `uncalibrated`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from coolhead.errors import InvalidPolicy
from coolhead.questions import Noul, Question, explain

Probability = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]


class Lane(StrEnum):
    """Who waits for the answer."""

    INTERACTIVE = "interactive"  #: a person or a request waits
    BULK = "bulk"  #: nobody waits; stops first when the machine is warm


class Tier(StrEnum):
    """Which model answered."""

    FAST = "fast"
    DEEP = "deep"


class Grey(StrEnum):
    """Why the fast tier's answer is not accepted."""

    GREY_ZONE = "grey_zone"  #: the probability lies between the thresholds
    LOW_MASS = "low_mass"  #: the model hardly considered the options at all
    FORCED = "forced"  #: the policy sends every question to the deep tier


class LowMass(StrEnum):
    """What to do when both tiers hardly considered the options."""

    ANSWER = "answer"  #: answer, with the mass on the answer
    REFUSE = "refuse"  #: the job ends as rejected


class Escalation(StrEnum):
    """When the deep tier is asked."""

    GREY = "grey"  #: for questions in the grey zone
    ALWAYS = "always"
    NEVER = "never"


class Calibration(StrEnum):
    """Which probabilities are asked for."""

    FITTED = "fitted"  #: the node's fit where there is one, else the model author's, else the placeholder
    PLACEHOLDER = "placeholder"  #: text readout under the placeholder temperature, whatever is fitted
    RAW = "raw"  #: text readout as it comes


class Debias(StrEnum):
    """In how many orders the options of a question are shown, to cancel a liking for a place."""

    RAW = "raw"  #: as they stand
    REVERSED = "reversed"  #: forward and backward
    ROTATED = "rotated"  #: every cyclic shift, up to 8


class Thresholds(BaseModel):
    """The limits of one question.

    `accept_below`, `accept_above` and `verdict_at` speak of P(yes) of a noul, `accept_top` of the
    largest probability of a choice or score, `min_mass` of the share of the whole vocabulary that
    the options hold (of text readouts; a learned head has no mass).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    accept_below: Probability = 0.20
    accept_above: Probability | None = None
    verdict_at: Probability = 0.75
    accept_top: Probability = 0.75
    min_mass: Probability = 0.0

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.accept_below > self.verdict_at:
            raise ValueError("accept_below must not be above verdict_at")
        if self.accept_above is not None and self.accept_above < self.verdict_at:
            raise ValueError("accept_above must not be below verdict_at")
        return self


class Policy(BaseModel):
    """How the questions of a job are decided.

    Thresholds that are set here by the user win over certified ones of a fit, which win over the
    defaults; the worker tells them apart by `thresholds.model_fields_set`.

    `debias` speaks of questions without a fit (a fitted one is read as it was fitted): other orders
    of the options are read too, in the same call, where the two likeliest labels are closer than
    `near_tie` in probability (1: always).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    thresholds: Thresholds = Thresholds()
    per_question: dict[str, Thresholds] = Field(default_factory=dict)
    escalation: Escalation = Escalation.GREY
    on_low_mass: LowMass = LowMass.ANSWER
    calibration: Calibration = Calibration.FITTED
    debias: Debias = Debias.RAW
    near_tie: Probability = 0.1

    @classmethod
    def parse(cls, value: object) -> Policy:
        """Read a policy from plain data, `None` or `Policy`.

        Raises:
            InvalidPolicy: with the place and the rule of the first fault.
        """
        if isinstance(value, Policy):
            return value
        try:
            return cls.model_validate({} if value is None else value)
        except ValidationError as error:
            raise InvalidPolicy(explain(error, "policy")) from None

    def for_question(self, name: str) -> Thresholds:
        """The thresholds of one question."""
        return self.per_question.get(name, self.thresholds)

    def wire(self) -> dict[str, Any]:
        """Plain data with only what the user set."""
        return self.model_dump(mode="json", exclude_unset=True)


def grey(
    question: Question, probabilities: Sequence[float], mass: float | None, limits: Thresholds
) -> Grey | None:
    """Why the fast tier may not answer this question, or None when it may.

    Args:
        question: the question.
        probabilities: one per label, in the order of `question.labels`, summing to 1.
        mass: option mass over the vocabulary, or None for a learned head.
        limits: the thresholds in force.
    """
    if mass is not None and mass < limits.min_mass:
        return Grey.LOW_MASS
    if isinstance(question, Noul):
        yes = probabilities[0]
        accepted = yes < limits.accept_below or (
            limits.accept_above is not None and yes >= limits.accept_above
        )
    else:
        accepted = max(probabilities) >= limits.accept_top
    return None if accepted else Grey.GREY_ZONE


def verdict(question: Question, probabilities: Sequence[float], limits: Thresholds) -> bool | str | int:
    """What the numbers say: noul yes at or above `verdict_at`, else the likeliest label.

    Returns a bool for a noul, the option's name for a choice, the level's index for a score;
    the first of equals.
    """
    if isinstance(question, Noul):
        return probabilities[0] >= limits.verdict_at
    best = max(range(len(probabilities)), key=probabilities.__getitem__)
    return best if question.type == "score" else question.labels[best]
