"""The thresholds of one question on one tier, certified side by side.

Guarantee: what is tested here is what the cascade accepts: the same comparison, the same mass rule,
the same verdict. A noul has two sides, each with half of delta; the start of every walk is chosen on
the out-of-fold rows of the fit split, which the test does not use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from coolhead.policy import Thresholds
from coolhead.questions import Noul, Question
from coolhead_worker.judgement.calibration import Floats
from coolhead_worker.judgement.fitted import VERDICT_AT, Certified
from coolhead_worker.judgement.guarantee import (
    GRID,
    Certificate,
    NotCertified,
    certify,
    certify_below,
    starting_at,
)
from coolhead_worker.judgement.scoring import Flags, Labels, confidence, correct

Side = Literal["accept_below", "accept_above", "accept_top"]


@dataclass(frozen=True, slots=True)
class Said:
    """Probabilities (n, k), labels (n,), and whether the option mass suffices (n,)."""

    probabilities: Floats
    labels: Labels
    heavy: Flags

    def take(self, keep: Flags) -> Said:
        """The rows whose flag is set."""
        return Said(self.probabilities[keep], self.labels[keep], self.heavy[keep])


@dataclass(frozen=True, slots=True)
class SideResult:
    """What the walk of one side found, at its share of delta."""

    side: Side
    alpha: float
    delta: float
    found: Certificate | NotCertified


def certify_sides(
    question: Question, seen: Said, tested: Said, user: Thresholds, alpha: float, delta: float
) -> tuple[SideResult, ...]:
    """Certify each side of a question.

    Args:
        question: the question.
        seen: out-of-fold rows of the fit split, only for the starts.
        tested: rows of the threshold split.
        user: the policy's thresholds; a `verdict_at` set there bounds the sides of a noul.
        alpha: allowed share of wrong answers among the accepted, for each side.
        delta: allowed chance of a wrong certificate, over all sides.
    """
    if not isinstance(question, Noul):
        # the largest of k probabilities is never below 1 / k
        useful = tuple(t for t in GRID if t * len(question.labels) >= 1.0)
        return (_upper("accept_top", useful, _top(seen), _top(tested), alpha, delta),)
    pivot = user.verdict_at if "verdict_at" in user.model_fields_set else VERDICT_AT
    above = tuple(t for t in GRID if t >= pivot)
    below = tuple(t for t in (round(1.0 - t, 3) for t in GRID) if t <= pivot)
    return (
        _lower(below, seen, tested, alpha, delta / 2),
        _upper("accept_above", above, _yes(seen), _yes(tested), alpha, delta / 2),
    )


def certified_of(results: tuple[SideResult, ...], min_mass: float) -> Certified:
    """The thresholds that were certified."""
    granted = {r.side: r.found.threshold for r in results if isinstance(r.found, Certificate)}
    return Certified(**granted, min_mass=min_mass)


Column = tuple[Floats, Flags]
"""Values to compare with a threshold, and whether the verdict beyond it is right."""


def _top(said: Said) -> Column:
    if not len(said.labels):
        return np.zeros(0), np.zeros(0, dtype=np.bool_)
    values = np.where(said.heavy, confidence(said.probabilities), -np.inf)
    return values, correct(said.probabilities, said.labels)


def _yes(said: Said) -> Column:
    return np.where(said.heavy, said.probabilities[:, 0], -np.inf), said.labels == 0


def _no(said: Said) -> Column:
    return np.where(said.heavy, said.probabilities[:, 0], np.inf), said.labels == 1


def _upper(
    side: Side, grid: tuple[float, ...], seen: Column, tested: Column, alpha: float, delta: float
) -> SideResult:
    chain = starting_at(grid, lambda t: seen[0] >= t, seen[1], len(tested[1]), alpha, delta)
    return SideResult(side, alpha, delta, certify(*tested, alpha, delta, chain))


def _lower(grid: tuple[float, ...], seen: Said, tested: Said, alpha: float, delta: float) -> SideResult:
    value, right = _no(seen)
    chain = starting_at(grid, lambda t: value < t, right, len(tested.labels), alpha, delta)
    return SideResult("accept_below", alpha, delta, certify_below(*_no(tested), alpha, delta, chain))
