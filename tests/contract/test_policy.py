"""Policies: ranges, and the two pure rules, against restatements of them."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coolhead.errors import InvalidPolicy
from coolhead.policy import Debias, Grey, Policy, Thresholds, grey, verdict
from coolhead.questions import Question, Questions
from tests.contract.strategies import policies, policy_maps, share

NOUL = Questions.parse({"q": {"type": "noul", "instructions": "Yes?"}})["q"]
CHOICE = Questions.parse({"q": {"type": "choice", "criteria": ["a", "b", "c"]}})["q"]
SCORE = Questions.parse({"q": {"type": "score", "criteria": ["low", "mid", "high"]}})["q"]


@given(policies)
def test_a_policy_survives_the_wire(policy: Policy) -> None:
    again = Policy.parse(json.loads(json.dumps(policy.wire())))
    assert again == policy
    assert again.wire() == policy.wire()


@given(policy_maps)
def test_what_the_user_did_not_set_is_not_sent(raw: dict[str, Any]) -> None:
    policy = Policy.parse(raw)
    assert policy.wire() == raw
    assert policy.thresholds.model_fields_set == set(raw.get("thresholds", {}))


def test_the_defaults_are_the_placeholders() -> None:
    limits = Policy.parse(None).thresholds
    assert (limits.accept_below, limits.verdict_at, limits.accept_above) == (0.20, 0.75, None)
    assert Policy.parse(None).wire() == {}


def test_options_are_read_as_they_stand_unless_the_user_wants_it_otherwise() -> None:
    assert (Policy().debias, Policy().near_tie) == (Debias.RAW, 0.1)
    wanted = Policy.parse({"debias": "rotated", "near_tie": 1})
    assert (wanted.debias, wanted.near_tie) == (Debias.ROTATED, 1.0)
    assert wanted.wire() == {"debias": "rotated", "near_tie": 1.0}


@given(st.floats().filter(lambda x: not 0 <= x <= 1), st.sampled_from(list(Thresholds.model_fields)))
def test_a_threshold_outside_0_to_1_is_refused(value: float, field: str) -> None:
    with pytest.raises(InvalidPolicy) as caught:
        Policy.parse({"thresholds": {field: value}})
    assert field in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


REFUSED = [
    {"thresholds": {"accept_below": math.nan}},
    {"thresholds": {"accept_below": 0.8}},  # above verdict_at 0.75
    {"thresholds": {"accept_above": 0.7}},  # below verdict_at 0.75
    {"thresholds": {"accept_bellow": 0.1}},
    {"thresholds": {"accept_top": "high"}},
    {"per_question": {"q": {"verdict_at": 2}}},
    {"escalation": "sometimes"},
    {"on_low_mass": "shrug"},
    {"calibration": "guess"},
    {"debias": "shuffled"},
    {"near_tie": 1.5},
    {"near_tie": math.nan},
    {"colour": "red"},
    [],
    "policy",
    7,
]


@pytest.mark.parametrize("raw", REFUSED, ids=str)
def test_what_is_out_of_range_is_refused_in_one_line(raw: Any) -> None:
    with pytest.raises(InvalidPolicy) as caught:
        Policy.parse(raw)
    assert len(str(caught.value).splitlines()) == 1


def test_a_question_may_have_thresholds_of_its_own() -> None:
    policy = Policy.parse({"thresholds": {"verdict_at": 0.9}, "per_question": {"q": {"verdict_at": 0.5}}})
    assert policy.for_question("q").verdict_at == 0.5
    assert policy.for_question("other").verdict_at == 0.9


# P(yes) 0.20 is the first value that is not accepted below, 0.80 the first that is accepted above.
NOULS = [
    (0.0, None, None),
    (0.19999, None, None),
    (0.20, None, Grey.GREY_ZONE),
    (0.75, None, Grey.GREY_ZONE),
    (1.0, None, Grey.GREY_ZONE),  # nothing is accepted above without accept_above
    (0.79999, 0.80, Grey.GREY_ZONE),
    (0.80, 0.80, None),
    (1.0, 0.80, None),
]


@pytest.mark.parametrize(("yes", "above", "why"), NOULS)
def test_the_grey_zone_of_a_noul(yes: float, above: float | None, why: Grey | None) -> None:
    limits = Thresholds(accept_above=above)
    assert grey(NOUL, [yes, 1 - yes], None, limits) == why


@pytest.mark.parametrize("question", [CHOICE, SCORE])
@pytest.mark.parametrize(("top", "why"), [(0.75, None), (0.7499, Grey.GREY_ZONE), (1.0, None)])
def test_the_grey_zone_of_options(question: Question, top: float, why: Grey | None) -> None:
    rest = (1 - top) / 2
    assert grey(question, [rest, top, rest], None, Thresholds()) == why


@pytest.mark.parametrize(("mass", "why"), [(0.29, Grey.LOW_MASS), (0.3, None), (None, None)])
def test_low_mass_comes_before_everything(mass: float | None, why: Grey | None) -> None:
    limits = Thresholds(min_mass=0.3)
    assert grey(NOUL, [0.0, 1.0], mass, limits) == why
    assert grey(CHOICE, [1.0, 0.0, 0.0], mass, limits) == why


@given(share, share)
def test_a_noul_is_yes_at_or_above_the_line(yes: float, line: float) -> None:
    limits = Thresholds(verdict_at=line, accept_below=0.0)
    assert verdict(NOUL, [yes, 1 - yes], limits) is (Fraction(yes) >= Fraction(line))


@given(st.lists(share, min_size=3, max_size=3))
def test_the_verdict_of_options_is_the_first_of_the_largest(numbers: list[float]) -> None:
    first = numbers.index(max(numbers))
    assert verdict(CHOICE, numbers, Thresholds()) == "abc"[first]
    assert verdict(SCORE, numbers, Thresholds()) == first
