"""`calibration.json` of a NoulXP (OpenDXP) package: temperatures by type and number of options.

Guarantee: every temperature is a finite number above 0.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from coolhead.questions import Question
from coolhead_worker.engine.decision.prompt_file import Type

Temperature = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Range(BaseModel):
    """The temperature of questions with `min` to `max` options; no `max`: any number above."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Type
    min: Annotated[int, Field(ge=1)]
    max: Annotated[int, Field(ge=1)] | None = None
    temperature: Temperature

    def holds(self, question: Question) -> bool:
        """Whether this temperature is meant for the question."""
        count = len(question.labels)
        return question.type == self.type and self.min <= count and (self.max is None or count <= self.max)


class CalibrationFile(BaseModel):
    """The whole file."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    temperature: dict[Type, Temperature]
    by_option_count: tuple[Range, ...] = ()

    def of(self, question: Question) -> float:
        """The first range that holds the question, else its type's temperature, else 1, as in NoulXP."""
        ranged = (one.temperature for one in self.by_option_count if one.holds(question))
        return next(ranged, self.temperature.get(question.type, 1.0))
