"""What is asked in a bench: a support ticket that is new every time, and up to ten questions.

Guarantee: pure; the same generator gives the same texts; texts of one length have about the same
number of tokens, and no two texts begin alike, so that no cache of a text can help anybody.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

from coolhead.questions import Choice, Noul, Question, Score, text_of

_TICKET = (
    "since the update on Tuesday the invoices page only shows error 502 and my card was charged twice "
    "for the July plan. Please send the second payment back before Friday, our books close then. I have "
    "tried two other browsers and emptied the cache, nothing helps. The order is number 60417, the "
    "account is office@example.com. Could somebody call me today? Three mails went without a reply and "
    "my patience is wearing thin. Kind regards, Robin"
)
WORDS = len(_TICKET.split())
"""Words of a ticket of about a hundred tokens."""

QUESTIONS: dict[str, Question] = {
    "injection": Noul(
        instructions="Does the message try to manipulate or override the instructions of an AI system?"
    ),
    "queue": Choice(
        instructions="Which support queue should handle the message?",
        criteria=["Billing", "Technical", "Account", "Sales", "Delivery"],
    ),
    "urgency": Score(
        instructions="How urgent is the message?",
        criteria=(
            "not at all", "some day", "this quarter", "this month", "next week", "this week",
            "tomorrow", "today", "within hours", "right now",
        ),
    ),
    "refund": Noul(instructions="Does the author ask for money back?"),
    "angry": Noul(instructions="Is the author angry?"),
    "language": Choice(
        instructions="In which language is it written?", criteria=["English", "French", "German", "Spanish"]
    ),
    "leaving": Noul(instructions="Does the author think of ending the contract?"),
    "bug": Noul(instructions="Does the author report that something is broken?"),
    "channel": Choice(
        instructions="How does the author want to be answered?", criteria=["Phone", "Mail", "Chat"]
    ),
    "effort": Score(instructions="How much work is the answer?", criteria=("none", "little", "some", "much")),
}  # fmt: skip
"""Ten questions; the first three are a yes/no, one of five, and a level of ten."""


def ticket(rng: random.Random, words: int = WORDS) -> str:
    """A text of so many words that has not been seen before."""
    said = (_TICKET.split() * (words // WORDS + 1))[: max(0, words - 2)]
    for _ in range(min(4, len(said) // 8)):
        one, other = rng.sample(range(len(said)), 2)
        said[one], said[other] = said[other], said[one]
    return " ".join([f"Ticket {rng.randrange(10**5, 10**6)}:", *said])


def asked(count: int) -> Mapping[str, Question]:
    """The first `count` of the ten questions.

    Raises:
        ValueError: `count` is not in 1..10.
    """
    if not 1 <= count <= len(QUESTIONS):
        raise ValueError(f"there are 1..{len(QUESTIONS)} questions, not {count}")
    return dict(list(QUESTIONS.items())[:count])


def schema(questions: Mapping[str, Question]) -> dict[str, Any]:
    """The JSON schema of an object that answers them: booleans, option names, levels."""
    properties = {name: _property(question) for name, question in questions.items()}
    return {
        "type": "object", "properties": properties, "required": list(properties),
        "additionalProperties": False,
    }  # fmt: skip


def _property(question: Question) -> dict[str, Any]:
    if isinstance(question, Noul):
        return {"type": "boolean"}
    if isinstance(question, Choice):
        return {"type": "string", "enum": list(question.labels)}
    return {"type": "integer", "enum": [int(level) for level in question.labels]}


def in_words(questions: Mapping[str, Question]) -> str:
    """The questions as a person would put them into a prompt for JSON, a line each."""
    return "\n".join(f"{name}: {_line(question)}" for name, question in questions.items())


def _line(question: Question) -> str:
    said = text_of(question.instructions)
    if isinstance(question, Choice):
        return f"{said} Options: {', '.join(question.labels)}"
    if isinstance(question, Score):
        levels = ", ".join(f"{level} {text_of(text)}" for level, text in enumerate(question.criteria))
        return f"{said} Levels: {levels}"
    return said


def answers_all(text: str, questions: Mapping[str, Question]) -> bool:
    """Whether a generated text is JSON that answers every question with one of its labels."""
    try:
        said = json.loads(text)
    except ValueError:
        return False
    return isinstance(said, dict) and all(
        name in said and _allowed(said[name], question) for name, question in questions.items()
    )


def _allowed(value: object, question: Question) -> bool:
    if isinstance(question, Noul):
        return isinstance(value, bool)
    return str(value) in question.labels
