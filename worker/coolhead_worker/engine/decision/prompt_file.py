"""`prompt.json` of a NoulXP (OpenDXP) package of the profile causal-letters, as checked values.

Guarantee: a `PromptFile` that exists is complete and consistent: exactly one of a layout for all
types (0.1) or a layout for each type (0.2), with a label for every option that it may show.
Field names and defaults are those of the NoulXP standard, version 0.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from coolhead_worker.engine.decision.script import fields

Type = Literal["choice", "score", "noul"]
Marks = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=2)]


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Forms(_File):
    """How an option is written with and without a description."""

    described: str | None = None
    bare: str | None = None


class NoulForms(_File):
    """How the two sides of a yes/no question are written."""

    false: Forms
    true: Forms


class OptionForms(BaseModel):
    """How options are written, by type of question."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    choice: Forms
    score: Forms
    noul: NoulForms


class Context(_File):
    """What holds the state; `max_tokens`: longer ones are cut by the author's own code."""

    template: str
    max_tokens: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _holds_the_state(self) -> Self:
        if self.template.count("{state}") != 1:
            raise ValueError("context.template needs exactly one {state}")
        return self


class QuestionText(_File):
    """One layout for all types: what comes before, for each, and after the options."""

    head: str
    option: str
    tail: str

    @model_validator(mode="after")
    def _places(self) -> Self:
        if self.option.count("{label}") != 1 or "{text}" not in self.option:
            raise ValueError("question.option needs one {label} and a {text}")
        return self


class Encoding(_File):
    """How questions with so many options are tokenised."""

    max_options: Annotated[int, Field(ge=2)]
    encoding: Literal["joined", "split-at-label"]


class Levels(_File):
    """Whether levels are listed, or asked one by one with a yes/no question each."""

    mode: Literal["list", "isolated"] = "list"
    question: str = ""
    level_strip: str | None = None
    options: Marks = ("no", "yes")
    read: Annotated[int, Field(ge=0)] = 1

    @model_validator(mode="after")
    def _reads_an_option(self) -> Self:
        if self.read >= len(self.options):
            raise ValueError("score.read is beyond score.options")
        if self.mode == "isolated" and not self.question:
            raise ValueError("score.question is needed when levels are asked one by one")
        return self


class Instructions(_File):
    """What is asked when a question has no instructions."""

    fallback: dict[Type, str] = {}
    required: bool = False


class StateForm(_File):
    """How a state that is no text is written."""

    index_arrays_from: Annotated[int, Field(ge=1)] | None = None
    json_form: Literal["compact", "indent-2"] = Field(default="compact", alias="json")
    messages: Literal["role-content"] | None = None
    empty: str | None = None


class Decode(_File):
    """Settings of llama.cpp that the author used; informative here (see docs/decision-models.md)."""

    flash_attention: Literal["auto", "enabled", "disabled"] = "auto"
    kv_cache: Literal["f16", "f32"] = "f16"
    ubatch: Annotated[int, Field(ge=1)] = 2048


class Chat(_File):
    """The model's chat template with the conversation in place."""

    template: str
    system: str = ""

    @model_validator(mode="after")
    def _holds_the_user(self) -> Self:
        if self.template.count("{user}") != 1 or self.template.count("{system}") > 1:
            raise ValueError("chat.template needs exactly one {user} and at most one {system}")
        return self


class Layout(_File):
    """How one type is asked with up to so many options."""

    max_options: Annotated[int, Field(ge=2)]
    labels: Marks
    head: str
    option: str
    separator: str
    tail: str

    @model_validator(mode="after")
    def _places(self) -> Self:
        if len(self.labels) < self.max_options or _double(self.labels):
            raise ValueError("a layout needs a different label for each option")
        if self.option.count("{label}") != 1 or not fields(self.option) <= {"label", "text"}:
            raise ValueError("option needs one {label} and may have a {text}")
        if not fields(self.head) <= {"instructions", "legend"}:
            raise ValueError("head may use only {instructions} and {legend}")
        return self


class TypeLayout(_File):
    """How one type of question is asked."""

    layouts: Annotated[tuple[Layout, ...], Field(min_length=1)]
    labels: Literal["positional", "attached"] = "positional"
    rotate: Literal["none", "cyclic"] = "none"
    listing: Literal["request", "canonical"] | tuple[str, ...] = "request"

    @property
    def most(self) -> int:
        """Options of a question at most."""
        return max(layout.max_options for layout in self.layouts)

    def layout(self, count: int) -> Layout:
        """The smallest layout for `count` options, at most `most`."""
        fitting = [layout for layout in self.layouts if layout.max_options >= count]
        return min(fitting, key=lambda layout: layout.max_options)


class Types(_File):
    """A layout for each type."""

    choice: TypeLayout
    score: TypeLayout
    noul: TypeLayout

    @model_validator(mode="after")
    def _listing(self) -> Self:
        for type_, layout in (("choice", self.choice), ("score", self.score), ("noul", self.noul)):
            named = isinstance(layout.listing, tuple)
            if named and (type_ != "noul" or sorted(layout.listing) != ["false", "true"]):
                raise ValueError('only noul lists its options by key, and then as "false" and "true"')
        return self


class Prior(_File):
    """What is divided out of an answer."""

    kind: Literal["none", "content-free"] = "none"
    probes: tuple[str, ...] = ()
    strength: float = 0.0


class Rotations(_File):
    """How the rows of one question become one answer."""

    combine: Literal["logmean", "mean"] = "logmean"
    prior: Prior = Prior()


@dataclass(frozen=True, slots=True)
class Listed:
    """The layout that all types share."""

    text: QuestionText
    labels: Marks
    layouts: tuple[Encoding, ...]
    levels: Levels

    @property
    def most(self) -> int:
        """Options of a question at most."""
        return max(layout.max_options for layout in self.layouts)

    def joined(self, count: int) -> bool:
        """Whether a question with `count` options, at most `most`, is tokenised in one piece."""
        fitting = [layout for layout in self.layouts if layout.max_options >= count]
        return min(fitting, key=lambda layout: layout.max_options).encoding == "joined"


class PromptFile(BaseModel):
    """The whole file."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    standard: str
    profile: Literal["causal-letters"]
    context: Context
    options: OptionForms
    question: QuestionText | None = None
    labels: Marks | None = None
    layouts: Annotated[tuple[Encoding, ...], Field(min_length=1)] | None = None
    score: Levels | None = None
    slot: Literal["last"] = "last"
    instructions: Instructions = Instructions()
    state: StateForm = StateForm()
    decode: Decode = Decode()
    types: Types | None = None
    chat: Chat | None = None
    rotations: Rotations | None = None

    @property
    def listed(self) -> Listed | None:
        """The layout for all types, or None when there are `types`."""
        if self.question is None or self.labels is None or self.layouts is None:
            return None
        return Listed(self.question, self.labels, self.layouts, self.score or Levels())

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        parts = (self.question, self.labels, self.layouts, self.score)
        if self.types is not None and any(part is not None for part in parts):
            raise ValueError("with types it has no question, labels, layouts or score")
        if self.types is not None and self.context.max_tokens is not None:
            raise ValueError("with types it has no context.max_tokens, since rows are tokenised whole")
        listed = self.listed
        if self.types is None and (listed is None or self.chat or self.rotations):
            raise ValueError("needs question, labels and layouts, or types; chat and rotations need types")
        if listed is not None and (listed.most > len(set(listed.labels)) or _double(listed.labels)):
            raise ValueError("labels must differ, and there must be one for each option of a layout")
        return self


def _double(labels: Marks) -> bool:
    return len(set(labels)) != len(labels)
