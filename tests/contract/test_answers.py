"""Answers: the formulas against independent restatements, and the form on the wire."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from coolhead.answers import (
    ChoiceAnswer,
    Decision,
    NoulAnswer,
    Provenance,
    ScoreAnswer,
    Status,
    answer_of,
    choice_confidence,
    normalised,
    score_confidence,
)
from coolhead.policy import Debias, Thresholds, verdict
from coolhead.questions import Questions
from tests.contract.strategies import decisions, provenances, question_maps, weights

SOURCE = Provenance(tier="fast", status="uncalibrated", method="raw", model="m", plan="p", readout="names")
slow = settings(max_examples=50)
distributions = st.integers(2, 30).flatmap(weights).map(lambda each: [x / math.fsum(each) for x in each])


@slow
@given(decisions())
def test_a_decision_survives_the_wire(decision: Decision) -> None:
    wire = json.loads(json.dumps(decision.wire(), allow_nan=False))
    assert Decision.from_wire(wire) == decision
    assert Decision.from_wire(wire).wire() == wire


@slow
@given(decisions())
def test_the_wire_has_the_official_names_and_marks_the_rest(decision: Decision) -> None:
    official = {
        "noul": {"type", "noul"},
        "choice": {"type", "choice", "confidence", "probabilities"},
        "score": {"type", "score", "confidence", "legend", "probabilities"},
    }
    wire = decision.wire()
    assert {key for key in wire if not key.startswith("x_")} == {"model", "answers", "usage"}
    assert wire["usage"]["output_tokens"] == 0
    for answer in wire["answers"].values():
        assert {key for key in answer if not key.startswith("x_")} == official[answer["type"]]


@slow
@given(question_maps, provenances, st.data())
def test_an_answer_is_a_distribution_over_exactly_the_labels(
    raw: dict[str, Any], source: Provenance, data: st.DataObject
) -> None:
    for _, question in Questions.parse(raw).items():
        given_weights = data.draw(weights(len(question.labels)))
        answer = answer_of(question, given_weights, Thresholds(), source)
        assert tuple(answer.probabilities) == question.labels
        assert sum(answer.probabilities.values()) == pytest.approx(1.0, abs=1e-9)
        assert all(0.0 <= p <= 1.0 for p in answer.probabilities.values())
        # As exact fractions, the proportions are those that were given.
        total = sum(map(Fraction, given_weights))
        for label, weight in zip(question.labels, given_weights, strict=True):
            assert answer.probabilities[label] == pytest.approx(float(Fraction(weight) / total), abs=1e-9)


@given(st.integers(2, 10).flatmap(weights))
def test_the_score_is_the_expected_level(p: list[float]) -> None:
    levels = [f"level {n}" for n in range(len(p))]
    question = Questions.parse({"q": {"type": "score", "criteria": levels}})["q"]
    answer = answer_of(question, p, Thresholds(), SOURCE)
    assert isinstance(answer, ScoreAnswer)
    sent = np.array(list(answer.probabilities.values()))
    assert answer.score == pytest.approx(float(np.arange(len(sent)) @ sent), abs=1e-9)
    assert answer.verdict == int(np.argmax(sent))


@given(distributions)
def test_the_confidence_of_a_choice_is_how_far_the_top_is_above_chance(p: list[float]) -> None:
    # Another way to say (k max - 1) / (k - 1): the share of the way from 1/k to 1.
    k = len(p)
    chance = Fraction(1, k)
    expected = (Fraction(max(p)) - chance) / (1 - chance)
    assert choice_confidence(p) == pytest.approx(float(min(max(expected, 0), 1)), abs=1e-9)


@pytest.mark.parametrize(
    ("p", "confidence"),
    [
        ([0.98, 0.02], 0.96),  # a recorded answer of the public service
        ([0.5, 0.5], 0.0),
        ([1 / 3] * 3, 0.0),
        ([1.0, 0.0, 0.0], 1.0),
        ([0.5, 0.25, 0.25], 0.25),  # (3 * 0.5 - 1) / 2
    ],
)
def test_known_confidences_of_choices(p: list[float], confidence: float) -> None:
    assert choice_confidence(p) == pytest.approx(confidence)


@given(distributions)
def test_the_confidence_of_a_score_falls_with_the_distance_from_the_mode(p: list[float]) -> None:
    numbers, levels = np.array(p), np.arange(len(p))
    distances = np.abs(levels[:, None] - levels[None, :])
    mode = int(np.argmax(numbers))
    uniform = np.abs(levels - (len(p) - 1) / 2).mean()
    expected = float(np.clip(1 - distances[mode] @ numbers / uniform, 0, 1))
    assert score_confidence(p) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("p", "confidence"),
    [
        ([1.0, 0.0], 1.0),
        ([0.0, 0.0, 1.0], 1.0),
        # uniform over 3: spread around mode 0 is (0 + 1 + 2) / 3 = 1, U = (1 + 0 + 1) / 3: below 0
        ([1 / 3] * 3, 0.0),
        # spread 0.2 * 1 = 0.2, U = 2/3: 1 - 0.3
        ([0.1, 0.8, 0.1], 0.7),
    ],
)
def test_known_confidences_of_scores(p: list[float], confidence: float) -> None:
    assert score_confidence(p) == pytest.approx(confidence)


@pytest.mark.parametrize("bad", [[], [0.0, 0.0], [1.0, -0.1], [math.nan, 1.0], [math.inf, 1.0]])
def test_what_is_no_distribution_is_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="probabilit"):
        normalised(bad)


def test_too_many_or_too_few_probabilities_are_refused() -> None:
    question = Questions.parse({"q": {"type": "choice", "criteria": ["a", "b"]}})["q"]
    for wrong in ([1.0], [0.2, 0.3, 0.5]):
        with pytest.raises(ValueError, match="for 2 labels"):
            answer_of(question, wrong, Thresholds(), SOURCE)


def test_each_kind_of_question_has_its_kind_of_answer() -> None:
    asked = Questions.parse(
        {
            "n": {"type": "noul", "instructions": "Yes?"},
            "c": {"type": "choice", "criteria": ["a", "b"]},
            "s": {"type": "score", "criteria": ["low", {"text": "high"}]},
        }
    )
    noul, choice, score = (answer_of(q, [0.75, 0.25], Thresholds(), SOURCE) for _, q in asked.items())
    assert isinstance(noul, NoulAnswer)
    assert (noul.noul, noul.verdict) == (0.75, True)
    assert isinstance(choice, ChoiceAnswer)
    assert (choice.choice, choice.confidence) == ("a", 0.5)
    assert isinstance(score, ScoreAnswer)
    assert (score.score, score.legend) == (0.25, {"0": "low", "1": {"text": "high"}})


@slow
@given(question_maps, st.data())
def test_the_verdict_is_computed_from_the_numbers_that_are_sent(
    raw: dict[str, Any], data: st.DataObject
) -> None:
    for _, question in Questions.parse(raw).items():
        answer = answer_of(question, data.draw(weights(len(question.labels))), Thresholds(), SOURCE)
        said = answer.choice if isinstance(answer, ChoiceAnswer) else answer.verdict
        assert said == verdict(question, list(answer.probabilities.values()), Thresholds())


def test_an_answer_says_how_far_it_may_be_trusted_and_how_it_was_read() -> None:
    question = Questions.parse({"q": {"type": "choice", "criteria": ["a", "b"]}})["q"]
    source = SOURCE.model_copy(
        update={"status": Status.MODEL, "debias": Debias.ROTATED, "deep_unavailable": True}
    )
    wire = answer_of(question, [0.2, 0.8], Thresholds(), source).model_dump(mode="json", by_alias=True)
    assert (wire["x_status"], wire["x_debias"], wire["x_deep_unavailable"]) == ("model", "rotated", True)
    plain = answer_of(question, [0.2, 0.8], Thresholds(), SOURCE)
    assert (plain.debias, plain.deep_unavailable) == (Debias.RAW, False)


def test_an_answer_of_a_node_that_says_less_is_still_read() -> None:
    question = Questions.parse({"q": {"type": "noul", "instructions": "Yes?"}})["q"]
    wire = answer_of(question, [0.2, 0.8], Thresholds(), SOURCE).model_dump(mode="json", by_alias=True)
    older = {key: value for key, value in wire.items() if key not in ("x_debias", "x_deep_unavailable")}
    assert NoulAnswer.model_validate(older) == NoulAnswer.model_validate(wire)


def test_a_decision_of_another_version_or_with_unknown_fields_is_not_read() -> None:
    wire = {"model": "m", "answers": {}, "usage": {"input_tokens": 1}, "x_job_id": "j", "x_node": "n"}
    wire["x_timing"] = {"wait_s": 0.0, "fast_s": 0.25, "deep_s": 0.5}
    assert Decision.from_wire(wire).timing.inference_s == 0.75
    for change in ({"x_version": 2}, {"x_more": 1}, {"usage": {"input_tokens": 1, "output_tokens": 3}}):
        with pytest.raises(ValidationError):
            Decision.from_wire({**wire, **change})
