"""Decision GGUFs in the real engine: their answers are the author's, whatever rides along."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from coolhead.answers import Status
from coolhead.errors import InvalidQuestion
from coolhead.job import Job
from coolhead.policy import Debias
from coolhead.questions import Choice, Noul, NoulCriteria, Question, Score
from coolhead.task import TaskBook
from coolhead_worker.clock import SystemClock
from coolhead_worker.engine.decision.fold import softmax
from coolhead_worker.engine.decision.metadata import DecisionKind
from coolhead_worker.engine.llama_engine import LlamaEngine
from coolhead_worker.engine.modelfile import ModelFile
from coolhead_worker.engine.protocol import EvalItem, Evaluation, Floats, Orders, PinnedSet, PlanKind
from coolhead_worker.engine.selfcheck import check
from coolhead_worker.engine.warmth import WARM
from coolhead_worker.judgement.artefact import FitBook
from coolhead_worker.judgement.judge import Judge, Judged, JudgeItem
from tests.engine.decision.gguf_file import copy_with
from tests.engine.decision.oracle import Oracle
from tests.engine.decision.prompts import LETTERS, QUESTION_FIRST, TEMPLATES, rendered
from tests.engine.tickets import among, move, one, slack

pytestmark = pytest.mark.model

TICKET = "I was charged twice for my order last week and nobody has replied."
OTHER = "Where is my parcel? It should have come on Monday."
ASKED: dict[str, Question] = {
    "route": Choice(
        instructions="Which team?", criteria={"billing": "payments and refunds", "shipping": None}
    ),
    "topic": Choice(instructions={"ask": "topic?"}, criteria={"a": None, "b": {"z": 1, "y": "é"}, "c": "x"}),
    "urgency": Score(instructions="How urgent is this?", criteria=("can wait", "this week", "today")),
    "angry": Noul(instructions="Is the customer angry?", criteria=NoulCriteria(true="yes, very")),
}
TEMPERATURES = {"choice": 1.6, "noul": 0.8}  # and none for scores
LARGE = {"3_5": 2.5, "small": 2.5}  # for choices: of openjev and nimble, and of lev
NEAR = 0.005
"""In probability, between a prompt in parts and in one piece, with weights of 16-bit floats."""


@dataclass(frozen=True)
class Loaded:
    """A decision model in our engine, and the same file in llama.cpp's hands."""

    kind: DecisionKind
    template: str
    engine: LlamaEngine
    oracle: Oracle

    def published(self, question: Question, state: str) -> Floats:
        """As in llama.cpp's `format_answer`, in the order of the labels; at T = 1 where none is written."""
        rates = self.kind is DecisionKind.LEV and isinstance(question, Noul)
        marks = LETTERS[: 9 if rates else len(question.labels)]
        temperature = float(np.float32(temperature_of(self.kind, question) or 1.0))
        listed = list(range(len(question.labels)))
        if isinstance(question, Noul) and self.kind is not DecisionKind.OPENJEV:
            listed.reverse()
        twice = self.kind is DecisionKind.LEV and isinstance(question, Choice)
        answer = np.zeros(len(listed))
        for order in [listed, listed[::-1]] if twice else [listed]:
            prompt = rendered(self.template, self.kind, question, order, marks, state)
            likely = self.oracle.likely(prompt, marks, temperature)
            if rates:
                yes = float(likely @ np.arange(9)) / 8
                return np.array([yes, 1 - yes])
            answer[order] += likely / (2 if twice else 1)
        return answer


def temperature_of(kind: DecisionKind, question: Question) -> float | None:
    """Written down by hand: a bucket of choices goes before its type."""
    if not isinstance(question, Choice):
        return TEMPERATURES.get(question.type)
    # All buckets of a lev model up to 8 options are one; the others part at 2 and 5.
    in_bucket = kind is DecisionKind.LEV or len(question.labels) > 2
    return 2.5 if in_bucket else 1.6


def decision_file(weights: Path, target: Path, kind: str, template: str) -> Path:
    prefix = "llama.decision.temperature."
    return copy_with(
        weights,
        target,
        {
            "llama.decision.type": kind,
            **{prefix + type_: value for type_, value in TEMPERATURES.items()},
            **{f"{prefix}choice.{bucket}": value for bucket, value in LARGE.items()},
            "tokenizer.chat_template.systemone": template,
        },
    )


SOUGHT = [*((kind, TEMPLATES[kind]) for kind in DecisionKind), (DecisionKind.NIMBLE, QUESTION_FIRST)]


@pytest.fixture(scope="module", params=SOUGHT, ids=[*map(str, DecisionKind), "question first"])
def loaded(request: pytest.FixtureRequest, half: Path, tmp_path_factory) -> Iterator[Loaded]:
    kind, template = request.param
    path = decision_file(half, tmp_path_factory.mktemp("gguf") / "model.gguf", kind.value, template)
    engine = LlamaEngine(ModelFile(path, None, "author"), threads=1, n_ctx=2048, cache=path.parent)
    oracle = Oracle(path)
    yield Loaded(kind, template, engine, oracle)
    oracle.close()
    engine.close()
    path.unlink()


