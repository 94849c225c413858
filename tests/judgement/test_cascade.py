"""What goes where, whose limits hold, and when an answer may be called certified."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coolhead.answers import Method, Status
from coolhead.policy import Calibration, Debias, Escalation, Grey, Policy, Thresholds, Tier, verdict
from coolhead.questions import Choice, Noul
from coolhead_worker.engine.protocol import PlanKind
from coolhead_worker.judgement.calibration import PLACEHOLDER, Head, Raw, Temperature
from coolhead_worker.judgement.cascade import (
    Basis,
    Numbers,
    assess,
    basis_of,
    limits_in_force,
    reason_to_ask,
    refused,
    route_of,
    settle,
)
from coolhead_worker.judgement.fitted import Certified, FittedQuestion, Limits, Route

NOUL = Noul(instructions="?")
CHOICE = Choice(criteria={"a": None, "b": None, "c": None})
HEAD = Head(np.zeros((2, 3)), np.zeros(2), np.zeros(3), np.ones(3))


def fitted(calibrator=None, given=None, pinned=None, **certified) -> FittedQuestion:
    return FittedQuestion("f1", calibrator or Raw(), Certified(**certified), given, pinned)


def raw(fit: FittedQuestion | None = None) -> Basis:
    return Basis(Raw(), fit, PlanKind.ISOLATED)


def numbers(*p: float, mass: float | None = 0.9) -> Numbers:
    """Logits that raw turns into these probabilities."""
    return Numbers(np.log(np.array(p)), mass, "names", "isolated-v0")


# --- which numbers ---------------------------------------------------------------------------------


WANTED = [
    ("nothing known", None, Calibration.FITTED, None, PLACEHOLDER, False, Status.UNCALIBRATED),
    ("the author's", None, Calibration.FITTED, 1.2, Temperature(1.2), False, Status.MODEL),
    ("the fit", fitted(Temperature(2.0)), Calibration.FITTED, None, Temperature(2.0), True, Status.FITTED),
    (
        "the fit over the author's",
        fitted(Temperature(2.0)),
        Calibration.FITTED,
        1.2,
        Temperature(2.0),
        True,
        Status.FITTED,
    ),
    (
        "the placeholder is asked for",
        fitted(Temperature(2.0)),
        Calibration.PLACEHOLDER,
        1.2,
        PLACEHOLDER,
        False,
        Status.UNCALIBRATED,
    ),
    ("raw is asked for", fitted(Temperature(2.0)), Calibration.RAW, 1.2, Raw(), False, Status.UNCALIBRATED),
    ("raw without a fit", None, Calibration.RAW, None, Raw(), False, Status.UNCALIBRATED),
]


@pytest.mark.parametrize(
    ("name", "found", "wanted", "authored", "calibrator", "is_fitted", "status"),
    WANTED,
    ids=[r[0] for r in WANTED],
)
def test_the_fit_counts_then_the_author_then_the_placeholder(
    name, found, wanted, authored, calibrator, is_fitted, status
):
    basis = basis_of(found, wanted, PlanKind.PINNED, authored)
    assert basis.calibrator == calibrator
    assert (basis.fitted is not None) == is_fitted
    assert basis.status(certified=False) is status


@pytest.mark.parametrize(
    ("found", "wanted", "plan"),
    [
        (None, Calibration.FITTED, PlanKind.PINNED),
        (fitted(HEAD), Calibration.FITTED, PlanKind.TRUNK),
        (fitted(), Calibration.FITTED, PlanKind.ISOLATED),
        (fitted(pinned="pinned-v0.s1"), Calibration.FITTED, PlanKind.PINNED),
        # what is not read by the fit is read as the task says
        (fitted(HEAD), Calibration.RAW, PlanKind.PINNED),
        (fitted(), Calibration.PLACEHOLDER, PlanKind.PINNED),
    ],
)
def test_a_fitted_question_is_read_as_it_was_fitted_and_others_as_the_task_says(found, wanted, plan):
    assert basis_of(found, wanted, PlanKind.PINNED, None).plan is plan


@pytest.mark.parametrize("found", [None, fitted()])
def test_an_authors_temperature_is_never_certified(found):
    basis = basis_of(found, Calibration.FITTED, PlanKind.ISOLATED, 1.2)
    assert (basis.status(certified=True) is Status.CERTIFIED) == (found is not None)
    said = assess(
        NOUL,
        Tier.FAST,
        basis_of(None, Calibration.FITTED, PlanKind.ISOLATED, 1.2),
        numbers(0.01, 0.99),
        Thresholds(),
    )
    assert (said.grey, said.status, said.method, said.fit) == (None, Status.MODEL, Method.TEMPERATURE, None)


# --- whose limits ----------------------------------------------------------------------------------

DEFAULT = (0.20, None, 0.75, 0.75, 0.0)


def in_force(limits: Limits) -> tuple[object, ...]:
    t = limits.thresholds
    return (t.accept_below, t.accept_above, t.verdict_at, t.accept_top, t.min_mass)


LIMITS = [
    ("nothing set: the reference article's", {}, None, DEFAULT, False),
    ("the user's over the default", {"accept_below": 0.1}, None, (0.1, None, 0.75, 0.75, 0.0), False),
    (
        "a fit over the default",
        {},
        {"accept_below": 0.3, "accept_above": 0.9, "accept_top": 0.6},
        (0.3, 0.9, 0.5, 0.6, 0.0),
        False,
    ),
    ("a fit without certificates accepts nothing", {}, {}, (0.0, None, 0.5, 1.0, 0.0), True),
    (
        "the user's over a fit's",
        {"accept_below": 0.1, "accept_top": 0.8},
        {"accept_below": 0.3, "accept_top": 0.6},
        (0.1, None, 0.5, 0.8, 0.0),
        False,
    ),
    ("the user's opens what the fit left closed", {"accept_top": 0.8}, {}, (0.0, None, 0.5, 0.8, 0.0), False),
    (
        "a user's value equal to the default is still the user's",
        {"verdict_at": 0.75},
        {"accept_below": 0.3},
        (0.3, None, 0.75, 1.0, 0.0),
        True,
    ),
    (
        "a fit's limit gives way to the user's verdict point",
        {"accept_below": 0.1, "verdict_at": 0.2},
        {"accept_below": 0.3, "accept_above": 0.6},
        (0.1, 0.6, 0.2, 1.0, 0.0),
        True,
    ),
    (
        "below is lowered to the verdict point",
        {"accept_below": 0.0, "verdict_at": 0.9},
        {"accept_above": 0.6},
        (0.0, 0.9, 0.9, 1.0, 0.0),
        True,
    ),
    (
        "the verdict point moves up to the user's below",
        {"accept_below": 0.6},
        {"accept_above": 0.55},
        (0.6, 0.6, 0.6, 1.0, 0.0),
        True,
    ),
    (
        "the verdict point moves down to the user's above",
        {"accept_above": 0.75},
        {"accept_below": 0.3},
        (0.3, 0.75, 0.5, 1.0, 0.0),
        True,
    ),
    (
        "none said for above means never",
        {"accept_above": None},
        {"accept_above": 0.9},
        (0.0, None, 0.5, 1.0, 0.0),
        True,
    ),
    ("the mass in force at the fit stays", {}, {"min_mass": 0.4}, (0.0, None, 0.5, 1.0, 0.4), True),
    ("the user's mass over it", {"min_mass": 0.1}, {"min_mass": 0.4}, (0.0, None, 0.5, 1.0, 0.1), True),
]


@pytest.mark.parametrize(
    ("name", "user", "certified", "expected", "closed"), LIMITS, ids=[r[0] for r in LIMITS]
)
def test_limits_in_force(name, user, certified, expected, closed):
    fit = None if certified is None else fitted(**certified)
    limits = limits_in_force(Thresholds(**user), fit)
    assert in_force(limits) == expected
    assert limits.closed == closed


def test_what_a_user_set_survives_the_wire():
    sent = Policy.parse({"per_question": {"q": {"verdict_at": 0.75}}}).wire()
    limits = limits_in_force(Policy.parse(sent).for_question("q"), fitted(accept_below=0.3))
    assert limits.thresholds.verdict_at == 0.75


unit = st.floats(0, 1)
optional = st.none() | unit


@st.composite
def users(draw):
    values = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "accept_below": unit,
                "verdict_at": unit,
                "accept_above": optional,
                "accept_top": unit,
                "min_mass": unit,
            },
        )
    )
    try:
        return Thresholds(**values)
    except ValueError:
        return Thresholds()


fits = st.none() | st.builds(
    fitted,
    accept_below=st.none() | st.floats(0, 0.5),
    accept_above=st.none() | st.floats(0.5, 1),
    accept_top=optional,
    min_mass=unit,
)


@given(users(), fits)
def test_limits_are_always_in_order_and_the_users_always_hold(user, fit):
    limits = limits_in_force(user, fit).thresholds  # building Thresholds checks the order
    for name in user.model_fields_set:
        assert getattr(limits, name) == getattr(user, name)


@given(unit, users(), fits)
def test_an_accepted_noul_has_the_verdict_of_its_side(p, user, fit):
    said = assess(NOUL, Tier.FAST, raw(fit), numbers(max(p, 1e-9), max(1 - p, 1e-9)), user)
    limits = said.limits.thresholds
    if said.grey is None:
        below = said.probabilities[0] < limits.accept_below
        assert verdict(NOUL, said.probabilities, limits) is not below


# --- accepted, and how far to trust it -------------------------------------------------------------


STATUS = [
    ("no fit: accepted at the placeholder's limits", (0.1, 0.9), {}, None, None, Status.UNCALIBRATED),
    ("no fit: grey", (0.5, 0.5), {}, None, Grey.GREY_ZONE, Status.UNCALIBRATED),
    (
        "no fit: a sure yes goes deep, as in the article",
        (0.99, 0.01),
        {},
        None,
        Grey.GREY_ZONE,
        Status.UNCALIBRATED,
    ),
    ("inside the certified no", (0.1, 0.9), {}, {"accept_below": 0.2}, None, Status.CERTIFIED),
    ("on the edge is not below it", (0.25, 0.75), {}, {"accept_below": 0.25}, Grey.GREY_ZONE, Status.FITTED),
    (
        "inside the certified yes",
        (0.95, 0.05),
        {},
        {"accept_below": 0.2, "accept_above": 0.9},
        None,
        Status.CERTIFIED,
    ),
    ("between", (0.5, 0.5), {}, {"accept_below": 0.2, "accept_above": 0.9}, Grey.GREY_ZONE, Status.FITTED),
    ("nothing certified", (0.001, 0.999), {}, {}, Grey.GREY_ZONE, Status.FITTED),
    (
        "accepted by the user's own limit",
        (0.1, 0.9),
        {"accept_below": 0.3},
        {"accept_below": 0.2},
        None,
        Status.FITTED,
    ),
    (
        "the user repeats the certified limit",
        (0.1, 0.9),
        {"accept_below": 0.2},
        {"accept_below": 0.2},
        None,
        Status.CERTIFIED,
    ),
    (
        "one side the user's, the other certified",
        (0.9, 0.1),
        {"accept_below": 0.3},
        {"accept_below": 0.2, "accept_above": 0.8},
        None,
        Status.CERTIFIED,
    ),
    (
        "another mass rule than certified",
        (0.1, 0.9),
        {"min_mass": 0.5},
        {"accept_below": 0.2},
        None,
        Status.FITTED,
    ),
]


@pytest.mark.parametrize(
    ("name", "p", "user", "certified", "why", "status"), STATUS, ids=[r[0] for r in STATUS]
)
def test_status_of_a_noul(name, p, user, certified, why, status):
    fit = None if certified is None else fitted(**certified)
    said = assess(NOUL, Tier.FAST, raw(fit), numbers(*p), Thresholds(**user))
    assert (said.grey, said.status) == (why, status)


@pytest.mark.parametrize(
    ("p", "user", "certified", "why", "status"),
    [
        ((0.8, 0.1, 0.1), {}, None, None, Status.UNCALIBRATED),
        ((0.7, 0.2, 0.1), {}, None, Grey.GREY_ZONE, Status.UNCALIBRATED),
        ((0.7, 0.2, 0.1), {}, {"accept_top": 0.6}, None, Status.CERTIFIED),
        ((0.5, 0.3, 0.2), {}, {"accept_top": 0.6}, Grey.GREY_ZONE, Status.FITTED),
        ((0.7, 0.2, 0.1), {"accept_top": 0.5}, {"accept_top": 0.6}, None, Status.FITTED),
        ((1.0, 1e-300, 1e-300), {}, {}, Grey.GREY_ZONE, Status.FITTED),  # p = 1.0, and still closed
    ],
)
def test_status_of_a_choice(p, user, certified, why, status):
    fit = None if certified is None else fitted(**certified)
    said = assess(CHOICE, Tier.FAST, raw(fit), numbers(*p), Thresholds(**user))
    assert (said.grey, said.status) == (why, status)


def test_low_mass_is_grey_whatever_the_probability_and_a_head_has_none():
    user = Thresholds(min_mass=0.5)
    light = assess(NOUL, Tier.FAST, raw(), numbers(0.01, 0.99, mass=0.4), user)
    assert (light.grey, light.low) == (Grey.LOW_MASS, True)
    by_head = assess(NOUL, Tier.FAST, raw(), numbers(0.01, 0.99, mass=None), user)
    assert (by_head.grey, by_head.low) == (None, False)


def test_numbers_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match="finite"):
        assess(NOUL, Tier.FAST, raw(), Numbers(np.array([0.0, np.nan]), 1.0, "names", "p"), Thresholds())


# --- the deep tier ---------------------------------------------------------------------------------


def fast_answer(p=(0.5, 0.5), certified=None, user=None):
    fit = None if certified is None else fitted(**certified)
    return assess(NOUL, Tier.FAST, raw(fit), numbers(*p), user or Thresholds())


def deep_answer(p=(0.95, 0.05), given=None, route=None, user=None):
    fit = fitted(given=given, accept_above=0.9)
    return assess(NOUL, Tier.DEEP, raw(fit), numbers(*p), user or Thresholds(), route)


@pytest.mark.parametrize(
    ("mode", "deep", "p", "expected"),
    [
        (Escalation.GREY, True, (0.5, 0.5), Grey.GREY_ZONE),
        (Escalation.GREY, True, (0.1, 0.9), None),
        (Escalation.GREY, False, (0.5, 0.5), None),
        (Escalation.ALWAYS, True, (0.1, 0.9), Grey.FORCED),
        (Escalation.ALWAYS, True, (0.5, 0.5), Grey.FORCED),
        (Escalation.ALWAYS, False, (0.5, 0.5), None),
        (Escalation.NEVER, True, (0.5, 0.5), None),
    ],
)
def test_when_the_deep_tier_is_asked(mode, deep, p, expected):
    assert reason_to_ask(fast_answer(p), mode, deep=deep) == expected


CERTIFIED = {"accept_below": 0.2, "accept_above": 0.8}


@pytest.mark.parametrize(
    ("given_user", "given_mode", "user", "mode", "status"),
    [
        ({}, Escalation.GREY, {}, Escalation.GREY, Status.CERTIFIED),
        ({}, Escalation.ALWAYS, {}, Escalation.ALWAYS, Status.CERTIFIED),
        # other inputs reach the deep tier than those it was certified on
        ({}, Escalation.GREY, {}, Escalation.ALWAYS, Status.FITTED),
        ({}, Escalation.ALWAYS, {}, Escalation.GREY, Status.FITTED),
        ({}, Escalation.GREY, {"accept_below": 0.1}, Escalation.GREY, Status.FITTED),
        ({"accept_below": 0.1}, Escalation.GREY, {"accept_below": 0.1}, Escalation.GREY, Status.CERTIFIED),
    ],
)
def test_a_deep_certificate_holds_only_for_the_route_it_was_given(given_user, given_mode, user, mode, status):
    then = fast_answer(certified=CERTIFIED, user=Thresholds(**given_user))
    now = fast_answer(certified=CERTIFIED, user=Thresholds(**user))
    given = route_of(then.limits, then.fit, given_mode)
    assert deep_answer(given=given, route=route_of(now.limits, now.fit, mode)).status is status


def test_a_deep_certificate_of_another_fit_than_the_fast_one_does_not_hold():
    now = fast_answer(certified=CERTIFIED)
    given = Route(forced=False, limits=now.limits, fit="f2")
    assert (
        deep_answer(given=given, route=route_of(now.limits, now.fit, Escalation.GREY)).status is Status.FITTED
    )


def test_the_deep_answer_counts_and_a_flip_is_recorded():
    fast, deep = fast_answer((0.3, 0.7)), deep_answer((0.95, 0.05))
    settled = settle(NOUL, fast, Grey.GREY_ZONE, deep)
    assert (settled.answer, settled.escalated, settled.flipped) == (deep, Grey.GREY_ZONE, True)
    same = settle(NOUL, fast, Grey.GREY_ZONE, deep_answer((0.1, 0.9)))
    assert not same.flipped


def test_without_a_deep_answer_the_fast_one_stands_with_the_reason():
    fast = fast_answer()
    settled = settle(NOUL, fast, Grey.GREY_ZONE, None)
    assert (settled.answer, settled.escalated, settled.flipped) == (fast, Grey.GREY_ZONE, False)


@pytest.mark.parametrize(
    ("on_low_mass", "fast", "deep", "expected"),
    [
        ("refuse", 0.1, None, True),
        ("refuse", 0.1, 0.1, True),
        ("refuse", 0.1, 0.9, False),
        ("refuse", 0.9, 0.1, False),
        ("refuse", 0.9, None, False),
        ("answer", 0.1, 0.1, False),
    ],
)
def test_a_job_is_refused_when_every_tier_that_answered_is_low(on_low_mass, fast, deep, expected):
    user = Thresholds(min_mass=0.5)
    said = [
        None if mass is None else assess(NOUL, Tier.FAST, raw(), numbers(0.5, 0.5, mass=mass), user)
        for mass in (fast, deep)
    ]
    assert refused(Policy(on_low_mass=on_low_mass), *said) is expected


def test_an_assessed_answer_tells_its_method_fit_and_plan():
    basis = basis_of(fitted(HEAD), Calibration.FITTED, PlanKind.PINNED, None)
    said = assess(NOUL, Tier.FAST, basis, Numbers(np.zeros(3), None, "trunk", "trunk-v0"), Thresholds())
    assert (said.method, said.fit, said.mass, said.kind) == (Method.HEAD, "f1", None, "trunk")
    assert (said.plan, said.debias) == ("trunk-v0", Debias.RAW)
    assert said.probabilities == (0.5, 0.5)
    turned = Numbers(np.zeros(2), 0.9, "letters", "isolated-v0", Debias.ROTATED)
    assert assess(NOUL, Tier.FAST, raw(), turned, Thresholds()).debias is Debias.ROTATED
