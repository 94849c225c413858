"""Rows of packages, token by token against NoulXP's own reference runtime, on all its requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from coolhead.errors import InvalidQuestion
from coolhead.questions import Noul, Question, Questions
from coolhead_worker.engine.decision.authored import Authored
from coolhead_worker.engine.decision.package import open_package
from coolhead_worker.engine.dialect import Piece
from coolhead_worker.engine.llama import LlamaModel
from coolhead_worker.models import DemoModels
from tests.engine.decision.packages import export_listed, export_typed, requests
from tests.engine.decision.rows import tokens_of

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("noulxp")]

Row = tuple[list[int], list[int]]
"""Tokens of a whole prompt, and the tokens that are read at its end."""


@dataclass(frozen=True)
class Pair:
    """The same package in our hands and in theirs."""

    model: LlamaModel
    dialect: Authored
    theirs: Any

    def our_rows(self, question: Question, state: str) -> Iterator[Row]:
        dialect, labels = self.dialect, self.dialect.labels(question, self.model)
        for order in dialect.shown(question):
            branch = dialect.branch(question, labels, order)
            pieces = (*dialect.head(), Piece(dialect.state(state)), *branch)
            # A label that stays with its option is named by the option, any other by its place.
            attached = labels.kind == "names"
            reads = [labels.ids[index] for index in order] if attached else list(labels.ids)
            yield tokens_of(self.model, pieces), reads


@pytest.fixture(scope="module", params=["listed", "one by one", "typed"])
def pair(
    request: pytest.FixtureRequest, noulxp: None, demo_models: DemoModels, tmp_path_factory
) -> Iterator[Pair]:
    folder: Path = tmp_path_factory.mktemp("package") / "made"
    weights = demo_models.fast.path
    if request.param == "typed":
        package = export_typed(weights, folder)
    else:
        package = export_listed(weights, folder, isolated=request.param == "one by one")
    model = LlamaModel(weights)
    yield Pair(model, open_package(package).dialect(model), their_builder(package))
    model.close()
    (package / "model.gguf").unlink()


def their_builder(folder: Path) -> Any:
    from noulxp.package import open_package as open_theirs
    from noulxp.profiles.causal_letters import Builder, Prompt
    from noulxp.profiles.typed import TypedBuilder
    from noulxp.tokens import Tokens

    package = open_theirs(folder)
    prompt = Prompt(package.read_json("prompt"))
    return (Builder if prompt.typed is None else TypedBuilder)(prompt, Tokens(package.file("tokenizer")))


def their_rows(builder: Any, question: Any, state: Any) -> Iterator[Row]:
    if hasattr(builder, "ask"):
        asked = builder.ask(question)
        for text, reads in zip(asked.texts, asked.reads, strict=True):
            yield builder.row(builder.state(state), text), reads
        return
    _, rows = builder.rows(question)
    for text, options in rows:
        tokens = builder.context(state) + builder.question_piece(text, options)
        yield tokens, builder.label_ids[: len(options)]


def test_every_row_has_their_tokens_and_is_read_where_they_read_it(pair: Pair) -> None:
    from noulxp.errors import RequestError
    from noulxp.request import parse_question

    compared = 0
    for asked in [*requests(), *MORE]:
        ours = Questions.parse(asked["questions"])
        state = pair.dialect.state_text(asked["state"])
        for name, question in ours.items():
            said = parse_question(name, asked["questions"][name])
            try:
                theirs = list(their_rows(pair.theirs, said, asked["state"]))
            except RequestError:
                with pytest.raises(InvalidQuestion):
                    list(pair.our_rows(question, state))
                continue
            mine = list(pair.our_rows(question, state))
            assert in_their_order(question, mine, theirs), (name, asked["state"])
            compared += len(mine)
    assert compared > 90


def in_their_order(question: Question, mine: Sequence[Row], theirs: Sequence[Row]) -> bool:
    """Rows are equal one by one; a yes/no question is read as (no, yes) by them, as shown by us."""
    if isinstance(question, Noul) and len(mine) == len(theirs) == 1:
        return mine[0][0] == theirs[0][0] and sorted(mine[0][1]) == sorted(theirs[0][1])
    return list(mine) == list(theirs)


MORE: tuple[dict[str, Any], ...] = (
    {
        "state": {"items": [{"n": at, "é": None} for at in range(9)], "list": [1, 2]},
        "questions": {
            "a": {
                "type": "choice",
                "instructions": "Which {text}?",
                "criteria": {"{name}": {"x": [1, "ü"]}, "b": ""},
            },
            "b": {"type": "score", "instructions": "How?", "criteria": ["1: low", " -2 : high", ["x"]]},
            "c": {"type": "noul", "instructions": "True?", "criteria": {"false": {"why": "no"}}},
        },
    },
    {
        "state": [{"role": "user", "content": "hello\n"}, {"role": "assistant", "content": "  hi"}],
        "questions": {"a": {"type": "noul", "instructions": "Polite?"}},
    },
)
