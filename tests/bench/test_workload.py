"""What is asked in a bench: new texts of one length, ten questions, and JSON that answers them."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coolhead.questions import Choice, Noul, Question, Questions
from coolhead_worker.bench.workload import QUESTIONS, WORDS, answers_all, asked, in_words, schema, ticket


@given(seed=st.integers(), words=st.integers(2, 900))
def test_a_ticket_has_as_many_words_as_wanted_and_is_the_same_for_the_same_seed(
    seed: int, words: int
) -> None:
    text = ticket(random.Random(seed), words)
    assert text == ticket(random.Random(seed), words)
    assert len(text.split()) == words


@given(seed=st.integers(0, 10**6))
def test_tickets_begin_with_a_number_and_share_their_words(seed: int) -> None:
    one, other = (ticket(random.Random(seed + step)) for step in (0, 1))
    assert one.split()[1] != other.split()[1]
    assert sorted(one.split()[2:]) == sorted(other.split()[2:])
    assert len(one.split()) == WORDS


def test_there_are_ten_sound_questions_and_the_first_three_are_one_of_each_kind() -> None:
    assert (
        len(Questions.model_validate({name: one.model_dump() for name, one in QUESTIONS.items()}).root) == 10
    )
    kinds = [(question.type, len(question.labels)) for question in asked(3).values()]
    assert kinds == [("noul", 2), ("choice", 5), ("score", 10)]


@pytest.mark.parametrize("count", [1, 3, 10])
def test_the_first_questions_are_asked_in_order(count: int) -> None:
    assert list(asked(count)) == list(QUESTIONS)[:count]


@pytest.mark.parametrize("count", [-1, 0, 11])
def test_other_numbers_of_questions_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match=r"1\.\.10"):
        asked(count)


def test_the_schema_allows_the_labels_and_nothing_else() -> None:
    made = schema(asked(3))
    assert made["required"] == ["injection", "queue", "urgency"]
    assert made["additionalProperties"] is False
    assert made["properties"] == {
        "injection": {"type": "boolean"},
        "queue": {"type": "string", "enum": ["Billing", "Technical", "Account", "Sales", "Delivery"]},
        "urgency": {"type": "integer", "enum": list(range(10))},
    }


def test_in_words_each_question_is_a_line_with_its_labels() -> None:
    lines = in_words(QUESTIONS).splitlines()
    assert [line.partition(":")[0] for line in lines] == list(QUESTIONS)
    for line, question in zip(lines, QUESTIONS.values(), strict=True):
        assert isinstance(question, Noul) or all(label in line for label in question.labels)


def value(draw: st.DrawFn, question: Question) -> object:
    if isinstance(question, Noul):
        return draw(st.booleans())
    label = draw(st.sampled_from(question.labels))
    return label if isinstance(question, Choice) else int(label)


@given(data=st.data())
def test_an_object_with_a_label_for_each_question_is_an_answer(data: st.DataObject) -> None:
    said = {name: value(data.draw, question) for name, question in QUESTIONS.items()}
    assert answers_all(json.dumps(said), QUESTIONS)
    missing = data.draw(st.sampled_from(list(QUESTIONS)))
    assert not answers_all(
        json.dumps({name: one for name, one in said.items() if name != missing}), QUESTIONS
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        '{"injection": true, "queue": "Billing"',
        '{"injection": "yes", "queue": "Billing", "urgency": 1}',
        '{"injection": true, "queue": "Nowhere", "urgency": 1}',
        '{"injection": true, "queue": "Billing", "urgency": 10}',
    ],
)
def test_what_is_cut_or_off_the_labels_is_no_answer(text: str) -> None:
    assert not answers_all(text, asked(3))
