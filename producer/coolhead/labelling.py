"""Labels as people write them, as positions among a question's labels.

Guarantee: pure; a label that could mean two things, or none, is refused with the question's id and what
was written.
"""

from __future__ import annotations

from coolhead.errors import InvalidLabels
from coolhead.questions import Choice, Noul, Question, Score, text_of

_NOUL: dict[object, int] = {"yes": 0, "no": 1}


def label_index(name: str, question: Question, value: object, first: int = 0) -> int:
    """The position of a label in `question.labels`.

    Args:
        name: the question's id, for the error.
        question: what is labelled.
        value: true, false, yes, no, 1 or 0; an option's name; a level's number or text.
        first: the number of the lowest level.

    Raises:
        InvalidLabels: no such label.
    """
    if isinstance(question, Noul):
        return _noul_index(name, value)
    if isinstance(question, Choice):
        if isinstance(value, str) and value in question.criteria:
            return question.labels.index(value)
        raise InvalidLabels(f"{name}: {str(value)[:64]!r} is not an option")
    return _score_index(name, question, value, first)


def _noul_index(name: str, value: object) -> int:
    if isinstance(value, str) and value in _NOUL:
        return _NOUL[value]
    if isinstance(value, int) and value in (0, 1):
        return 1 - int(value)
    raise InvalidLabels(f"{name}: {str(value)[:64]!r} is not true, false, yes, no, 1 or 0")


def _score_index(name: str, question: Score, value: object, first: int) -> int:
    count = len(question.criteria)
    if isinstance(value, int) and not isinstance(value, bool):
        if first <= value < first + count:
            return value - first
        raise InvalidLabels(f"{name}: {value} is not a level from {first} to {first + count - 1}")
    found = [
        i for i, level in enumerate(question.criteria) if isinstance(value, str) and text_of(level) == value
    ]
    if len(found) == 1:
        return found[0]
    raise InvalidLabels(f"{name}: {str(value)[:64]!r} is not the text of exactly one level: use its number")
