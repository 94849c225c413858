"""The prompts: pure text, the same for the same question, whatever the state.

Guarantee: a prompt is head + state + question + opening, four pieces that are tokenised apart, so
no token of one piece depends on another; control tokens are written only by `Template`, never
read out of a state or a question; `template_digest` changes whenever any of this text does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from coolhead.questions import Choice, Noul, NoulCriteria, Question, Score, text_of

SYSTEM = "You are a decision engine. Read the message and answer each question about it with a single token."


@dataclass(frozen=True, slots=True)
class Piece:
    """A text; in a `control` piece names of control tokens become those tokens."""

    text: str
    control: bool = False


@dataclass(frozen=True, slots=True)
class Template:
    """How one family of models is spoken to.

    `head`: what comes before the state, after the vocabulary's own beginning token.
    `opening`: ends the user's part and opens the answer; `tail` is its plain end, after the last
    control token, and `lead` stands between it and a label. `probes`: beginnings of a sentence about
    the message, the same for every question; what a model is about to say next is what heads read.
    """

    name: str
    head: tuple[Piece, ...]
    opening: Piece
    tail: str
    lead: str
    probes: tuple[tuple[Piece, ...], ...]


# Chosen among twelve by cross-validated NLL on routing, refund, urgency and injection labels:
# an unfinished sentence that asks for an intention says more than a question or an empty answer.
PROBES = ("The author of this message wants to", "In short: please", "This has to be done")

_CHATML_OPENING = Piece("<|im_end|>\n<|im_start|>assistant\n", control=True)

CHATML = Template(
    name="chatml",
    head=(
        Piece("<|im_start|>system\n", control=True),
        Piece(SYSTEM),
        Piece("<|im_end|>\n<|im_start|>user\n", control=True),
        Piece("Message:\n"),
    ),
    opening=_CHATML_OPENING,
    tail="assistant\n",
    lead="",
    probes=tuple((_CHATML_OPENING, Piece(text)) for text in PROBES),
)
PLAIN = Template(
    name="plain",
    head=(Piece(SYSTEM), Piece("\n\n"), Piece("Message:\n")),
    opening=Piece("\n\nAnswer:"),
    tail="\n\nAnswer:",
    lead=" ",
    probes=tuple((Piece(f"\n\n{text}"),) for text in PROBES),
)


def template_for(chat_template: str | None) -> Template:
    """The template for a model whose metadata holds `chat_template` (None: a base model)."""
    return CHATML if chat_template and "<|im_start|>" in chat_template else PLAIN


def suffix(question: Question, kind: str, marks: Sequence[str]) -> str:
    """What is said after the state: the question, its options, and how to reply.

    Args:
        question: the question.
        kind: names, letters, codes or digits.
        marks: what stands for each label, in the order of `question.labels`.
    """
    lines = ["", "", text_of(question.instructions)] if question.instructions else ["", ""]
    return "\n".join([*lines, *_body(question, kind, marks), _request(kind, marks)])


def _body(question: Question, kind: str, marks: Sequence[str]) -> list[str]:
    if isinstance(question, Noul):
        return _noul(question.criteria or NoulCriteria(), kind, marks)
    if isinstance(question, Score):
        said = [text_of(level) for level in question.criteria]
        return ["Levels:", *(f"{mark}: {text}" for mark, text in zip(marks, said, strict=True))]
    return _options(question, kind, marks)


def _noul(criteria: NoulCriteria, kind: str, marks: Sequence[str]) -> list[str]:
    said = (("Yes", criteria.true), ("No", criteria.false))
    if kind == "names":
        return [f"{word} means: {text_of(content)}" for word, content in said if content]
    words = [f"{word}: {text_of(content)}" if content else word for word, content in said]
    return [f"{mark}. {text}" for mark, text in zip(marks, words, strict=True)]


def _options(question: Choice, kind: str, marks: Sequence[str]) -> list[str]:
    if kind == "names" and not any(question.criteria.values()):
        return ["Options: " + ", ".join(question.criteria) + "."]
    said = [f"{name}: {text_of(text)}" if text else name for name, text in question.criteria.items()]
    if kind == "names":
        return ["Options:", *(f"- {text}" for text in said)]
    return [f"{mark}. {text}" for mark, text in zip(marks, said, strict=True)]


def _request(kind: str, marks: Sequence[str]) -> str:
    if kind == "names":
        return (
            "Reply with Yes or No." if tuple(marks) == ("Yes", "No") else "Reply with the option name only."
        )
    if kind == "digits":
        return f"Reply with one digit from {marks[0]} to {marks[-1]}."
    return "Reply with one letter." if kind == "letters" else "Reply with one code."


_SAMPLES: tuple[tuple[Question, str, tuple[str, ...]], ...] = (
    (Noul(instructions="q"), "names", ("Yes", "No")),
    (Noul(criteria=NoulCriteria(true="t", false="f")), "names", ("Yes", "No")),
    (Noul(criteria=NoulCriteria(true="t")), "letters", ("A", "B")),
    (Choice(instructions="q", criteria={"a": None, "b": None}), "names", ("a", "b")),
    (Choice(criteria={"a": "x", "b": None}), "names", ("a", "b")),
    (Choice(criteria={"a": "x", "b": None}), "letters", ("A", "B")),
    (Choice(criteria={"a": "x", "b": None}), "codes", ("AA", "AB")),
    (Score(instructions={"q": 1}, criteria=("low", "high")), "digits", ("0", "1")),
    (Score(criteria=("low", "high")), "letters", ("A", "B")),
)


def template_digest(template: Template) -> str:
    """8 hex digits over the template and one rendering of every form a question can take."""
    said = [suffix(question, kind, marks) for question, kind, marks in _SAMPLES]
    return hashlib.sha256(repr((template, said)).encode()).hexdigest()[:8]