def item(*names: str, state: str = TICKET, orders: Orders | None = None, trunk: bool = False) -> EvalItem:
    chosen = {name: ASKED[name] for name in names}
    return EvalItem(state, chosen, trunk, orders={} if orders is None else dict.fromkeys(chosen, orders))


def test_answers_are_the_author_s_over_whole_prompts(loaded: Loaded) -> None:
    said = one(loaded.engine, item(*ASKED))
    for name, question in ASKED.items():
        temperature = loaded.engine.temperature(question)
        assert temperature == pytest.approx(temperature_of(loaded.kind, question)), name
        answer = softmax(said.readouts[name].logits, temperature or 1.0)
        assert answer == pytest.approx(loaded.published(question, TICKET), abs=NEAR), name
        assert 0.0 < said.readouts[name].mass < 1.0


def test_the_judge_says_that_the_author_calibrated_an_answer_and_divides_by_nothing_else(
    loaded: Loaded,
) -> None:
    said = judged(loaded)
    for name, question in ASKED.items():
        answer = said.answers[name]
        if temperature_of(loaded.kind, question) is None:
            assert answer.status is Status.UNCALIBRATED, name
            continue
        assert answer.status is Status.MODEL, name
        wanted = loaded.published(question, TICKET)
        assert list(answer.probabilities.values()) == pytest.approx(wanted, abs=NEAR), name


def judged(loaded: Loaded, **job: object) -> Judged:
    wire = {name: question.model_dump(mode="json") for name, question in ASKED.items()}
    judge = Judge(loaded.engine, None, FitBook(()), TaskBook({}), "node", SystemClock())
    (said,) = judge.judge([JudgeItem(Job.make(TICKET, questions=wire, **job))], 60.0)
    assert isinstance(said, Judged), said
    return said


def test_raw_is_what_the_letters_say_without_the_author_s_temperature(loaded: Loaded) -> None:
    said = judged(loaded, policy={"calibration": "raw"}).answers["urgency"]
    assert said.status is Status.UNCALIBRATED
    wanted = loaded.published(ASKED["urgency"], TICKET)  # no temperature is written for scores
    assert list(said.probabilities.values()) == pytest.approx(wanted, abs=NEAR)


def test_an_answer_does_not_depend_on_what_rides_along(loaded: Loaded) -> None:
    base = one(loaded.engine, item(*ASKED))
    rides = {
        "alone": ([item("urgency")], 0),
        "reordered, with the trunk": ([item(*reversed(ASKED), trunk=True)], 0),
        "among others": ([item("urgency", state=OTHER), item(*ASKED), item("route", state=OTHER)], 1),
        "wanted pinned": ([EvalItem(TICKET, {"route": ASKED["route"]}, False, PinnedSet(ASKED))], 0),
    }
    for ride, (items, at) in rides.items():
        assert move(base, among(loaded.engine, items, at)) <= slack(loaded.engine), ride


@pytest.mark.parametrize(("level", "near_tie"), [(Debias.REVERSED, 1.0), (Debias.ROTATED, 0.1)])
def test_orders_that_a_policy_asks_for_change_nothing(loaded: Loaded, level: Debias, near_tie: float) -> None:
    base = one(loaded.engine, item(*ASKED))
    asked = one(loaded.engine, item(*ASKED, orders=Orders(level, near_tie)))
    assert move(base, asked) <= slack(loaded.engine)
    author_s = Debias.REVERSED if loaded.kind is DecisionKind.LEV else Debias.RAW
    assert asked.readouts["route"].debias is author_s
    assert asked.tokens == base.tokens


def test_such_a_model_warms_up_passes_its_self_check_and_names_its_prompts_in_its_plan(
    loaded: Loaded,
) -> None:
    assert isinstance(loaded.engine.evaluate([WARM], 60.0)[0], Evaluation)
    if loaded.kind is DecisionKind.LEV:  # one kind is enough: the exam takes ten seconds
        assert check(loaded.engine).passed
    plan, pinned = loaded.engine.plan_id(PlanKind.ISOLATED), loaded.engine.plan_id(PlanKind.PINNED)
    assert plan == pinned  # all questions of a task before the state: no author asks so


def test_a_question_that_its_author_would_refuse_is_refused_and_the_next_one_answered(loaded: Loaded) -> None:
    bare = EvalItem(TICKET, {"bare": Score(criteria=("low", "high"))}, trunk=False)
    with pytest.raises(InvalidQuestion, match="needs instructions"):
        loaded.engine.evaluate([bare], 60.0)
    assert one(loaded.engine, item("urgency")).readouts
