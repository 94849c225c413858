"""How the judge has questions read: by their fit, by their task, alone when given inline."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from coolhead.answers import Method, Status
from coolhead.errors import StateTooLong
from coolhead.job import Job
from coolhead.policy import Debias, Tier
from coolhead.task import Task, TaskBook
from coolhead_worker.clock import ManualClock
from coolhead_worker.engine.fake import FakeEngine
from coolhead_worker.engine.protocol import Orders, PlanKind
from coolhead_worker.judgement.artefact import FitBook
from coolhead_worker.judgement.calibration import Head, Raw
from coolhead_worker.judgement.fitted import Certified, FittedQuestion
from coolhead_worker.judgement.judge import Judge, Judged, JudgeItem
from coolhead_worker.judgement.plans import pinned_set

WIRE = {
    "sure": {"type": "noul", "instructions": "Is it sure?"},
    "grey": {"type": "noul", "instructions": "Is it grey?"},
    "kind": {"type": "choice", "criteria": ["a", "b"]},
}
PINNED = Task.build({"name": "pinned", "questions": WIRE})
ISOLATED = Task.build({"name": "isolated", "questions": WIRE, "plan": "isolated"})
TASKS = TaskBook({"pinned": PINNED, "isolated": ISOLATED})
HEAD = Head(np.zeros((2, 16)), np.array([-3.0, 0.0]), np.zeros(16), np.ones(16))


def logits(state, question):
    return [0.0, 0.0] if question.instructions == "Is it grey?" else [-9.0, 9.0]


def judge_over(fast, deep=None, fits=()):
    return Judge(fast, deep, FitBook(fits), TASKS, "n", ManualClock())


def asked(engine):
    """The items of the only call."""
    (call,) = engine.calls
    return call


def one(judge, **job):
    (said,) = judge.judge([JudgeItem(Job.make("some text", **job))], 10.0)
    return said


def fitted(name, calibrator, plan=PlanKind.ISOLATED, tier=Tier.FAST, **certified):
    pinned = FakeEngine().plan_id(plan, pinned_set(PINNED)) if plan is PlanKind.PINNED else None
    entry = FittedQuestion("f1", calibrator, Certified(**certified), None, pinned)
    return (PINNED.questions[name].fingerprint, tier), entry


def pinned_id(task, engine):
    return engine.plan_id(PlanKind.PINNED, pinned_set(task))


# --- which plan ------------------------------------------------------------------------------------


def test_the_questions_of_a_task_stand_before_the_state_unless_it_says_otherwise():
    engine = FakeEngine(answer=logits)
    said = one(judge_over(engine), task="pinned")
    (item,) = asked(engine)
    assert list(item.questions) == list(item.pinned.questions) == list(WIRE)
    assert {answer.plan for answer in said.answers.values()} == {pinned_id(PINNED, engine)}


@pytest.mark.parametrize(
    "job",
    [
        {"task": "isolated"},
        {"questions": WIRE},
        {"questions": WIRE, "task": "pinned"},  # the task is only a name then
        {"questions": WIRE, "task": "nobody"},
    ],
    ids=["an isolated task", "inline", "inline with a task's name", "inline with an unknown name"],
)
def test_inline_questions_and_isolated_tasks_are_read_alone(job):
    engine = FakeEngine(answer=logits)
    said = one(judge_over(engine), **job)
    (item,) = asked(engine)
    assert (list(item.questions), item.pinned, item.trunk) == (list(WIRE), None, False)
    assert {answer.plan for answer in said.answers.values()} == {engine.plan_id(PlanKind.ISOLATED)}


def test_an_escalated_question_is_read_with_its_whole_task_before_the_state():
    fast, deep = FakeEngine("small", answer=logits), FakeEngine("large", answer=logits)
    said = one(judge_over(fast, deep), task="pinned")
    (item,) = asked(deep)
    assert list(item.questions) == ["grey"]
    assert list(item.pinned.questions) == list(WIRE)
    assert said.answers["grey"].tier is Tier.DEEP
    assert said.answers["grey"].plan == pinned_id(PINNED, deep)


def test_each_tier_reads_by_its_own_fit():
    fast, deep = FakeEngine("small", answer=logits), FakeEngine("large", answer=logits, plan="other-v1")
    fits = [fitted("grey", Raw()), fitted("grey", HEAD, tier=Tier.DEEP)]
    said = one(judge_over(fast, deep, fits), task="isolated")
    (item,) = asked(deep)
    assert (item.trunk, item.questions) == (True, {})
    assert said.answers["grey"].plan == "other-v1.trunk"
    assert said.answers["sure"].plan == "fake-v1.isolated"


@pytest.mark.parametrize("task", ["pinned", "isolated"])
@pytest.mark.parametrize("plan", [PlanKind.ISOLATED, PlanKind.PINNED])
def test_a_fit_is_read_as_it_was_fitted_whatever_the_task_says_now(task, plan):
    engine = FakeEngine(answer=logits)
    said = one(judge_over(engine, fits=[fitted("sure", Raw(), plan)]), task=task)
    assert said.answers["sure"].fit == "f1"
    assert said.answers["sure"].plan == engine.plan_id(plan, pinned_set(PINNED))
    assert said.answers["kind"].plan == engine.plan_id(PlanKind(task), pinned_set(PINNED))
    assert len(asked(engine)) == (1 if task == plan.value else 2)


def test_a_pinned_fit_does_not_speak_of_inline_questions_and_an_isolated_one_does():
    for plan, fit in ((PlanKind.PINNED, None), (PlanKind.ISOLATED, "f1")):
        engine = FakeEngine(answer=logits)
        said = one(judge_over(engine, fits=[fitted("sure", Raw(), plan)]), questions=WIRE)
        assert said.answers["sure"].fit == fit
        assert said.answers["sure"].plan == "fake-v1.isolated"


def test_one_job_of_all_three_plans_makes_one_call_and_keeps_the_order_of_its_questions():
    engine = FakeEngine(answer=logits)
    fits = [fitted("sure", HEAD), fitted("kind", Raw(), PlanKind.ISOLATED)]
    said = one(judge_over(engine, fits=fits), task="pinned")
    alone, pinned = asked(engine)
    assert (alone.trunk, list(alone.questions), alone.pinned) == (True, ["kind"], None)
    assert (pinned.trunk, list(pinned.questions), list(pinned.pinned.questions)) == (
        False,
        ["grey"],
        list(WIRE),
    )
    assert {name: answer.plan for name, answer in said.answers.items()} == {
        "sure": "fake-v1.trunk",
        "grey": pinned_id(PINNED, engine),
        "kind": "fake-v1.isolated",
    }
    assert said.tokens == 4  # both items stand on the two words of the state


def test_the_items_of_a_batch_find_their_jobs_again():
    engine = FakeEngine()
    judge = judge_over(engine, fits=[fitted("kind", Raw(), PlanKind.ISOLATED)])
    jobs = [
        Job.make(f"text {n}", **job)
        for n, job in enumerate(({"task": "pinned"}, {"task": "isolated"}, {"questions": WIRE}) * 2)
    ]
    together = judge.judge([JudgeItem(job) for job in jobs], 10.0)
    assert len(asked(engine)) == 2 + 1 + 1 + 2 + 1 + 1
    for job, said in zip(jobs, together, strict=True):
        (alone,) = judge.judge([JudgeItem(job)], 10.0)
        assert said.answers == alone.answers


def test_a_state_too_long_for_one_of_a_jobs_items_is_that_jobs_error():
    class Narrow(FakeEngine):
        """Has less room behind pinned questions."""

        def _evaluate_one(self, item):
            if item.pinned is not None and "long" in item.state:
                return StateTooLong("shorten it")
            return super()._evaluate_one(item)

    engine = Narrow()
    judge = judge_over(engine, fits=[fitted("kind", Raw(), PlanKind.ISOLATED)])
    said = judge.judge([JudgeItem(Job.make(s, task="pinned")) for s in ("a", "long", "b")], 10.0)
    assert [type(one) for one in said] == [Judged, StateTooLong, Judged]


# --- heads -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 10, 64])
def test_where_every_question_has_a_head_the_engine_sees_one_item_without_questions(count):
    questions = {f"q{n}": {"type": "noul", "instructions": f"Is it {n}?"} for n in range(count)}
    task = Task.build({"name": "many", "questions": questions})
    fits = FitBook(
        ((question.fingerprint, tier), FittedQuestion("f1", HEAD, Certified()))
        for _, question in task.questions.items()
        for tier in Tier
    )
    fast, deep = FakeEngine("small"), FakeEngine("large")
    judge = Judge(fast, deep, fits, TaskBook({"many": task}), "n", ManualClock())
    said = one(judge, task="many")
    for engine in (fast, deep):
        (item,) = asked(engine)
        assert (item.trunk, item.questions, item.pinned, item.orders) == (True, {}, None, {})
    assert len(said.answers) == count
    assert {answer.method for answer in said.answers.values()} == {Method.HEAD}
    assert said.tokens == 4


# --- orders of the options -------------------------------------------------------------------------


class TurningEngine(FakeEngine):
    """Tells of every question in how many orders it was asked to read it."""

    def _evaluate_one(self, item):
        said = super()._evaluate_one(item)
        turned = {
            name: replace(readout, debias=item.orders[name].level if name in item.orders else Debias.RAW)
            for name, readout in said.readouts.items()
        }
        return replace(said, readouts=turned)


def test_questions_without_a_fit_are_read_in_the_orders_of_the_policy_and_say_so():
    engine = TurningEngine(answer=logits)
    judge = judge_over(engine, fits=[fitted("sure", Raw(), PlanKind.PINNED), fitted("kind", HEAD)])
    said = one(judge, task="pinned", policy={"debias": "rotated", "near_tie": 0.25})
    alone, pinned = asked(engine)
    assert (alone.pinned, alone.orders) == (None, {"grey": Orders(Debias.ROTATED, 0.25)})
    assert (set(pinned.questions), pinned.orders) == ({"sure"}, {})
    assert {name: answer.debias for name, answer in said.answers.items()} == {
        "sure": Debias.RAW,
        "grey": Debias.ROTATED,
        "kind": Debias.RAW,
    }


@pytest.mark.parametrize("calibration", ["raw", "placeholder"])
def test_a_fitted_question_that_is_not_read_by_its_fit_may_be_turned(calibration):
    engine = TurningEngine(answer=logits)
    judge = judge_over(engine, fits=[fitted("sure", HEAD)])
    said = one(judge, task="pinned", policy={"debias": "reversed", "calibration": calibration})
    (item,) = asked(engine)
    assert (item.pinned, item.orders) == (None, dict.fromkeys(WIRE, Orders(Debias.REVERSED, 0.1)))
    assert {answer.debias for answer in said.answers.values()} == {Debias.REVERSED}


def test_without_a_wish_options_are_read_as_they_stand():
    engine = TurningEngine(answer=logits)
    said = one(judge_over(engine), task="pinned")
    (item,) = asked(engine)
    assert (item.orders, list(item.pinned.questions)) == ({}, list(WIRE))
    assert {answer.debias for answer in said.answers.values()} == {Debias.RAW}


# --- the author's calibration ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("calibration", "status", "p"),
    [
        ("fitted", Status.MODEL, 1 / (1 + np.exp(2 / 4.0))),
        ("placeholder", Status.UNCALIBRATED, 1 / (1 + np.exp(2 / 1.45))),
        ("raw", Status.UNCALIBRATED, 1 / (1 + np.exp(2.0))),
    ],
)
def test_the_authors_temperature_serves_where_there_is_no_fit(calibration, status, p):
    engine = FakeEngine(answer=lambda s, q: [0.0, 2.0], temperatures={"noul": 4.0})
    judge = judge_over(engine, fits=[fitted("sure", Raw())])
    answers = one(judge, task="isolated", policy={"calibration": calibration}).answers
    assert (answers["grey"].status, answers["grey"].fit) == (status, None)
    assert answers["grey"].noul == pytest.approx(p)
    # the author says nothing of choices, and a fit comes first
    assert answers["kind"].status is Status.UNCALIBRATED
    assert (answers["sure"].fit, answers["sure"].status) == (
        ("f1", Status.FITTED) if calibration == "fitted" else (None, status)
    )


def test_each_tier_has_its_own_author():
    fast = FakeEngine("small", answer=logits)
    deep = FakeEngine("large", answer=logits, temperatures={"noul": 2.0})
    answers = one(judge_over(fast, deep), task="pinned").answers
    assert (answers["sure"].tier, answers["sure"].status) == (Tier.FAST, Status.UNCALIBRATED)
    assert (answers["grey"].tier, answers["grey"].status) == (Tier.DEEP, Status.MODEL)
    assert answers["grey"].method is Method.TEMPERATURE
