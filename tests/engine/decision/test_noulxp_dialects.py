"""Prompts of packages, word by word, and what their models are not asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coolhead.errors import InvalidQuestion, StateTooLong
from coolhead.questions import Choice, Noul, NoulCriteria, Question, Score
from coolhead_worker.engine.decision.authored import Authored
from coolhead_worker.engine.decision.package import open_package
from coolhead_worker.engine.decision.script import text_with
from tests.engine.decision.packages import LISTED, TYPED, write_package
from tests.engine.vocabulary import SmallVocabulary

WORDS = SmallVocabulary("Context", "\n(", "State", ": ")
ONE_BY_ONE = {
    **LISTED,
    "score": {
        "mode": "isolated",
        "question": "{instructions}\nProposed: {level}\nFits?",
        "level_strip": r"^\s*\d+\s*:\s*",
        "options": ["no", "yes"],
        "read": 1,
    },
}


@pytest.fixture
def listed(tmp_path: Path) -> Authored:
    return open_package(write_package(tmp_path)).dialect(WORDS)


@pytest.fixture
def alone(tmp_path: Path) -> Authored:
    return open_package(write_package(tmp_path, ONE_BY_ONE)).dialect(WORDS)


@pytest.fixture
def typed(tmp_path: Path) -> Authored:
    return open_package(write_package(tmp_path, TYPED)).dialect(WORDS)


def said(dialect: Authored, question: Question, row: int = 0) -> str:
    return text_with(dialect.prompt(question, dialect.shown(question)[row]), "S")


def test_a_listed_question_names_its_options_under_letters(listed: Authored) -> None:
    question = Choice(instructions="Which?", criteria={"a": None, "b": {"x": [1, "é"]}})
    assert said(listed, question) == (
        'Context:\nS\n\nQuestion: Which?\nOptions:\n(A) a\n(B) b: {"x": [1, "é"]}\nAnswer: ('
    )


def test_no_stands_before_yes_and_is_read_back_as_the_second_label(listed: Authored) -> None:
    question = Noul(instructions="Late?", criteria=NoulCriteria(false="in time"))
    assert said(listed, question).endswith("\n(A) no: in time\n(B) yes\nAnswer: (")
    folded = listed.combined(question, listed.shown(question), [np.array([0.0, 3.0])])
    assert list(folded) == [3.0, 0.0]


def test_from_three_options_on_each_label_is_a_piece_of_its_own(listed: Authored) -> None:
    two, three = (Choice(instructions="?", criteria=list("xyz")[:count]) for count in (2, 3))
    joined, split = (
        [piece.text for piece in listed.branch(one, listed.labels(one, WORDS), range(len(one.labels)))]
        for one in (two, three)
    )
    assert joined == ["\n\nQuestion: ?\nOptions:\n(A) x\n(B) y\nAnswer: ("]
    assert split[:4] == ["\n\nQuestion: ?\nOptions:", "\n(", "A", ") x"]
    assert split[-1] == "\nAnswer: ("
    assert not any(piece.control for piece in listed.branch(two, listed.labels(two, WORDS), (0, 1)))


def test_levels_asked_one_by_one_have_a_row_each_without_their_numbers(alone: Authored) -> None:
    question = Score(instructions="How bad?", criteria=("0: fine", "bad", "awful"))
    assert alone.shown(question) == ((0,), (1,), (2,))
    assert alone.labels(question, WORDS).marks == ("A", "B")
    assert said(alone, question, 0) == (
        "Context:\nS\n\nQuestion: How bad?\nProposed: fine\nFits?\nOptions:\n(A) no\n(B) yes\nAnswer: ("
    )
    assert "Proposed: awful" in said(alone, question, 2)


def test_a_question_without_instructions_falls_back_or_is_refused(listed: Authored) -> None:
    assert "\n\nQuestion: Which fits?\n" in said(listed, Noul(criteria=NoulCriteria(false="x")))
    with pytest.raises(InvalidQuestion, match="needs instructions"):
        said(listed, Choice(criteria=["a", "b"]))


@pytest.mark.parametrize(
    ("question", "why"),
    [
        (Choice(instructions="?", criteria=list("abcde")), "at most 4 options in a choice, not 5"),
        (Score(instructions="?", criteria=("a", "b", "c", "d")), "at most 3 options in a score, not 4"),
        (Score(instructions="?", criteria=("a", "")), "needs a description of option 2"),
        (Noul(instructions="?", criteria=NoulCriteria(true="x")), "reads no description of option 2"),
    ],
)
def test_what_a_package_was_not_made_for_is_refused(listed: Authored, question: Question, why: str) -> None:
    with pytest.raises(InvalidQuestion, match=why):
        said(listed, question)


def test_a_typed_question_stands_in_the_chat_template(typed: Authored) -> None:
    question = Noul(instructions="Late?", criteria=NoulCriteria(false="in time"))
    assert typed.shown(question) == ((0, 1), (1, 0))
    assert said(typed, question) == (
        "<|im_start|>Be brief.<|im_end|>State:\nS\n\nLate?\nAnswer y or n.<|im_end|>"
    )
    assert "Answer n or y." in said(typed, question, 1)


def test_labels_that_stay_with_their_options_are_read_in_the_order_of_the_labels(typed: Authored) -> None:
    question = Noul(instructions="Late?")
    labels = typed.labels(question, WORDS)
    assert (labels.marks, labels.ids) == (("y", "n"), (ord("y"), ord("n")))
    rows = [np.log([0.8, 0.2]), np.log([0.6, 0.4])]
    folded = typed.combined(question, typed.shown(question), rows)
    yes, no = np.sqrt([0.8 * 0.6, 0.2 * 0.4])  # the geometric mean, since the package says logmean
    temperature = typed.temperature(question)
    assert temperature == 1.5
    scaled = np.exp(folded / temperature)
    assert scaled[0] / scaled[1] == pytest.approx((yes / no) ** (1 / temperature))


def test_a_rotated_choice_is_listed_by_text_and_turned_once_for_each_option(typed: Authored) -> None:
    question = Choice(instructions="Which?", criteria={"pear": None, "fig": "sweet", "apple": None})
    assert typed.shown(question) == ((2, 1, 0), (1, 0, 2), (0, 2, 1))
    first, second = said(typed, question), said(typed, question, 1)
    assert "Q: Which?applefig: sweetpear\nA. apple\nB. fig: sweet\nC. pear\nLetter only." in first
    assert "Q: Which?applefig: sweetpear\nA. fig: sweet\nB. pear\nC. apple\nLetter only." in second


def test_options_that_read_the_same_are_refused(typed: Authored) -> None:
    with pytest.raises(InvalidQuestion, match="read the same"):
        said(typed, Choice(instructions="?", criteria={"a: b": None, "a": "b"}))


@pytest.mark.parametrize(
    ("state", "wanted"),
    [
        ("text", "text"),
        ({"a": [1]}, '{\n  "a": [\n    1\n  ]\n}'),
        ([{"role": "user", "content": "hi"}, {"role": "bot", "content": "yo"}], "user: hi\nbot: yo"),
        ([{"role": "user"}], '[\n  {\n    "role": "user"\n  }\n]'),
    ],
)
def test_a_state_is_written_as_the_package_says(typed: Authored, state: Any, wanted: str) -> None:
    assert typed.state_text(state) == wanted


def test_long_lists_of_a_state_are_numbered_where_the_package_says_so(tmp_path: Path) -> None:
    package = {**LISTED, "state": {"index_arrays_from": 2}}
    dialect = open_package(write_package(tmp_path, package)).dialect(WORDS)
    assert dialect.state_text({"a": [{"x": "é"}, 7], "b": [1]}) == (
        '{"a": [{"_index": 0, "x": "é"}, {"_index": 1, "value": 7}], "b": [1]}'
    )


def test_an_empty_state_has_words_of_its_own(typed: Authored, listed: Authored) -> None:
    assert typed.state("") == typed.state("(empty)") != listed.state("")


@pytest.mark.parametrize(
    ("context", "row", "characters"),
    [(None, 512, 600), (60, 512, 100), (None, 100, 90), (60, 512, None), (None, 512, None)],
)
def test_a_state_beyond_the_limits_of_its_package_is_refused_and_never_cut(
    tmp_path: Path, context: int | None, row: int, characters: int | None
) -> None:
    prompt = {**LISTED, "context": {**LISTED["context"], "max_tokens": context}}
    limits = {"max_tokens": row, "max_options": 4}
    dialect = open_package(write_package(tmp_path, prompt, limits=limits)).dialect(WORDS)
    question = Noul(instructions="Late?")
    asked = (question, dialect.labels(question, WORDS), dialect.shown(question)[0])
    if characters is None:
        assert dialect.row(*asked, "x" * 40) is None
        return
    with pytest.raises(StateTooLong, match=f"at most {context or row}: shorten it"):
        dialect.row(*asked, "x" * characters)


def test_words_in_braces_are_never_filled_in(listed: Authored) -> None:
    question = Choice(instructions="{state} {text}?", criteria={"{label}": "{name}", "b": None})
    assert said(listed, question).endswith(
        "Question: {state} {text}?\nOptions:\n(A) {label}: {name}\n(B) b\nAnswer: ("
    )
