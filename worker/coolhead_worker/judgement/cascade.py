"""Two tiers, one answer: how to read, what to accept, what to ask the deep tier, which answer counts.

Guarantee: pure. A limit set by the user wins over a certified one of a fit, which wins over the
default. Only questions that the fast tier may not accept go deep; a deep pass that fails leaves the
fast answer, with the reason it was escalated. An answer is `certified` only when the limits in force
are exactly those of the certificate and the answer lies inside them. A fit is only used with numbers
that are read by the plan it was fitted on.
"""

from __future__ import annotations

from dataclasses import dataclass

from coolhead.answers import Method, Status
from coolhead.policy import (
    Calibration,
    Debias,
    Escalation,
    Grey,
    LowMass,
    Policy,
    Thresholds,
    Tier,
    grey,
    verdict,
)
from coolhead.questions import Noul, Question
from coolhead_worker.engine.protocol import PlanKind
from coolhead_worker.judgement.calibration import PLACEHOLDER, Calibrator, Floats, Raw, Temperature
from coolhead_worker.judgement.fitted import VERDICT_AT, FittedQuestion, Limits, Route


@dataclass(frozen=True, slots=True)
class Basis:
    """How one tier reads a question, how its numbers become probabilities, and what stands behind that.

    `plan`: by `trunk` the numbers are its features, else the question's own label logits. `fitted`: the
    fit, if one is used; `authored`: there is none, but the temperature is the model author's.
    """

    calibrator: Calibrator
    fitted: FittedQuestion | None
    plan: PlanKind
    authored: bool = False

    def status(self, *, certified: bool) -> Status:
        """How far its probabilities may be trusted; `certified`: a certificate covers this one."""
        if self.fitted is None:
            return Status.MODEL if self.authored else Status.UNCALIBRATED
        return Status.CERTIFIED if certified else Status.FITTED


@dataclass(frozen=True, slots=True)
class Numbers:
    """What a tier says: label logits (k,) with their option mass, or features (f,) without.

    `kind`: of the readout, or trunk; `plan`: the id of the plan; `debias`: the orders that were read.
    """

    x: Floats
    mass: float | None
    kind: str
    plan: str
    debias: Debias = Debias.RAW


@dataclass(frozen=True, slots=True)
class Assessed:
    """One tier's answer to one question; `grey` is None when it is accepted."""

    tier: Tier
    probabilities: tuple[float, ...]
    grey: Grey | None
    status: Status
    limits: Limits
    method: Method
    fit: str | None
    mass: float | None
    kind: str
    plan: str
    debias: Debias

    @property
    def low(self) -> bool:
        """Whether the model hardly considered the options."""
        return self.mass is not None and self.mass < self.limits.thresholds.min_mass


@dataclass(frozen=True, slots=True)
class Settled:
    """The answer that counts, why the deep tier was asked, and whether it changed the verdict."""

    answer: Assessed
    escalated: Grey | None = None
    flipped: bool = False


def basis_of(
    found: FittedQuestion | None, wanted: Calibration, text: PlanKind, authored: float | None
) -> Basis:
    """How a question is read on a tier.

    Args:
        found: its fit, if there is one that speaks of how this job may be read.
        wanted: by `fitted` the fit, else the author's temperature, else the placeholder.
        text: the plan by which it is read without a fit.
        authored: the temperature that the model's author ships for it, if any.
    """
    if wanted is Calibration.RAW:
        return Basis(Raw(), None, text)
    if wanted is Calibration.FITTED and found is not None:
        return Basis(found.calibrator, found, found.plan)
    if wanted is Calibration.FITTED and authored is not None:
        return Basis(Temperature(authored), None, text, authored=True)
    return Basis(PLACEHOLDER, None, text)


def limits_in_force(user: Thresholds, fitted: FittedQuestion | None) -> Limits:
    """The user's limits where set, else the fit's, else the defaults.

    A fit that certified nothing accepts nothing: every question goes deep until the user says
    otherwise. A limit that is not the user's gives way when the user's `verdict_at`, `accept_below`
    or `accept_above` leave it on the wrong side.
    """
    said = user.model_fields_set
    values = {name: getattr(user, name) for name in Thresholds.model_fields}
    values.update({name: value for name, value in _of_fit(fitted).items() if name not in said})
    below, above = values["accept_below"], values["accept_above"]
    if "verdict_at" not in said:
        low = below if "accept_below" in said else 0.0
        high = above if "accept_above" in said and above is not None else 1.0
        values["verdict_at"] = min(max(values["verdict_at"], low), high)
    if "accept_below" not in said:
        values["accept_below"] = min(below, values["verdict_at"])
    if "accept_above" not in said and above is not None:
        values["accept_above"] = max(above, values["verdict_at"])
    closed = fitted is not None and fitted.certified.accept_top is None and "accept_top" not in said
    return Limits(Thresholds(**values), closed)


