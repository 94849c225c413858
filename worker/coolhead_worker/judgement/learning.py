"""One question on one tier: chosen, refitted, measured and certified.

Guarantee: calibrators see only fit rows, thresholds are tested only on threshold rows, and the deep
tier only on those that reach it. Needs scipy: only the `fit` command imports this module.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from coolhead.answers import Method
from coolhead.policy import Policy
from coolhead.questions import Question
from coolhead_worker.judgement.calibration import Calibrator
from coolhead_worker.judgement.cascade import limits_in_force, route_of, why_grey
from coolhead_worker.judgement.certifying import Said, SideResult, certified_of, certify_sides
from coolhead_worker.judgement.fitted import FittedQuestion, Route
from coolhead_worker.judgement.scoring import Flags, Scores, correct, score
from coolhead_worker.judgement.selection import Candidate, candidates, choose, fit_method
from coolhead_worker.judgement.table import Table

LEAST_ROWS = 20
"""Fewer labelled fit rows than this support no choice between methods."""

UNNAMED = ""
"""Stands for the fit's id until all of it is written."""


@dataclass(frozen=True, slots=True)
class Learned:
    """A fitted question with everything it was chosen and judged by.

    `seen` and `tested` hold all fit and threshold rows; `reaching` flags the threshold rows that the
    sides were tested on (all of them for the fast tier).
    """

    fit: Table
    threshold: Table
    tried: tuple[Candidate, ...]
    why: str
    strength: float | None
    calibrator: Calibrator
    seen: Said
    tested: Said
    reaching: Flags
    min_mass: float
    sides: tuple[SideResult, ...]
    given: Route | None

    @property
    def fitted(self) -> FittedQuestion:
        """As the judge will see it, but for the id."""
        certified = certified_of(self.sides, self.min_mass)
        return FittedQuestion(UNNAMED, self.calibrator, certified, self.given)

    @property
    def scores(self) -> Scores | None:
        """The chosen method on all threshold rows, if there are any."""
        if not len(self.threshold):
            return None
        return score(self.tested.probabilities, self.tested.labels)


@dataclass(frozen=True, slots=True)
class Course:
    """What holds for a whole fit."""

    policy: Policy
    seed: int
    alpha: float
    delta: float
    methods: tuple[Method, ...] = tuple(Method)


def unfit(question: Question, fit: Table) -> str:
    """Why these fit rows support nothing; "" when they do."""
    if len(fit) < LEAST_ROWS:
        return f"{len(fit)} labelled fit rows, {LEAST_ROWS} are needed: not fitted"
    counts = Counter(fit.rows.labels.tolist())
    if len(counts) < 2:
        return f"every fit row says {question.labels[next(iter(counts))]!r}: not fitted"
    return ""


def learn(
    name: str,
    question: Question,
    tables: tuple[Table, Table],
    course: Course,
    fast: Learned | None = None,
) -> Learned:
    """Fit a question on a tier.

    Args:
        name: the question's id, for the policy.
        question: the question.
        tables: fit rows (enough by `unfit`) and threshold rows.
        course: what holds for the whole fit.
        fast: for the deep tier, what the fast tier learned.
    """
    fit, threshold = tables
    tried = candidates(fit.rows, course.seed, course.methods)
    best, why = choose(tried)
    calibrator, strength = fit_method(best.method, fit.rows, course.seed)
    user = course.policy.for_question(name)
    min_mass = 0.0 if best.method is Method.HEAD else user.min_mass
    assert best.out_of_fold is not None
    seen = Said(best.out_of_fold, fit.rows.labels, fit.mass >= min_mass)
    predicted = calibrator.probabilities(threshold.rows.input_of(best.method))
    tested = Said(predicted, threshold.rows.labels, threshold.mass >= min_mass)
    given = _route(name, course, fast)
    reaching = _reaching(question, None if fast is None else (fast.threshold, fast.tested), given, threshold)
    seen_reaching = _reaching(question, None if fast is None else (fast.fit, fast.seen), given, fit)
    sides = certify_sides(
        question, seen.take(seen_reaching), tested.take(reaching), user, course.alpha, course.delta
    )
    return Learned(
        fit,
        threshold,
        tuple(tried),
        why,
        strength,
        calibrator,
        seen,
        tested,
        reaching,
        min_mass,
        sides,
        given,
    )


def _route(name: str, course: Course, fast: Learned | None) -> Route | None:
    """Which inputs the deep tier will see; None for the fast tier itself."""
    if fast is None:
        return None
    limits = limits_in_force(course.policy.for_question(name), fast.fitted)
    return route_of(limits, UNNAMED, course.policy.escalation)


def _reaching(
    question: Question, before: tuple[Table, Said] | None, given: Route | None, mine: Table
) -> Flags:
    """Flags of my rows that come through: those the fast tier does not accept, or all."""
    if before is None or given is None or given.limits is None:
        return np.ones(len(mine), dtype=np.bool_)
    table, said = before
    # the mass rule needs no look at the mass itself: `heavy` already says what it would
    passed_on = {
        int(place)
        for place, p, heavy in zip(table.at, said.probabilities, said.heavy, strict=True)
        if not heavy or why_grey(question, tuple(map(float, p)), None, given.limits) is not None
    }
    return np.array([int(place) in passed_on for place in mine.at], dtype=np.bool_)


def against(fast: Learned, deep: Learned) -> tuple[int, int, int]:
    """Of the threshold rows that reach the deep tier: how many, right by fast, right by deep.

    By the likeliest label, whatever the verdict point.
    """
    right_before = dict(
        zip(fast.threshold.at.tolist(), correct(fast.tested.probabilities, fast.tested.labels), strict=True)
    )
    reached = deep.tested.take(deep.reaching)
    places = deep.threshold.at[deep.reaching].tolist()
    by_fast = sum(bool(right_before[place]) for place in places)
    return len(places), by_fast, int(correct(reached.probabilities, reached.labels).sum())
