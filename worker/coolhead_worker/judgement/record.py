"""What a fit writes down: the schema of `fit.json`.

Guarantee: everything needed to judge the fit later is in it (which model, plan, labels and rows;
every candidate with its held-out figures; what was certified and what not), and the id changes when
anything but the time of the fit does. No path of a machine and no text of a state is in it.
"""

from __future__ import annotations

import hashlib
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator

from coolhead.answers import Method
from coolhead.policy import Probability, Thresholds, Tier
from coolhead.questions import canonical
from coolhead_worker.engine.protocol import PlanKind
from coolhead_worker.judgement.fitted import Limits, Route

FORMAT = "coolhead-fit/2"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LabelFileRecord(_Record):
    """A label file: its name without folder, sha256, and rows."""

    name: str
    sha256: str
    rows: int


class RowsRecord(_Record):
    """Rows by split; held-out ones were not read by the fit."""

    fit: int
    threshold: int
    held_out: int


class EngineRecord(_Record):
    """The model that gave the numbers: a fit is valid for this one and no other."""

    name: str
    sha256: str
    features_digest: str


class ScoresRecord(_Record):
    """As `scoring.Scores`."""

    n: int
    nll: float
    accuracy: float
    brier: float
    ece_mass: float
    ece_width: float


class CandidateRecord(_Record):
    """A method that was tried, with its nested cross-validated figures, or why it was refused."""

    method: Method
    scores: ScoresRecord | None
    refused: str | None = None


class CertificateRecord(_Record):
    """One side of a question. `threshold` and what follows it are None when nothing was certified;
    then about `needs_about` more threshold rows may do (None: out of reach, or nothing to tell by)."""

    side: Literal["accept_below", "accept_above", "accept_top"]
    alpha: float
    delta: float
    threshold: Probability | None = None
    n_accepted: int | None = None
    errors: int | None = None
    upper_bound: float | None = None
    needs_about: int | None = None


class RouteRecord(_Record):
    """Which inputs the deep tier's certificates speak of."""

    forced: bool
    thresholds: Thresholds | None = None
    closed: bool = False

    @classmethod
    def of(cls, route: Route) -> RouteRecord:
        """From the plain value, without the fit's id, which is not known yet."""
        if route.limits is None:
            return cls(forced=route.forced)
        return cls(forced=route.forced, thresholds=route.limits.thresholds, closed=route.limits.closed)

    def route(self, fit: str) -> Route:
        """The plain value, for the fit of this id."""
        if self.thresholds is None:
            return Route(forced=self.forced)
        return Route(forced=self.forced, limits=Limits(self.thresholds, self.closed), fit=fit)


class QuestionRecord(_Record):
    """One question on one tier. `scores` are of the chosen method on the threshold rows.

    `plan`: how it was read and is to be read; `plan_id` names everything beside the model that can
    move its numbers, of a pinned plan also all questions of the task.
    """

    id: str
    type: Literal["noul", "choice", "score"]
    fingerprint: str
    labels: tuple[str, ...]
    tier: Tier
    plan: PlanKind
    plan_id: str
    method: Method
    temperature: float | None = None
    bias: tuple[float, ...] | None = None
    strength: float | None = None
    rows_fit: int
    rows_threshold: int
    rows_reaching: int
    candidates: tuple[CandidateRecord, ...]
    why: str
    scores: ScoresRecord | None
    min_mass: Probability
    certificates: tuple[CertificateRecord, ...]
    given: RouteRecord | None
    guarantee: str
    warnings: tuple[str, ...]

    @model_validator(mode="after")
    def _read_as_its_method_wants(self) -> Self:
        if (self.method is Method.HEAD) != (self.plan is PlanKind.TRUNK):
            raise ValueError(f"{self.method.value} does not read by the plan {self.plan.value}")
        return self


class FitRecord(_Record):
    """The whole of `fit.json`."""

    format: Literal["coolhead-fit/2"] = "coolhead-fit/2"
    fit: str = ""
    fitted_at: str
    tool: str
    task: str
    seed: int
    alpha: float
    delta: float
    label_files: tuple[LabelFileRecord, ...]
    rows: RowsRecord
    engines: dict[Tier, EngineRecord]
    heads_sha256: str
    questions: tuple[QuestionRecord, ...]
    warnings: tuple[str, ...]

    def identified(self) -> FitRecord:
        """The same record with its id filled in."""
        return self.model_copy(update={"fit": self.expected_id()})

    def expected_id(self) -> str:
        """12 hex digits over everything but the id itself and the time of the fit."""
        body = self.model_dump(mode="json", exclude={"fit", "fitted_at"})
        return hashlib.sha256(canonical(body).encode()).hexdigest()[:12]
