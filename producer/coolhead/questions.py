"""The three kinds of question, in the public System One wire form.

Guarantee: a `Questions` value that exists obeys every limit of the contract (1..64 questions,
choice 2..255 options in the order given, score 2..10 levels, ids and option names non-empty and
without NUL), is frozen, and has a fingerprint that changes exactly when its meaning can.

`choice` takes 2..255 options as documented; one option is refused, because nothing is decided.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError, model_validator

from coolhead.errors import InvalidQuestion, one_line

MAX_QUESTIONS = 64
MIN_OPTIONS, MAX_OPTIONS = 2, 255
MIN_LEVELS, MAX_LEVELS = 2, 10

Content = str | dict[str, Any] | list[Any]
"""A text, or an object or list that is shown to the model as JSON."""


def canonical(value: object) -> str:
    """JSON with one spelling for one value; the order of object keys is kept, as it is meaning.

    Raises:
        ValueError: the value holds NaN or infinity.
        TypeError: the value is not JSON.
    """
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def holds_nul(text: str) -> bool:
    """Whether a canonical JSON text holds a NUL character, in a value or in a key."""
    # The escape of NUL, not a spelt-out one: an even number of backslashes stands before it.
    return re.search(r"(?<!\\)(?:\\\\)*\\u0000", text) is not None


def text_of(content: Content | None) -> str:
    """What the model reads for a piece of content: the text itself, or compact JSON."""
    if content is None:
        return ""
    return content if isinstance(content, str) else canonical(content)


class _Question(BaseModel):
    """What all questions share; each kind has `labels`, the keys of its probabilities in order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    instructions: Content | None = None

    @property
    def fingerprint(self) -> str:
        """32 hex digits over everything of the question that the model may read, order included."""
        body = canonical(self.model_dump(mode="json"))
        return hashlib.sha256(body.encode()).hexdigest()[:32]


class NoulCriteria(BaseModel):
    """What makes the answer yes or no; either side may be left out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    true: Content | None = None
    false: Content | None = None


class Noul(_Question):
    """A yes/no question; the answer is P(yes)."""

    type: Literal["noul"] = "noul"
    criteria: NoulCriteria | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        described = self.criteria is not None and (self.criteria.true or self.criteria.false)
        if not self.instructions and not described:
            raise ValueError("a noul needs instructions, or criteria that describe an outcome")
        return self

    @property
    def labels(self) -> tuple[str, ...]:
        """Yes first: index 0 is P(yes)."""
        return ("yes", "no")


class Choice(_Question):
    """One of several named options."""

    type: Literal["choice"] = "choice"
    criteria: dict[str, Content | None]

    @model_validator(mode="before")
    @classmethod
    def _array_of_names(cls, data: Any) -> Any:
        """The list form `["a", "b"]` stands for options without a description."""
        if isinstance(data, Mapping) and isinstance(data.get("criteria"), list | tuple):
            names = list(data["criteria"])
            if len(set(map(str, names))) != len(names):
                raise ValueError("option names must differ")
            return {**data, "criteria": dict.fromkeys(names)}
        return data

    @model_validator(mode="after")
    def _limits(self) -> Self:
        count = len(self.criteria)
        if not MIN_OPTIONS <= count <= MAX_OPTIONS:
            raise ValueError(f"a choice has {MIN_OPTIONS}..{MAX_OPTIONS} options, not {count}")
        if any(not name.strip() or "\0" in name for name in self.criteria):
            raise ValueError("an option name is empty or holds NUL")
        return self

    @property
    def labels(self) -> tuple[str, ...]:
        """The option names."""
        return tuple(self.criteria)


class Score(_Question):
    """A level on a scale, lowest first; the answer is the expected level, from 0."""

    type: Literal["score"] = "score"
    criteria: Annotated[tuple[Content, ...], Field(min_length=MIN_LEVELS, max_length=MAX_LEVELS)]

    @property
    def labels(self) -> tuple[str, ...]:
        """ "0", "1", ... up to the number of levels less one."""
        return tuple(str(level) for level in range(len(self.criteria)))


Question = Annotated[Noul | Choice | Score, Field(discriminator="type")]


class Questions(RootModel[dict[str, Question]]):
    """The questions of one job, by id, in order."""

    model_config = ConfigDict(frozen=True)

    @model_validator(mode="after")
    def _limits(self) -> Self:
        if not 1 <= len(self.root) <= MAX_QUESTIONS:
            raise ValueError(f"a job has 1..{MAX_QUESTIONS} questions, not {len(self.root)}")
        if any(not name or "\0" in name for name in self.root):
            raise ValueError("a question id is empty or holds NUL")
        for name, question in self.root.items():
            # Plain python values: the json mode would turn NaN into null before anyone can see it.
            text = canonical(question.model_dump())
            if holds_nul(text):
                raise ValueError(f"question {name!r} holds NUL")
            text.encode()  # a lone surrogate is a UnicodeEncodeError, which is a ValueError
        return self

    @classmethod
    def parse(cls, value: object) -> Questions:
        """Read questions from plain data (or `Questions`).

        Raises:
            InvalidQuestion: with the place and the rule of the first fault.
        """
        if isinstance(value, Questions):
            return value
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            raise InvalidQuestion(explain(error, "questions")) from None
        except (ValueError, TypeError, RecursionError) as error:
            raise InvalidQuestion(f"questions: {one_line(str(error))}") from None

    def wire(self) -> dict[str, Any]:
        """Plain data in the official form."""
        return {name: question.model_dump(mode="json") for name, question in self.root.items()}

    def items(self) -> Iterator[tuple[str, Noul | Choice | Score]]:
        """(id, question) in order."""
        return iter(self.root.items())

    def __len__(self) -> int:
        return len(self.root)

    def __getitem__(self, name: str) -> Noul | Choice | Score:
        return self.root[name]


def explain(error: ValidationError, subject: str) -> str:
    """The first fault of a pydantic error as one line: where, and which rule."""
    first = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or subject
    more = error.error_count() - 1
    tail = f" (and {more} more)" if more else ""
    return f"{where}: {first['msg'].removeprefix('Value error, ')}{tail}"
