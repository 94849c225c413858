"""A learned question as a record of the fit, and its guarantee in words.

Guarantee: pure; the words claim no more than the certificates: per tier, for inputs like the
threshold rows, and together by the sum of both deltas.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict

from coolhead.policy import Thresholds, Tier
from coolhead.questions import Noul, Question
from coolhead_worker.engine.protocol import PlanKind
from coolhead_worker.judgement.calibration import Temperature, TemperatureBias
from coolhead_worker.judgement.certifying import SideResult
from coolhead_worker.judgement.guarantee import Certificate, NotCertified
from coolhead_worker.judgement.learning import Course, Learned, against
from coolhead_worker.judgement.record import (
    CandidateRecord,
    CertificateRecord,
    QuestionRecord,
    RouteRecord,
    ScoresRecord,
)
from coolhead_worker.judgement.scoring import Scores
from coolhead_worker.judgement.selection import Candidate


def question_record(
    name: str,
    question: Question,
    tier: Tier,
    plan: tuple[PlanKind, str],
    learned: Learned,
    course: Course,
    fast: Learned | None,
) -> QuestionRecord:
    """Everything of a learned question that is written down.

    Args:
        name: the question's id.
        question: the question.
        tier: whose numbers were learned from.
        plan: how those of the chosen method are read: the kind and the id.
        learned: what came out.
        course: what holds for the whole fit.
        fast: for the deep tier, what the fast tier learned.
    """
    calibrator = learned.calibrator
    return QuestionRecord(
        id=name,
        type=question.type,
        fingerprint=question.fingerprint,
        labels=question.labels,
        tier=tier,
        plan=plan[0],
        plan_id=plan[1],
        method=calibrator.method,
        temperature=calibrator.t if isinstance(calibrator, Temperature | TemperatureBias) else None,
        bias=tuple(calibrator.bias.tolist()) if isinstance(calibrator, TemperatureBias) else None,
        strength=learned.strength,
        rows_fit=len(learned.fit),
        rows_threshold=len(learned.threshold),
        rows_reaching=int(learned.reaching.sum()),
        candidates=tuple(map(_candidate, learned.tried)),
        why=learned.why,
        scores=_scores(learned.scores),
        min_mass=learned.min_mass,
        certificates=tuple(_certificate(side, learned) for side in learned.sides),
        given=None if learned.given is None else RouteRecord.of(learned.given),
        guarantee=guarantee_in_words(tier, learned.sides, course.delta),
        warnings=tuple(_warnings(question, learned, course.policy.for_question(name), fast)),
    )


def _scores(scores: Scores | None) -> ScoresRecord | None:
    return None if scores is None else ScoresRecord(**asdict(scores))


def _candidate(tried: Candidate) -> CandidateRecord:
    return CandidateRecord(method=tried.method, scores=_scores(tried.scores), refused=tried.refused)


def _certificate(result: SideResult, learned: Learned) -> CertificateRecord:
    found = result.found
    if isinstance(found, Certificate):
        return CertificateRecord(side=result.side, **asdict(found))
    return CertificateRecord(
        side=result.side, alpha=result.alpha, delta=result.delta, needs_about=_rows_more(found, learned)
    )


def _rows_more(found: NotCertified, learned: Learned) -> int | None:
    """Threshold rows to add: only a share of them reaches the tier; None without any to judge by."""
    reaching = int(learned.reaching.sum())
    if found.needs_about is None or (not reaching and learned.given is not None):
        return None
    return math.ceil(found.needs_about * len(learned.threshold) / reaching) if reaching else found.needs_about


_RULES = {
    "accept_below": "P(yes) below {t:g} (no)",
    "accept_above": "P(yes) of {t:g} or more (yes)",
    "accept_top": "a top probability of {t:g} or more",
}


def guarantee_in_words(tier: Tier, sides: tuple[SideResult, ...], delta: float) -> str:
    """What the certificates of one question on one tier say, in one sentence or two."""
    granted = [(side, side.found) for side in sides if isinstance(side.found, Certificate)]
    if not granted:
        fate = "goes to the deep tier" if tier is Tier.FAST else "is answered without a bound"
        return f"Nothing is certified: every input {fate}."
    rules = " and for ".join(_RULES[side.side].format(t=found.threshold) for side, found in granted)
    alpha = granted[0][1].alpha
    who = (
        "" if tier is Tier.FAST else " among inputs that the fast tier passes on under the limits it had here"
    )
    return (
        f"Of the answers accepted for {rules}, at most {alpha:.0%} each are wrong{who}, "
        f"with confidence {1 - delta:.0%}, for inputs drawn like the threshold rows. "
        f"For both tiers at once the confidence is at least {max(0.0, 1 - 2 * delta):.0%}."
    )


def _warnings(question: Question, learned: Learned, user: Thresholds, fast: Learned | None) -> Iterator[str]:
    labelled = set(learned.fit.rows.labels.tolist())
    unseen = [label for at, label in enumerate(question.labels) if at not in labelled]
    if unseen:
        yield f"no fit row is labelled {', '.join(map(repr, unseen[:5]))}"
    if not len(learned.threshold):
        yield "no threshold rows: nothing can be certified"
    elif len(set(learned.threshold.rows.groups)) < len(learned.threshold):
        yield "threshold rows share groups or texts: the bound takes rows as independent"
    yield from _uncertified(learned)
    for field in ("accept_below", "accept_above") if isinstance(question, Noul) else ("accept_top",):
        if field in user.model_fields_set:
            yield f"the task's policy sets {field}, which wins over the certificate"
    if fast is not None:
        yield from _comparison(fast, learned)


def _uncertified(learned: Learned) -> Iterator[str]:
    if learned.given is not None and not learned.reaching.any():
        yield "no threshold row reaches this tier: nothing can be certified"
        return
    for side in learned.sides:
        if not isinstance(side.found, Certificate):
            more = _rows_more(side.found, learned)
            hope = "out of reach at this error rate"
            if more is not None:
                hope = f"about {more} more threshold rows may do"
            yield f"{side.side}: nothing certified at {side.alpha:.0%}: {hope}"


def _comparison(fast: Learned, deep: Learned) -> Iterator[str]:
    rows, by_fast, by_deep = against(fast, deep)
    if rows and by_deep <= by_fast:
        yield (
            f"the deep tier does not help: of {rows} threshold rows that reach it, "
            f"it is right on {by_deep}, the fast tier on {by_fast}"
        )
