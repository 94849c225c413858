"""A tier that can't answer now: what stands, what is marked, and what is put back."""

from __future__ import annotations

import logging

import pytest

from coolhead.answers import Decision, Timing, Usage
from coolhead.errors import DecodeFailed, DecodeInterrupted, JobRejected, NoRoom, NotFinite, TierUnloaded
from coolhead.job import Job
from coolhead.policy import Grey, Tier
from coolhead.task import Task, TaskBook
from coolhead_worker.clock import ManualClock
from coolhead_worker.engine.fake import FakeEngine
from coolhead_worker.judgement.artefact import FitBook
from coolhead_worker.judgement.judge import Judge, Judged, JudgeItem

WIRE = {
    "sure": {"type": "noul", "instructions": "Is it sure?"},
    "grey": {"type": "noul", "instructions": "Is it grey?"},
}
TASKS = TaskBook({"t": Task.build({"name": "t", "questions": WIRE})})
UNLOADED = TierUnloaded("the deep model was given up for memory")


def logits(state, question):
    unsure = question.instructions == "Is it grey?" and "clear" not in state
    return [0.0, 0.0] if unsure else [-9.0, 9.0]


class SlowEngine(FakeEngine):
    """Takes half a second of a call, also of one that fails."""

    def __init__(self, name, clock, error):
        super().__init__(name, answer=logits, effects={} if error is None else {1: error})
        self.clock = clock

    def evaluate(self, items, timeout_s):
        self.clock.advance(0.5)
        return super().evaluate(items, timeout_s)


def bench(fast_error=None, deep_error=None):
    clock = ManualClock()
    fast, deep = SlowEngine("small", clock, fast_error), SlowEngine("large", clock, deep_error)
    return Judge(fast, deep, FitBook(), TASKS, "n", clock)


def run(judge, *states, **more):
    return judge.judge([JudgeItem(Job.make(state, task="t", **more)) for state in states], 10.0)


def test_fast_answers_stand_for_an_unloaded_deep_tier_and_say_who_was_wanted(caplog):
    with caplog.at_level(logging.INFO, "coolhead.judgement"):
        dim, clear = run(bench(deep_error=UNLOADED), "dim secret", "clear")
    grey, sure = dim.answers["grey"], dim.answers["sure"]
    assert (grey.tier, grey.escalated, grey.deep_unavailable) == (Tier.FAST, Grey.GREY_ZONE, True)
    assert (sure.tier, sure.escalated, sure.deep_unavailable) == (Tier.FAST, None, False)
    assert not any(answer.deep_unavailable for answer in clear.answers.values())
    assert dim.deep_s == clear.deep_s == 0.0  # no model was called
    (line,) = caplog.records
    assert (line.levelname, line.action, line.jobs) == ("INFO", "deep_unavailable", 1)
    assert "TierUnloaded" in caplog.text
    assert "secret" not in caplog.text


def test_the_mark_reaches_the_wire():
    (said,) = run(bench(deep_error=UNLOADED), "dim")
    decision = Decision(
        model=said.model, answers=said.answers, usage=Usage(input_tokens=said.tokens), job_id="j",
        node="n", timing=Timing(wait_s=0.0, fast_s=said.fast_s, deep_s=said.deep_s),
    )  # fmt: skip
    wire = decision.wire()
    assert wire["answers"]["grey"]["x_deep_unavailable"] is True
    assert wire["answers"]["sure"]["x_deep_unavailable"] is False
    assert Decision.from_wire(wire) == decision


def test_the_deep_tier_is_asked_again_once_it_is_back():
    judge = bench(deep_error=UNLOADED)
    assert run(judge, "dim")[0].answers["grey"].deep_unavailable
    grey = run(judge, "dim")[0].answers["grey"]
    assert (grey.tier, grey.deep_unavailable) == (Tier.DEEP, False)


def test_a_job_that_every_tier_in_memory_hardly_considers_is_still_refused():
    policy = {"thresholds": {"min_mass": 0.95}, "on_low_mass": "refuse"}
    (said,) = run(bench(deep_error=UNLOADED), "dim", policy=policy)
    assert isinstance(said, JobRejected)


@pytest.mark.parametrize("error", [DecodeFailed("rc -1"), NoRoom("rc 1"), NotFinite("NaN")])
def test_a_deep_call_that_fails_is_no_unloaded_tier(error):
    (said,) = run(bench(deep_error=error), "dim")
    grey = said.answers["grey"]
    assert (grey.tier, grey.escalated, grey.deep_unavailable) == (Tier.FAST, Grey.GREY_ZONE, False)
    assert said.deep_s == 0.5


@pytest.mark.parametrize("error", [NoRoom("rc 1"), NotFinite("NaN"), UNLOADED])
def test_a_fast_call_that_fails_fails_the_batch(error):
    judge = bench(fast_error=error)
    with pytest.raises(type(error)):
        run(judge, "dim", "clear")
    assert isinstance(run(judge, "dim")[0], Judged)


@pytest.mark.parametrize("tier", Tier)
def test_a_call_that_was_stopped_for_the_machine_leaves_the_judge_whichever_tier_it_was(tier):
    errors = {f"{tier.value}_error": DecodeInterrupted("the machine is too hot")}
    with pytest.raises(DecodeInterrupted):
        run(bench(**errors), "dim", "clear")
