"""A task: questions and policy under a name, in a TOML file that producers and workers share.

Guarantee: a `Task` that exists has valid questions and a valid policy; a file that does not parse
is refused with its name, the place and the rule.
"""

from __future__ import annotations

import re
import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from coolhead.errors import ContractError, InvalidLabels, InvalidTask, UnknownTask, one_line
from coolhead.job import check_state
from coolhead.labelling import label_index
from coolhead.policy import Policy
from coolhead.questions import Questions, explain

MAX_EXAMPLES = 32

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class TextPlan(StrEnum):
    """How the questions of a task that no learned head answers are laid out for the model."""

    ISOLATED = "isolated"  #: each after the state, seeing no other: the set of questions moves nothing
    PINNED = "pinned"  #: all before the state, read once for all jobs: cheaper, for a set that is fixed


class LabelFormat(BaseModel):
    """How people write the labels of one question: `first` is the number of the lowest level."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    first: int = 0


class Example(BaseModel):
    """A state with the right answers to some of a task's questions, in people's spelling of labels."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    state: Annotated[str, Field(min_length=1)]
    answers: Annotated[dict[str, bool | int | str], Field(min_length=1)]


class Task(BaseModel):
    """Named questions with their policy, and how they are read.

    Under the plan `pinned` an answer may depend on the other questions of the task, their order and
    the `examples`, which the model is shown before every state: a fit of it is void when they change.
    Questions that a job brings inline are always isolated.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    description: str = ""
    questions: Questions
    policy: Policy = Policy()
    plan: TextPlan = TextPlan.PINNED
    labels: Annotated[dict[str, LabelFormat], Field(default_factory=dict)]
    examples: Annotated[tuple[Example, ...], Field(max_length=MAX_EXAMPLES)] = ()

    @classmethod
    def parse(cls, text: str, source: str = "task") -> Task:
        """Read a task from TOML.

        Raises:
            InvalidTask: names `source`, the place and the rule.
        """
        try:
            raw = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InvalidTask(f"{source}: {one_line(str(error))}") from None
        return cls.build(raw, source)

    @classmethod
    def build(cls, raw: dict[str, Any], source: str = "task") -> Task:
        """Read a task from plain data; errors as in `parse`."""
        try:
            questions = Questions.parse(raw.get("questions"))
            policy = Policy.parse(raw.get("policy"))
            task = cls.model_validate({**raw, "questions": questions, "policy": policy})
            task._check_examples()
        except ValidationError as error:
            raise InvalidTask(f"{source}: {explain(error, 'task')}") from None
        except (ContractError, InvalidLabels) as error:
            raise InvalidTask(f"{source}: {error}") from None
        unknown = (set(task.policy.per_question) | set(task.labels)) - set(questions.root)
        if not _NAME.fullmatch(task.name):
            raise InvalidTask(f"{source}: name: use 1..64 of a-z, 0-9, '-' and '_'")
        if unknown:
            raise InvalidTask(f"{source}: no question is called {sorted(unknown)[0]!r}")
        return task

    def label(self, question: str, value: object) -> int:
        """The position of a label, as people write it, among the labels of a question.

        Raises:
            InvalidLabels: no such label.
        """
        form = self.labels.get(question, LabelFormat())
        return label_index(question, self.questions[question], value, form.first)

    def _check_examples(self) -> None:
        """Refuses a state that no job may have, and a label that no question has."""
        if self.examples and self.plan is not TextPlan.PINNED:
            raise InvalidTask("examples stand before the state: they need plan = 'pinned'")
        for example in self.examples:
            check_state(example.state)
            for name, value in example.answers.items():
                if name not in self.questions.root:
                    raise InvalidTask(f"examples: no question is called {name[:64]!r}")
                self.label(name, value)

    @classmethod
    def load(cls, path: Path) -> Task:
        """Read a task file.

        Raises:
            InvalidTask: unreadable, or as in `parse`.
        """
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidTask(f"{path}: {one_line(str(error))}") from None
        return cls.parse(text, str(path))


class TaskBook(dict[str, Task]):
    """Tasks by name."""

    @classmethod
    def load(cls, folder: Path | None) -> TaskBook:
        """All `*.toml` of a folder; None gives an empty book.

        Raises:
            InvalidTask: no such folder, no task in it, a file that does not parse, or two files that
                use one name.
        """
        book = cls()
        if folder is None:
            return book
        paths = sorted(folder.glob("*.toml"))
        if not paths:
            raise InvalidTask(f"{folder}: no such folder, or no task file (*.toml) in it")
        for path in paths:
            task = Task.load(path)
            if task.name in book:
                raise InvalidTask(f"{path}: another file already defines {task.name!r}")
            book[task.name] = task
        return book

    def find(self, name: str) -> Task:
        """The task of that name.

        Raises:
            UnknownTask: names those that exist.
        """
        if name in self:
            return self[name]
        known = ", ".join(sorted(self)) or "none"
        raise UnknownTask(f"no task {name[:64]!r} here; known: {known}")
