"""The words of a question: pure text, the same for the same question, whatever the state.

Guarantee: nothing of a state is in it, and no control token; `words_digest` changes whenever any of
this text does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from coolhead.questions import Choice, Noul, NoulCriteria, Question, Score, text_of


def asked(question: Question, kind: str, marks: Sequence[str], order: Sequence[int]) -> str:
    """A question, its options, and how to reply.

    Args:
        question: the question.
        kind: names, strings, letters, codes or digits.
        marks: what stands for each label (letters and codes: for each place in the list).
        order: in which order the labels are shown, a permutation of their indices.
    """
    lines = [text_of(question.instructions)] if question.instructions else []
    return "\n".join([*lines, *_body(question, kind, marks, order), _request(question, kind, marks, order)])


def _body(question: Question, kind: str, marks: Sequence[str], order: Sequence[int]) -> list[str]:
    if isinstance(question, Noul):
        return _noul(question.criteria or NoulCriteria(), kind, marks, order)
    if isinstance(question, Score):
        said = [text_of(level) for level in question.criteria]
        places = range(len(order)) if kind != "digits" else order
        return ["Levels:", *(f"{marks[at]}: {said[i]}" for at, i in zip(places, order, strict=True))]
    return _options(question, kind, marks, order)


def _noul(criteria: NoulCriteria, kind: str, marks: Sequence[str], order: Sequence[int]) -> list[str]:
    said = [(("Yes", criteria.true), ("No", criteria.false))[i] for i in order]
    if kind == "names":
        return [f"{word} means: {text_of(content)}" for word, content in said if content]
    words = [f"{word}: {text_of(content)}" if content else word for word, content in said]
    return [f"{mark}. {text}" for mark, text in zip(marks, words, strict=True)]


def _options(question: Choice, kind: str, marks: Sequence[str], order: Sequence[int]) -> list[str]:
    options = [list(question.criteria.items())[i] for i in order]
    if kind in ("names", "strings") and not any(question.criteria.values()):
        return ["Options: " + ", ".join(name for name, _ in options) + "."]
    said = [f"{name}: {text_of(text)}" if text else name for name, text in options]
    if kind in ("names", "strings"):
        return ["Options:", *(f"- {text}" for text in said)]
    return [f"{mark}. {text}" for mark, text in zip(marks, said, strict=True)]


def _request(question: Question, kind: str, marks: Sequence[str], order: Sequence[int]) -> str:
    if kind in ("names", "strings"):
        words = " or ".join(marks[i] for i in order)
        return f"Reply with {words}." if isinstance(question, Noul) else "Reply with the option name only."
    if kind == "digits":
        return f"Reply with one digit from {marks[0]} to {marks[-1]}."
    return "Reply with one letter." if kind == "letters" else "Reply with one code."


_SAMPLES: tuple[tuple[Question, str, tuple[str, ...]], ...] = (
    (Noul(instructions="q"), "names", ("Yes", "No")),
    (Noul(criteria=NoulCriteria(true="t", false="f")), "names", ("Yes", "No")),
    (Noul(criteria=NoulCriteria(true="t")), "letters", ("A", "B")),
    (Choice(instructions="q", criteria={"a": None, "b": None}), "names", ("a", "b")),
    (Choice(criteria={"a": None, "b": None}), "strings", ("a", "b")),
    (Choice(criteria={"a": "x", "b": None}), "names", ("a", "b")),
    (Choice(criteria={"a": "x", "b": None}), "strings", ("a", "b")),
    (Choice(criteria={"a": "x", "b": None}), "letters", ("A", "B")),
    (Choice(criteria={"a": "x", "b": None}), "codes", ("AA", "AB")),
    (Score(instructions={"q": 1}, criteria=("low", "high")), "digits", ("0", "1")),
    (Score(criteria=("low", "high")), "letters", ("A", "B")),
)


def words_digest() -> str:
    """16 hex digits over one rendering of every form a question can take, forward and backward."""
    said = [
        asked(question, kind, marks, order)
        for question, kind, marks in _SAMPLES
        for order in ((0, 1), (1, 0))
    ]
    return hashlib.sha256(repr(said).encode()).hexdigest()[:16]