def _of_fit(fitted: FittedQuestion | None) -> dict[str, float | None]:
    if fitted is None:
        return {}
    certified = fitted.certified
    return {
        "accept_below": certified.accept_below or 0.0,
        "accept_above": certified.accept_above,
        "accept_top": 1.0 if certified.accept_top is None else certified.accept_top,
        "verdict_at": VERDICT_AT,
        "min_mass": certified.min_mass,
    }


def why_grey(
    question: Question, probabilities: tuple[float, ...], mass: float | None, limits: Limits
) -> Grey | None:
    """Why an answer may not be accepted, or None when it may."""
    reason = grey(question, probabilities, mass, limits.thresholds)
    if reason is None and limits.closed and not isinstance(question, Noul):
        return Grey.GREY_ZONE
    return reason


def assess(
    question: Question,
    tier: Tier,
    basis: Basis,
    numbers: Numbers,
    user: Thresholds,
    route: Route | None = None,
) -> Assessed:
    """One tier's numbers as probabilities, accepted or not, and how far they may be trusted.

    Args:
        question: the question.
        tier: whose numbers these are.
        basis: how to read them.
        numbers: logits or features, read by `basis.plan`.
        user: the thresholds of the policy, with what the user set in `model_fields_set`.
        route: for the deep tier, how the input came there.

    Raises:
        ValueError: the numbers are not finite or do not fit the calibrator.
    """
    probabilities = tuple(map(float, basis.calibrator.probabilities(numbers.x)))
    limits = limits_in_force(user, basis.fitted)
    reason = why_grey(question, probabilities, numbers.mass, limits)
    certified = reason is None and _inside_certificate(question, probabilities, numbers.mass, limits, basis)
    if basis.fitted is not None and basis.fitted.given != route:
        certified = False
    return Assessed(
        tier=tier,
        probabilities=probabilities,
        grey=reason,
        status=basis.status(certified=certified),
        limits=limits,
        method=basis.calibrator.method,
        fit=None if basis.fitted is None else basis.fitted.fit,
        mass=numbers.mass,
        kind=numbers.kind,
        plan=numbers.plan,
        debias=numbers.debias,
    )


def _inside_certificate(
    question: Question, probabilities: tuple[float, ...], mass: float | None, limits: Limits, basis: Basis
) -> bool:
    if basis.fitted is None:
        return False
    certified, force = basis.fitted.certified, limits.thresholds
    if mass is not None and force.min_mass != certified.min_mass:
        return False
    if not isinstance(question, Noul):
        return force.accept_top == certified.accept_top
    if probabilities[0] < force.accept_below:
        return force.accept_below == certified.accept_below
    return force.accept_above == certified.accept_above


def reason_to_ask(fast: Assessed, escalation: Escalation, *, deep: bool) -> Grey | None:
    """Why the deep tier is asked, or None when it is not. `deep`: whether there is one."""
    if not deep or escalation is Escalation.NEVER:
        return None
    return Grey.FORCED if escalation is Escalation.ALWAYS else fast.grey


def route_of(limits: Limits, fit: str | None, escalation: Escalation) -> Route:
    """Which inputs reach the deep tier, given the fast tier's limits and fit, and the policy."""
    if escalation is Escalation.ALWAYS:
        return Route(forced=True)
    return Route(forced=False, limits=limits, fit=fit)


def settle(question: Question, fast: Assessed, reason: Grey | None, deep: Assessed | None) -> Settled:
    """The deep answer when there is one, else the fast one."""
    if deep is None:
        return Settled(fast, reason)
    before = verdict(question, fast.probabilities, fast.limits.thresholds)
    after = verdict(question, deep.probabilities, deep.limits.thresholds)
    return Settled(deep, reason, before != after)


def refused(policy: Policy, fast: Assessed, deep: Assessed | None) -> bool:
    """Whether every tier that answered hardly considered the options and the policy refuses that."""
    low = fast.low and (deep is None or deep.low)
    return low and policy.on_low_mass is LowMass.REFUSE
