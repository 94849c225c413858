"""One question as one tier learned to answer it.

Guarantee: plain values; what a fit certified is kept apart from what a user sets, so that an answer
is only called certified under the very limits that were tested.
"""

from __future__ import annotations

from dataclasses import dataclass

from coolhead.answers import Method
from coolhead.policy import Thresholds
from coolhead_worker.engine.protocol import PlanKind
from coolhead_worker.judgement.calibration import Calibrator

VERDICT_AT = 0.5
"""A fitted noul says yes from here on, unless the user sets another point."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits in force for one question on one tier.

    `closed`: no top probability is accepted, because a fit could certify none and the user set none.
    """

    thresholds: Thresholds
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Certified:
    """The thresholds a fit certified; None where it could not. `min_mass` was in force as it did."""

    accept_below: float | None = None
    accept_above: float | None = None
    accept_top: float | None = None
    min_mass: float = 0.0


@dataclass(frozen=True, slots=True)
class Route:
    """Which inputs reach the deep tier: all (`forced`), or those that the fast tier, reading by the
    fit of this id, does not accept under these limits."""

    forced: bool
    limits: Limits | None = None
    fit: str | None = None


@dataclass(frozen=True, slots=True)
class FittedQuestion:
    """An entry of a fit.

    `fit` is the fit's id. `given`, of the deep tier, is the route for which `certified` holds: a
    bound for the inputs that the fast tier passes on says nothing about other inputs. `pinned`: the id
    of the plan, when the numbers depend on the other questions of the task; else None.
    """

    fit: str
    calibrator: Calibrator
    certified: Certified
    given: Route | None = None
    pinned: str | None = None

    @property
    def plan(self) -> PlanKind:
        """How the question is read."""
        if self.calibrator.method is Method.HEAD:
            return PlanKind.TRUNK
        return PlanKind.ISOLATED if self.pinned is None else PlanKind.PINNED
