"""Questions: the official form in and out, the limits, and what a fingerprint depends on."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coolhead.errors import InvalidQuestion
from coolhead.questions import MAX_OPTIONS, Choice, Noul, Questions, Score, canonical, text_of
from tests.contract.strategies import question_maps, questions, values, words


@given(questions)
def test_questions_survive_the_wire(asked: Questions) -> None:
    again = Questions.parse(json.loads(json.dumps(asked.wire())))
    assert again == asked
    assert list(again.root) == list(asked.root)
    assert again.wire() == asked.wire()


@given(question_maps)
def test_the_labels_are_the_options_in_order(raw: dict[str, Any]) -> None:
    for name, question in Questions.parse(raw).items():
        expected = {
            "noul": ["yes", "no"],
            "choice": list(raw[name].get("criteria") or []),
            "score": [str(n) for n in range(len(raw[name].get("criteria") or []))],
        }
        assert list(question.labels) == expected[question.type]


def test_the_captured_body_of_an_official_client_is_read() -> None:
    body = {
        "is_malicious": {"type": "noul", "instructions": "Malicious?", "criteria": {"true": "attack"}},
        "intent": {
            "type": "choice",
            "instructions": "Intent?",
            "criteria": {"billing": "money", "tech": None},
        },
        "risk": {"type": "score", "instructions": "Risk?", "criteria": ["none", "some", "high"]},
    }
    asked = Questions.parse(body)
    assert [type(question) for _, question in asked.items()] == [Noul, Choice, Score]
    assert asked["intent"].labels == ("billing", "tech")
    assert asked["risk"].labels == ("0", "1", "2")
    assert len(asked) == 3


@pytest.mark.parametrize("criteria", [None, {"true": "x"}, {"false": "x"}, {"true": None, "false": ["y"]}])
def test_a_noul_may_describe_either_side(criteria: Any) -> None:
    Questions.parse({"q": {"type": "noul", "instructions": "Yes?", "criteria": criteria}})


def test_a_noul_without_instructions_needs_a_described_outcome() -> None:
    Questions.parse({"q": {"type": "noul", "criteria": {"false": "x"}}})
    with pytest.raises(InvalidQuestion, match="a noul needs instructions"):
        Questions.parse({"q": {"type": "noul", "criteria": {"true": None}}})


def choice(**more: Any) -> dict[str, Any]:
    return {"type": "choice", "instructions": "Which?", "criteria": {"a": "A", "b": "B"}, **more}


CHANGED = [
    ("instructions", choice(instructions="Which one?")),
    ("a description", choice(criteria={"a": "A", "b": "C"})),
    ("a missing description", choice(criteria={"a": "A", "b": None})),
    ("an option's name", choice(criteria={"a": "A", "c": "B"})),
    ("the order", choice(criteria={"b": "B", "a": "A"})),
    ("one option more", choice(criteria={"a": "A", "b": "B", "c": None})),
    ("the kind", {"type": "score", "instructions": "Which?", "criteria": ["A", "B"]}),
    ("structure in place of its text", choice(instructions=["Which?"])),
]


@pytest.mark.parametrize("changed", [row[1] for row in CHANGED], ids=[row[0] for row in CHANGED])
def test_a_fingerprint_changes_with_what_the_model_may_read(changed: dict[str, Any]) -> None:
    before, after = Questions.parse({"q": choice()}), Questions.parse({"q": changed})
    assert before["q"].fingerprint != after["q"].fingerprint


@given(question_maps, words)
def test_a_fingerprint_does_not_depend_on_the_id(raw: dict[str, Any], other: str) -> None:
    (first, *_) = raw.values()
    one, two = Questions.parse({"q": first}), Questions.parse({other: first})
    (question,) = (each for _, each in two.items())
    assert one["q"].fingerprint == question.fingerprint
    assert len(question.fingerprint) == 32


def test_leaving_a_field_out_is_the_same_as_none() -> None:
    one = Questions.parse({"q": {"type": "noul", "instructions": "Yes?"}})
    two = Questions.parse({"q": {"type": "noul", "instructions": "Yes?", "criteria": None}})
    assert one["q"].fingerprint == two["q"].fingerprint


def test_a_list_of_options_is_options_without_description() -> None:
    as_list = Questions.parse({"q": {"type": "choice", "criteria": ["a", "b"]}})
    as_map = Questions.parse({"q": {"type": "choice", "criteria": {"a": None, "b": None}}})
    assert as_list == as_map


@pytest.mark.parametrize("count", [2, 26, 64, 128, MAX_OPTIONS])
def test_up_to_255_options_are_taken(count: int) -> None:
    asked = Questions.parse({"q": {"type": "choice", "criteria": [f"o{n}" for n in range(count)]}})
    assert len(asked["q"].labels) == count


REFUSED = [
    ({}, "1..64 questions, not 0"),
    ({f"q{n}": {"type": "noul", "instructions": "x"} for n in range(65)}, "1..64 questions, not 65"),
    ({"": {"type": "noul", "instructions": "x"}}, "id is empty"),
    ({"a\0": {"type": "noul", "instructions": "x"}}, "NUL"),
    ({"q": {"type": "noul", "instructions": "x\0"}}, "NUL"),
    ({"q": {"type": "noul", "instructions": {"a": ["\0"]}}}, "NUL"),
    ({"q": {"type": "noul", "instructions": "\ud800"}}, "surrogates"),
    ({"q": {"type": "noul", "instructions": "x", "colour": 1}}, "colour"),
    ({"q": {"type": "noul"}}, "needs instructions"),
    ({"q": {"type": "noul", "instructions": ""}}, "needs instructions"),
    ({"q": {"instructions": "x"}}, "type"),
    ({"q": {"type": "box", "instructions": "x"}}, "box"),
    ({"q": {"type": "choice"}}, "criteria"),
    ({"q": {"type": "choice", "criteria": {}}}, "2..255 options, not 0"),
    ({"q": {"type": "choice", "criteria": ["a"]}}, "2..255 options, not 1"),
    ({"q": {"type": "choice", "criteria": [f"o{n}" for n in range(256)]}}, "2..255 options, not 256"),
    ({"q": {"type": "choice", "criteria": ["a", "a"]}}, "must differ"),
    ({"q": {"type": "choice", "criteria": ["a", " "]}}, "name is empty"),
    ({"q": {"type": "choice", "criteria": ["a", "b\0"]}}, "NUL"),
    ({"q": {"type": "choice", "criteria": [["a"], "b"]}}, ""),
    ({"q": {"type": "score", "criteria": ["a"]}}, "at least 2"),
    ({"q": {"type": "score", "criteria": ["a"] * 11}}, "at most 10"),
    ({"q": {"type": "score", "criteria": ["a", None]}}, ""),
    ({"q": {"type": "score", "criteria": {"0": "a", "1": "b"}}}, ""),
    ([], ""),
    (None, ""),
    ("q", ""),
    ({1: {"type": "noul", "instructions": "x"}}, ""),
]


@pytest.mark.parametrize(("raw", "said"), REFUSED, ids=[f"{n}: {row[1]}" for n, row in enumerate(REFUSED)])
def test_what_breaks_a_limit_is_refused_in_one_line(raw: Any, said: str) -> None:
    with pytest.raises(InvalidQuestion) as caught:
        Questions.parse(raw)
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


anything = st.recursive(values, lambda inner: st.dictionaries(st.text(max_size=3), inner, max_size=3))


@given(anything)
def test_anything_is_read_or_refused_but_nothing_else(raw: Any) -> None:
    with contextlib.suppress(InvalidQuestion):
        Questions.parse(raw)


def test_a_question_that_holds_nan_is_refused() -> None:
    with pytest.raises(InvalidQuestion):
        Questions.parse({"q": {"type": "noul", "instructions": [float("nan")]}})


def test_the_escape_of_nul_spelt_out_is_plain_text() -> None:
    Questions.parse({"q": {"type": "noul", "instructions": "What does \\u0000 mean in JSON?"}})


def test_a_question_that_nests_too_deep_is_refused() -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidQuestion):
        Questions.parse({"q": {"type": "noul", "instructions": deep}})


def test_a_question_cannot_be_changed() -> None:
    question = Questions.parse({"q": {"type": "noul", "instructions": "x"}})["q"]
    with pytest.raises(Exception, match="frozen"):
        question.instructions = "y"


@given(values)
def test_the_canonical_form_is_json(value: Any) -> None:
    assert json.loads(canonical(value)) == value


@pytest.mark.parametrize(
    ("content", "text"),
    [(None, ""), ("a  b\n", "a  b\n"), ({"b": 1, "a": "ü"}, '{"b":1,"a":"ü"}'), ([1, None], "[1,null]")],
)
def test_structure_is_shown_as_compact_json_in_its_own_order(content: Any, text: str) -> None:
    assert text_of(content) == text
