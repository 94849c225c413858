"""The words of a question show all of it and nothing of its surroundings."""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType

import pytest

from coolhead.questions import Choice, Noul, NoulCriteria, Question, Score
from coolhead_worker.engine import prompt
from coolhead_worker.engine.prompt import asked, words_digest

CHOICE = Choice(instructions="Which?", criteria={"red": None, "blue": "like the sky"})
BARE = Choice(instructions="Which?", criteria=["red", "blue"])
SCORE = Score(instructions="How?", criteria=("low", {"is": "high"}))
ONE_SIDED = Noul(instructions="Spam?", criteria=NoulCriteria(false={"kind": "letter"}))
FORWARD, BACKWARD = (0, 1), (1, 0)

RENDERED = [
    (Noul(instructions="Spam?"), "names", ("Yes", "No"), FORWARD, "Spam?\nReply with Yes or No."),
    (Noul(instructions="Spam?"), "names", ("Yes", "No"), BACKWARD, "Spam?\nReply with No or Yes."),
    (
        Noul(criteria=NoulCriteria(true="an ad")),
        "names",
        ("Yes", "No"),
        FORWARD,
        "Yes means: an ad\nReply with Yes or No.",
    ),
    (
        ONE_SIDED,
        "letters",
        ("A", "B"),
        FORWARD,
        'Spam?\nA. Yes\nB. No: {"kind":"letter"}\nReply with one letter.',
    ),
    (
        ONE_SIDED,
        "letters",
        ("A", "B"),
        BACKWARD,
        'Spam?\nA. No: {"kind":"letter"}\nB. Yes\nReply with one letter.',
    ),
    (
        BARE,
        "names",
        ("red", "blue"),
        FORWARD,
        "Which?\nOptions: red, blue.\nReply with the option name only.",
    ),
    (
        BARE,
        "strings",
        ("red", "blue"),
        BACKWARD,
        "Which?\nOptions: blue, red.\nReply with the option name only.",
    ),
    (
        CHOICE,
        "names",
        ("red", "blue"),
        BACKWARD,
        "Which?\nOptions:\n- blue: like the sky\n- red\nReply with the option name only.",
    ),
    (
        CHOICE,
        "codes",
        ("AA", "AB"),
        FORWARD,
        "Which?\nAA. red\nAB. blue: like the sky\nReply with one code.",
    ),
    (
        CHOICE,
        "codes",
        ("AA", "AB"),
        BACKWARD,
        "Which?\nAA. blue: like the sky\nAB. red\nReply with one code.",
    ),
    (
        SCORE,
        "digits",
        ("0", "1"),
        BACKWARD,
        'How?\nLevels:\n1: {"is":"high"}\n0: low\nReply with one digit from 0 to 1.',
    ),
    (
        SCORE,
        "letters",
        ("A", "B"),
        BACKWARD,
        'How?\nLevels:\nA: {"is":"high"}\nB: low\nReply with one letter.',
    ),
]


@pytest.mark.parametrize(("question", "kind", "marks", "order", "text"), RENDERED)
def test_a_question_reads_like_this(
    question: Question, kind: str, marks: tuple[str, ...], order: tuple[int, ...], text: str
) -> None:
    assert asked(question, kind, marks, order) == text


def test_the_digest_is_the_same_every_time() -> None:
    assert words_digest() == words_digest()
    assert len(words_digest()) == 16


def words_of(source: ast.Module) -> list[ast.Constant]:
    """All texts inside the functions that write prompts, docstrings excluded."""
    functions = [
        node
        for node in source.body
        if isinstance(node, ast.FunctionDef) and node.name not in ("words_digest",)
    ]
    docs = {id(node.body[0].value) for node in functions if isinstance(node.body[0], ast.Expr)}
    return [
        node
        for function in functions
        for node in ast.walk(ast.Module(function.body, []))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs
    ]


def digest_of(source: ast.Module) -> str | None:
    """The digest of a changed copy of the module; None when it no longer runs."""
    module = ModuleType("changed")
    try:
        exec(compile(source, "changed", "exec"), module.__dict__)
        return module.words_digest()
    except (KeyError, ValueError, TypeError):
        return None


def test_no_word_of_a_prompt_can_change_without_the_digest() -> None:
    source = ast.parse(Path(prompt.__file__).read_text())
    words = words_of(source)
    assert len(words) > 20
    for word in words:
        said, word.value = word.value, word.value + "~"
        assert digest_of(source) != words_digest(), f"{said!r} is in no sample"
        word.value = said
    assert digest_of(source) == words_digest()
