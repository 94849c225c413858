"""Plan ids by task, and how a question without a head is read."""

from __future__ import annotations

import pytest

from coolhead.policy import Tier
from coolhead.task import Task, TaskBook
from coolhead_worker.engine.fake import FakeEngine
from coolhead_worker.engine.protocol import PinnedSet, PlanKind, Shown
from coolhead_worker.judgement.artefact import FitBook
from coolhead_worker.judgement.fit import fit_task
from coolhead_worker.judgement.plans import PlanIds, pinned_set
from tests.judgement.synthetic import write_rows

NOUL = {"type": "noul", "instructions": "Is it?"}


def task(name: str, *questions: str, **more: object) -> Task:
    return Task.build({"name": name, "questions": dict.fromkeys(questions, NOUL), **more})


def test_each_kind_has_the_engines_id_and_each_task_its_own_pinned_one():
    engine, a, b = FakeEngine(), task("a", "q"), task("b", "q", "r")
    plans = PlanIds(engine, TaskBook({"a": a, "b": b}))
    for kind in (PlanKind.ISOLATED, PlanKind.TRUNK):
        assert plans.of(kind) == plans.of(kind, "a") == engine.plan_id(kind)
    for one in (a, b):
        expected = engine.plan_id(PlanKind.PINNED, PinnedSet(one.questions.root))
        assert plans.of(PlanKind.PINNED, one.name) == plans.pinned(one.name) == expected
    assert plans.pinned("a") != plans.pinned("b")


@pytest.mark.parametrize("name", [None, "nobody"])
def test_nothing_is_pinned_without_a_task(name):
    plans = PlanIds(FakeEngine(), TaskBook({"a": task("a", "q")}))
    assert plans.pinned(name) is None
    with pytest.raises(ValueError, match="no task"):
        plans.of(PlanKind.PINNED, name)


def test_the_ids_are_asked_for_once():
    class Counting(FakeEngine):
        asked = 0

        def plan_id(self, kind, pinned=None):
            self.asked += 1
            return super().plan_id(kind, pinned)

    engine = Counting()
    plans = PlanIds(engine, TaskBook({"a": task("a", "q")}))
    before = engine.asked
    for _ in range(3):
        plans.of(PlanKind.TRUNK)
        plans.of(PlanKind.PINNED, "a")
    assert engine.asked == before == 3


@pytest.mark.parametrize(
    ("asked", "plan"),
    [
        (None, PlanKind.ISOLATED),
        (task("a", "q"), PlanKind.PINNED),
        (task("a", "q", plan="pinned"), PlanKind.PINNED),
        (task("a", "q", plan="isolated"), PlanKind.ISOLATED),
    ],
    ids=["inline", "a task that says nothing", "pinned", "isolated"],
)
def test_a_task_says_how_its_questions_are_read_and_inline_ones_stand_alone(asked, plan):
    tasks = TaskBook() if asked is None else TaskBook({asked.name: asked})
    assert PlanIds(FakeEngine(), tasks).text(asked) is plan


class Unpinning(FakeEngine):
    """Reads pinned questions alone, as some dialects must."""

    def plan_id(self, kind, pinned=None):
        return super().plan_id(PlanKind.ISOLATED if kind is PlanKind.PINNED else kind)


def test_where_an_engine_cannot_pin_its_questions_are_isolated_and_so_are_their_fits(tmp_path):
    engine, pinned = Unpinning(answer=lambda state, _: [float(state[-1] in "02468") * 4, 2.0]), task("a", "q")
    assert PlanIds(engine, TaskBook({"a": pinned})).text(pinned) is PlanKind.ISOLATED
    rows = [{"text": f"state {n}", "q": (n % 2 == 0) == (n % 7 > 0)} for n in range(90)]
    report = fit_task(pinned, [write_rows(tmp_path / "l.jsonl", rows)], {Tier.FAST: engine}, tmp_path / "out")
    (question,) = report.record.questions
    assert (question.plan, question.plan_id) == (PlanKind.ISOLATED, "fake-v1.isolated")
    # so it speaks of the question wherever it is asked
    book = FitBook.load([report.folder], {Tier.FAST: engine}, TaskBook())
    assert book.find(pinned.questions["q"].fingerprint, Tier.FAST) is not None


EXAMPLES = [
    {"state": "Pay me back now", "answers": {"refund": True, "urgency": 3, "queue": "sales"}},
    {"state": "Thanks", "answers": {"refund": "no"}},
]
WITH_EXAMPLES = {
    "name": "shown",
    "questions": {
        "refund": {"type": "noul", "instructions": "Money back?"},
        "urgency": {"type": "score", "criteria": ["low", "mid", "high"]},
        "queue": {"type": "choice", "criteria": ["billing", "sales"]},
    },
    "labels": {"urgency": {"first": 1}},
}


def test_examples_are_shown_with_the_places_of_their_labels():
    shown = pinned_set(Task.build({**WITH_EXAMPLES, "examples": EXAMPLES}))
    assert list(shown.questions) == ["refund", "urgency", "queue"]
    assert shown.examples == (
        Shown("Pay me back now", {"refund": 0, "urgency": 2, "queue": 1}),
        Shown("Thanks", {"refund": 1}),
    )


def test_a_task_with_other_examples_is_another_pinned_plan_and_the_same_trunk():
    engine = FakeEngine()
    ids = [
        PlanIds(engine, {"shown": Task.build({**WITH_EXAMPLES, "examples": EXAMPLES[:count]})})
        for count in range(3)
    ]
    assert len({one.of(PlanKind.PINNED, "shown") for one in ids}) == 3
    assert len({one.of(PlanKind.TRUNK) for one in ids}) == 1
