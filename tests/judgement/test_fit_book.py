"""Which fit speaks for a question, asked in which way."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from coolhead.errors import FitMismatch
from coolhead.policy import Tier
from coolhead.task import Task, TaskBook
from coolhead_worker.engine.fake import FakeEngine
from coolhead_worker.engine.protocol import PinnedSet, PlanKind
from coolhead_worker.judgement.artefact import FitBook
from coolhead_worker.judgement.calibration import Raw
from coolhead_worker.judgement.fit import fit_task
from coolhead_worker.judgement.fitted import Certified, FittedQuestion
from tests.judgement.synthetic import TASK, SyntheticEngine, row, write_rows

KEY = ("0" * 32, Tier.FAST)


def entry(fit: str, pinned: str | None = None) -> FittedQuestion:
    return FittedQuestion(fit, Raw(), Certified(), None, pinned)


FOUND = [
    ("nothing", [], "set-1", None),
    ("isolated, asked inline", [entry("a")], None, "a"),
    ("isolated, asked in a task", [entry("a")], "set-1", "a"),
    ("pinned, asked in its task", [entry("a", "set-1")], "set-1", "a"),
    ("pinned, asked inline", [entry("a", "set-1")], None, None),
    ("pinned, asked in another task", [entry("a", "set-1")], "set-2", None),
    ("each task its own", [entry("a", "set-1"), entry("b", "set-2")], "set-1", "a"),
    ("the later of two", [entry("a"), entry("b")], "set-1", "b"),
    ("the later, whichever its plan", [entry("a", "set-1"), entry("b")], "set-1", "b"),
    ("the later, pinned", [entry("a"), entry("b", "set-1")], "set-1", "b"),
    ("but inline only what is not pinned", [entry("a"), entry("b", "set-1")], None, "a"),
    ("a plan that comes again is the later", [entry("a"), entry("b", "s"), entry("c")], "s", "c"),
]


@pytest.mark.parametrize(("name", "entries", "pinned", "fit"), FOUND, ids=[row[0] for row in FOUND])
def test_the_later_fit_that_speaks_of_this_way_of_asking_counts(name, entries, pinned, fit):
    found = FitBook((KEY, one) for one in entries).find(*KEY, pinned)
    assert (None if found is None else found.fit) == fit


# --- a pinned fit and the tasks of a node ----------------------------------------------------------


def with_questions(**questions: object) -> Task:
    return Task.build({"name": TASK.name, "questions": questions})


WIRE = TASK.questions.wire()
QUIET = {"queue": WIRE["queue"], "refund": WIRE["refund"]}
OTHER_SETS = {
    "one more": with_questions(**WIRE, more={"type": "noul", "instructions": "Is it rude?"}),
    "one less": with_questions(**QUIET),
    "another order": with_questions(**dict(reversed(WIRE.items()))),
    "another name": with_questions(**QUIET, hurry=WIRE["urgency"]),
    "another wording": with_questions(**{**WIRE, "urgency": {**WIRE["urgency"], "instructions": "Urgent?"}}),
}


def engines() -> dict[Tier, FakeEngine]:
    return {Tier.FAST: SyntheticEngine("small", signal=0.0, text=4.0)}


def fit_of_the_queue(task: Task, folder: Path) -> Path:
    """A fit of one question whose text readout is good and whose features are noise."""
    rows = [{key: row(i)[key] for key in ("text", "queue")} for i in range(60)]
    report = fit_task(task, [write_rows(folder / "l.jsonl", rows)], engines(), folder / "out")
    assert [question.plan.value for question in report.record.questions] == [task.plan.value]
    return report.folder


@pytest.fixture(scope="module")
def pinned_fit(tmp_path_factory) -> Path:
    """Read with all three questions of the task before the state."""
    return fit_of_the_queue(TASK, tmp_path_factory.mktemp("pinned"))


@pytest.fixture(scope="module")
def isolated_fit(tmp_path_factory) -> Path:
    task = Task.build({"name": TASK.name, "questions": WIRE, "plan": "isolated"})
    return fit_of_the_queue(task, tmp_path_factory.mktemp("isolated"))


def test_a_pinned_fit_is_for_the_task_as_it_was(pinned_fit):
    book = FitBook.load([pinned_fit], engines(), TaskBook({TASK.name: TASK}))
    plan = engines()[Tier.FAST].plan_id(PlanKind.PINNED, PinnedSet(TASK.questions.root))
    found = book.find(TASK.questions["queue"].fingerprint, Tier.FAST, plan)
    assert found is not None
    assert (found.plan, found.pinned) == (PlanKind.PINNED, plan)


@pytest.mark.parametrize("task", OTHER_SETS.values(), ids=OTHER_SETS)
def test_a_pinned_fit_is_refused_when_the_questions_of_its_task_have_changed(pinned_fit, caplog, task):
    tasks, engine = TaskBook({task.name: task}), engines()[Tier.FAST]
    was, now = (engine.plan_id(PlanKind.PINNED, PinnedSet(one.questions.root)) for one in (TASK, task))
    with pytest.raises(FitMismatch) as caught:
        FitBook.load([pinned_fit], engines(), tasks)
    assert str(caught.value) == f"out: fast tier: plan pinned {was} in the fit, {now} here: fit again"
    with caplog.at_level(logging.WARNING, "coolhead.judgement"):
        assert len(FitBook.load([pinned_fit], engines(), tasks, lenient=True)) == 0
    assert f"{was} in the fit, {now} here" in caplog.text


def test_a_pinned_fit_of_a_task_that_is_not_here_is_left_out_with_a_warning(pinned_fit, caplog):
    with caplog.at_level(logging.WARNING, "coolhead.judgement"):
        book = FitBook.load([pinned_fit], engines(), TaskBook())
    assert len(book) == 0
    assert "out: fast tier: this node does not know task 'tickets'" in caplog.text


def test_the_policy_of_a_task_may_change_under_its_fit(pinned_fit):
    task = Task.build({"name": TASK.name, "questions": WIRE, "policy": {"escalation": "never"}})
    assert len(FitBook.load([pinned_fit], engines(), TaskBook({task.name: task}))) == 1


@pytest.mark.parametrize("task", OTHER_SETS.values(), ids=OTHER_SETS)
def test_a_fit_that_is_not_pinned_does_not_care_for_other_questions(isolated_fit, task):
    for tasks in (TaskBook({task.name: task}), TaskBook()):
        book = FitBook.load([isolated_fit], engines(), tasks)
        assert book.find(TASK.questions["queue"].fingerprint, Tier.FAST) is not None
