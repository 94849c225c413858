"""Whole batches through the judge: who is asked, whose answer counts, what each answer says."""

from __future__ import annotations

import logging
import math
import subprocess
import sys

import numpy as np
import pytest

from coolhead.answers import Decision, Method, Status
from coolhead.errors import (
    DecodeFailed,
    DecodeTimeout,
    InvalidPolicy,
    InvalidQuestion,
    JobRejected,
    StateTooLong,
    UnknownTask,
)
from coolhead.job import Job
from coolhead.policy import Grey, Tier
from coolhead.task import Task, TaskBook
from coolhead_worker.clock import ManualClock
from coolhead_worker.engine.fake import FakeEngine
from coolhead_worker.engine.protocol import PinnedSet, PlanKind
from coolhead_worker.judgement.artefact import FitBook
from coolhead_worker.judgement.calibration import Head, TemperatureBias
from coolhead_worker.judgement.fit import fit_task
from coolhead_worker.judgement.fitted import Certified, FittedQuestion
from coolhead_worker.judgement.judge import Judge, Judged, JudgeItem
from coolhead_worker.judgement.labels import Split, load_labels
from tests.judgement.synthetic import QUEUE, TASK, SyntheticEngine, row, text_of_row, write_rows

NOUL = {"type": "noul", "instructions": "Is it an attack?"}
CHOICE = {"type": "choice", "criteria": ["a", "b"]}
BOOK = TaskBook({"guard": Task.build({"name": "guard", "questions": {"attack": NOUL}})})
TASKS = TaskBook({"tickets": TASK})
ATTACK_FAST = (BOOK["guard"].questions["attack"].fingerprint, Tier.FAST)


def by_table(table):
    """Logits of the noul from the first word of the state, as P(yes) under T = 1.45."""

    def answer(state, question):
        p = table.get(state.split()[0], 0.05)
        return [1.45 * math.log(p / (1 - p)), *[0.0] * (len(question.labels) - 1)]

    return answer


FAST = {"safe": 0.05, "grey": 0.5, "sure": 0.99, "edge": 0.2}
DEEP = {"safe": 0.05, "grey": 0.9, "sure": 0.1, "edge": 0.1}


class TimedEngine(FakeEngine):
    """Moves the clock by `takes` seconds a call."""

    def __init__(self, name, clock, takes, **more):
        super().__init__(name, **more)
        self.clock, self.takes, self.timeouts = clock, takes, []

    def evaluate(self, items, timeout_s):
        self.timeouts.append(timeout_s)
        self.clock.advance(self.takes)
        return super().evaluate(items, timeout_s)


class Bench:
    """A judge over two scripted engines."""

    def __init__(self, *, deep=True, fits=None, tasks=BOOK, fast_more=None, deep_more=None):
        self.clock = ManualClock()
        fast_more, deep_more = {"answer": by_table(FAST), **(fast_more or {})}, deep_more or {}
        self.fast = TimedEngine("small", self.clock, 0.25, **fast_more)
        self.deep = TimedEngine("large", self.clock, 2.0, **{"answer": by_table(DEEP), **deep_more})
        self.judge = Judge(
            self.fast, self.deep if deep else None, fits or FitBook(), tasks, "node-1", self.clock
        )

    def run(self, *jobs, timeout_s=30.0):
        return self.judge.judge([JudgeItem(job) for job in jobs], timeout_s)

    def one(self, state, timeout_s=30.0, **more):
        more = more or {"task": "guard"}
        (said,) = self.run(Job.make(state, **more), timeout_s=timeout_s)
        return said

    def states(self, engine):
        return [[item.state for item in call] for call in engine.calls]


def attack(said):
    assert isinstance(said, Judged), said
    return said.answers["attack"]


# --- the reference article's cascade ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "tier", "noul", "verdict", "escalated", "flipped"),
    [
        ("safe", Tier.FAST, 0.05, False, None, False),  # below 0.20: passes at once
        ("grey", Tier.DEEP, 0.9, True, Grey.GREY_ZONE, True),  # deep at or above 0.75: yes
        ("sure", Tier.DEEP, 0.1, False, Grey.GREY_ZONE, True),  # a sure fast yes is still checked
    ],
)
def test_without_a_fit_the_reference_articles_rule_holds(state, tier, noul, verdict, escalated, flipped):
    answer = attack(Bench().one(state))
    assert answer.noul == pytest.approx(noul)
    assert (answer.tier, answer.verdict, answer.escalated, answer.flipped) == (
        tier,
        verdict,
        escalated,
        flipped,
    )
    assert (answer.status, answer.method, answer.fit) == (Status.UNCALIBRATED, Method.TEMPERATURE, None)


def test_an_answer_says_where_it_comes_from():
    bench = Bench()
    fast, deep = attack(bench.one("safe")), attack(bench.one("grey"))
    assert fast.model == f"small@{bench.fast.digest[:12]}"
    assert deep.model == f"large@{bench.deep.digest[:12]}"
    assert (fast.readout, fast.mass, fast.debias) == ("names", 0.9, "raw")
    pinned = bench.fast.plan_id(PlanKind.PINNED, PinnedSet(BOOK["guard"].questions.root))
    assert (fast.plan, deep.plan) == (pinned, pinned)


def test_one_fast_call_for_all_and_one_deep_call_for_the_grey_ones():
    bench = Bench()
    states = ("safe 0", "grey 1", "safe 2", "sure 3")
    said = bench.run(*(Job.make(state, task="guard") for state in states))
    assert bench.states(bench.fast) == [list(states)]
    assert bench.states(bench.deep) == [["grey 1", "sure 3"]]
    assert [attack(one).tier for one in said] == [Tier.FAST, Tier.DEEP, Tier.FAST, Tier.DEEP]


def test_only_the_grey_questions_of_a_job_go_deep():
    bench = Bench(fast_more={"answer": lambda s, q: [0.0, 0.0] if q.type == "noul" else [9.0, 0.0]})
    said = bench.one("grey", questions={"attack": NOUL, "kind": CHOICE})
    assert set(bench.deep.calls[0][0].questions) == {"attack"}
    assert {name: answer.tier for name, answer in said.answers.items()} == {
        "attack": Tier.DEEP,
        "kind": Tier.FAST,
    }
    assert list(said.answers) == ["attack", "kind"]
    assert said.model == f"small@{bench.fast.digest[:12]}+large@{bench.deep.digest[:12]}"


def test_times_and_tokens_are_those_of_the_calls_a_job_rode_in():
    safe, grey = Bench().run(Job.make("safe one", task="guard"), Job.make("grey one two", task="guard"))
    assert (safe.fast_s, safe.deep_s, safe.tokens) == (0.25, 0.0, 2)
    assert (grey.fast_s, grey.deep_s, grey.tokens) == (0.25, 2.0, 6)
    assert safe.task == "guard"


def test_the_deep_call_gets_the_time_that_is_left():
    bench = Bench()
    bench.one("grey", timeout_s=10.0)
    assert (bench.fast.timeouts, bench.deep.timeouts) == ([10.0], [9.75])


def test_no_jobs_make_no_call():
    bench = Bench()
    assert bench.run() == []
    assert not bench.fast.calls


def test_an_object_as_state_is_shown_as_compact_json():
    bench = Bench()
    assert attack(bench.one({"a": [1, "é"]}))
    assert bench.states(bench.fast) == [['{"a":[1,"é"]}']]


# --- escalation, mass, calibration as the policy says ----------------------------------------------


@pytest.mark.parametrize(
    ("policy", "deep", "state", "tier", "escalated"),
    [
        ({"escalation": "always"}, True, "safe", Tier.DEEP, Grey.FORCED),
        ({"escalation": "never"}, True, "grey", Tier.FAST, None),
        ({"escalation": "always"}, False, "safe", Tier.FAST, None),
        ({}, False, "grey", Tier.FAST, None),
        ({"thresholds": {"accept_below": 0.6}}, True, "grey", Tier.FAST, None),
        ({"per_question": {"attack": {"accept_above": 0.9}}}, True, "sure", Tier.FAST, None),
        ({"thresholds": {"min_mass": 0.95}}, True, "safe", Tier.DEEP, Grey.LOW_MASS),
    ],
)
def test_the_jobs_policy_decides_who_is_asked(policy, deep, state, tier, escalated):
    answer = attack(Bench(deep=deep).one(state, task="guard", policy=policy))
    assert (answer.tier, answer.escalated) == (tier, escalated)


def test_the_tasks_policy_holds_when_the_job_has_none():
    task = Task.build({"name": "guard", "questions": {"attack": NOUL}, "policy": {"escalation": "never"}})
    bench = Bench(tasks=TaskBook({"guard": task}))
    assert attack(bench.one("grey")).tier is Tier.FAST
    assert attack(bench.one("grey", task="guard", policy={})).tier is Tier.DEEP
    # with inline questions the task is only a name
    assert attack(bench.one("grey", task="guard", questions={"attack": NOUL})).tier is Tier.DEEP


LOW = {"thresholds": {"min_mass": 0.5}, "on_low_mass": "refuse"}


@pytest.mark.parametrize(
    ("fast_mass", "deep_mass", "deep", "policy", "rejected"),
    [
        (0.1, 0.1, True, LOW, True),
        (0.1, 0.9, True, LOW, False),
        (0.1, 0.1, False, LOW, True),
        (0.9, 0.1, True, LOW, False),
        (0.1, 0.1, True, {**LOW, "on_low_mass": "answer"}, False),
        (0.1, 0.9, True, {**LOW, "escalation": "never"}, True),
    ],
)
def test_a_job_that_no_tier_considers_is_rejected_if_the_policy_says_so(
    fast_mass, deep_mass, deep, policy, rejected
):
    bench = Bench(deep=deep, fast_more={"mass": fast_mass}, deep_more={"mass": deep_mass})
    said = bench.one("safe secret words", task="guard", policy=policy)
    assert isinstance(said, JobRejected) == rejected
    if rejected:
        assert "'attack'" in str(said)
        assert "mass 0.100, at least 0.5" in str(said)
        assert "secret" not in str(said)


@pytest.mark.parametrize(
    ("calibration", "noul", "method", "status"),
    [
        ("fitted", 0.9, Method.TEMPERATURE_BIAS, Status.FITTED),
        ("placeholder", 0.5, Method.TEMPERATURE, Status.UNCALIBRATED),
        ("raw", 0.5, Method.RAW, Status.UNCALIBRATED),
    ],
)
def test_the_policy_may_ask_for_other_than_fitted_probabilities(calibration, noul, method, status):
    bias = np.array([math.log(9.0), 0.0])
    fits = FitBook([(ATTACK_FAST, FittedQuestion("f1", TemperatureBias(1.0, bias), Certified()))])
    answer = attack(
        Bench(deep=False, fits=fits).one("grey", task="guard", policy={"calibration": calibration})
    )
    assert answer.noul == pytest.approx(noul)
    assert (answer.method, answer.status) == (method, status)
    assert answer.fit == ("f1" if calibration == "fitted" else None)


# --- failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [DecodeFailed("rc -1"), DecodeTimeout("too slow")])
def test_a_failed_fast_call_fails_the_whole_batch(error):
    bench = Bench(fast_more={"effects": {1: error}})
    with pytest.raises(type(error)):
        bench.run(Job.make("safe", task="guard"), Job.make("grey", task="guard"))
    assert attack(bench.one("safe")).tier is Tier.FAST  # and the next call works


@pytest.mark.parametrize("error", [DecodeFailed("rc -1"), DecodeTimeout("too slow")])
def test_a_failed_deep_call_leaves_the_fast_answers_and_says_so(error, caplog):
    bench = Bench(deep_more={"effects": {1: error}})
    with caplog.at_level(logging.WARNING, "coolhead.judgement"):
        safe, grey = bench.run(Job.make("safe", task="guard"), Job.make("grey secret", task="guard"))
    answer = attack(grey)
    assert (answer.tier, answer.escalated, answer.flipped) == (Tier.FAST, Grey.GREY_ZONE, False)
    assert attack(safe).escalated is None
    assert (grey.deep_s, safe.deep_s) == (2.0, 0.0)
    assert grey.model == f"small@{bench.fast.digest[:12]}"
    assert error.code in caplog.text
    assert "secret" not in caplog.text


def test_a_fast_call_that_uses_up_the_time_leaves_no_deep_call():
    bench = Bench()
    bench.fast.takes = 5.0
    answer = attack(bench.one("grey", timeout_s=5.0))
    assert (answer.tier, answer.escalated) == (Tier.FAST, Grey.GREY_ZONE)
    assert not bench.deep.calls


def test_a_state_too_long_for_the_deep_tier_keeps_its_fast_answer_alone():
    bench = Bench(deep_more={"max_state_tokens": 2})
    long, short = bench.run(Job.make("grey b c", task="guard"), Job.make("grey b", task="guard"))
    assert (attack(long).tier, attack(long).escalated) == (Tier.FAST, Grey.GREY_ZONE)
    assert attack(short).tier is Tier.DEEP


def test_errors_are_values_at_their_places():
    bench = Bench(fast_more={"max_state_tokens": 3})
    said = bench.run(
        Job.make("safe 0", task="guard"),
        Job.make("safe 1", task="nobody"),
        Job.make("safe 2 long words", task="guard"),
        Job.make("safe 3", task="guard", policy={"per_question": {"atack": {}}}),
        Job.make("grey 4", task="guard"),
    )
    assert [type(one) for one in said] == [Judged, UnknownTask, StateTooLong, InvalidPolicy, Judged]
    assert "'atack'" in str(said[3])
    assert bench.states(bench.fast) == [["safe 0", "safe 2 long words", "grey 4"]]
    assert attack(said[4]).tier is Tier.DEEP


def test_a_batch_of_errors_makes_no_call():
    bench = Bench()
    (said,) = bench.run(Job.make("safe", task="nobody"))
    assert isinstance(said, UnknownTask)
    assert not bench.fast.calls


class PickyEngine(FakeEngine):
    """Refuses every batch that holds a state beginning with `odd`, as a vocabulary may."""

    def evaluate(self, items, timeout_s):
        said = super().evaluate(items, timeout_s)
        if any(item.state.startswith("odd") for item in items):
            raise InvalidQuestion("no token for an option")
        return said


def test_a_request_that_the_engine_refuses_does_not_spoil_its_neighbours():
    engine = PickyEngine()
    judge = Judge(engine, None, FitBook(), BOOK, "n", ManualClock())
    said = judge.judge([JudgeItem(Job.make(s, task="guard")) for s in ("a", "odd", "b")], 1.0)
    assert [type(one) for one in said] == [Judged, InvalidQuestion, Judged]
    assert [len(call) for call in engine.calls] == [3, 1, 1, 1]


def test_asking_one_by_one_stays_within_the_time():
    clock = ManualClock()

    class Slow(PickyEngine):
        def evaluate(self, items, timeout_s):
            clock.advance(0.4)
            return super().evaluate(items, timeout_s)

    judge = Judge(Slow(), None, FitBook(), BOOK, "n", clock)
    with pytest.raises(DecodeTimeout):
        judge.judge([JudgeItem(Job.make(s, task="guard")) for s in ("a", "odd", "b")], 1.0)


def test_a_request_that_the_deep_engine_refuses_keeps_its_fast_answer():
    unsure = FakeEngine(answer=lambda s, q: [0.0, 0.0])
    judge = Judge(unsure, PickyEngine(), FitBook(), BOOK, "n", ManualClock())
    odd, good = judge.judge([JudgeItem(Job.make(s, task="guard")) for s in ("odd", "fine")], 1.0)
    assert (attack(odd).tier, attack(odd).escalated) == (Tier.FAST, Grey.GREY_ZONE)
    assert attack(good).tier is Tier.DEEP


class NanEngine(FakeEngine):
    """Gives NaN for states that begin with `nan`."""

    def evaluate(self, items, timeout_s):
        said = super().evaluate(items, timeout_s)
        for item, one in zip(items, said, strict=True):
            if item.state.startswith("nan"):
                for readout in one.readouts.values():
                    readout.logits[:] = math.nan
        return said


def test_numbers_that_are_not_finite_are_one_jobs_error():
    judge = Judge(NanEngine(), None, FitBook(), BOOK, "n", ManualClock())
    bad, good = judge.judge([JudgeItem(Job.make(s, task="guard")) for s in ("nan", "fine")], 1.0)
    assert isinstance(bad, DecodeFailed)
    assert "not finite" in str(bad)
    assert isinstance(good, Judged)


def test_numbers_of_the_deep_tier_that_are_not_finite_leave_the_fast_answer():
    judge = Judge(
        FakeEngine(answer=lambda s, q: [0.0, 0.0]), NanEngine(), FitBook(), BOOK, "n", ManualClock()
    )
    bad, good = judge.judge([JudgeItem(Job.make(s, task="guard")) for s in ("nan", "fine")], 1.0)
    assert (attack(bad).tier, attack(bad).escalated) == (Tier.FAST, Grey.GREY_ZONE)
    assert attack(good).tier is Tier.DEEP


# --- with a real fit -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit")
    engines = {
        Tier.FAST: SyntheticEngine("small", signal=4.0),
        Tier.DEEP: SyntheticEngine("large", signal=6.0),
    }
    labels = write_rows(folder / "l.jsonl", [row(i) for i in range(240)])
    report = fit_task(TASK, [labels], engines, folder / "out")
    return report, engines, FitBook.load([folder / "out"], engines, TASKS)


def judged(fitted, places, **more):
    _, engines, book = fitted
    judge = Judge(engines[Tier.FAST], engines[Tier.DEEP], book, TASKS, "n", ManualClock())
    jobs = [JudgeItem(Job.make(text_of_row(i), task="tickets", **more)) for i in places]
    return judge.judge(jobs, 10.0)


def test_a_fitted_task_is_answered_by_heads_from_the_trunk_alone(fitted):
    report, engines, _ = fitted
    engines[Tier.FAST].calls.clear()
    (said,) = judged(fitted, [1000])
    (item,) = engines[Tier.FAST].calls[-1]
    assert item.trunk
    assert not item.questions
    for answer in said.answers.values():
        assert (answer.method, answer.readout, answer.mass, answer.fit) == (
            Method.HEAD,
            "trunk",
            None,
            report.fit,
        )


def test_fitted_answers_are_right_on_new_rows_and_certified_ones_within_alpha(fitted):
    places = range(1000, 1400)
    said = judged(fitted, places)
    right: dict[Status, list[bool]] = {Status.CERTIFIED: [], Status.FITTED: []}
    for i, one in zip(places, said, strict=True):
        answer = one.answers["queue"]
        right[answer.status].append(answer.choice == QUEUE.labels[i % 3])
    assert len(right[Status.CERTIFIED]) > 200
    # the bound is 10 %; 3 standard errors of 400 draws are 4.5 %
    assert np.mean(right[Status.CERTIFIED]) > 0.9 - 0.045
    assert np.mean(right[Status.CERTIFIED] + right[Status.FITTED]) > 0.9


def test_every_decision_survives_the_wire(fitted):
    for i, one in enumerate(judged(fitted, range(1000, 1020))):
        decision = Decision(
            model=one.model,
            answers=one.answers,
            usage={"input_tokens": one.tokens},
            job_id=f"j{i}",
            node="n",
            timing={"wait_s": 0.0, "fast_s": one.fast_s, "deep_s": one.deep_s},
        )
        assert Decision.from_wire(decision.wire()) == decision
        for answer in one.answers.values():
            assert math.fsum(answer.probabilities.values()) == pytest.approx(1.0, abs=1e-9)


def test_the_judge_sees_the_very_probabilities_the_fit_certified(fitted):
    """The rows that the fit counted as accepted are the rows the judge accepts."""
    report, _, _ = fitted
    labels = load_labels([report.folder.parent / "l.jsonl"], TASK).rows
    tested = [i for i, one in enumerate(labels) if one.split is Split.THRESHOLD]
    said = judged(fitted, tested)
    for name in ("queue", "refund", "urgency"):
        fast = next(q for q in report.record.questions if (q.id, q.tier) == (name, Tier.FAST))
        accepted = sum(
            one.answers[name].status is Status.CERTIFIED and one.answers[name].tier is Tier.FAST
            for one in said
        )
        assert accepted == sum(c.n_accepted or 0 for c in fast.certificates)


def test_the_users_threshold_over_the_fits_is_fitted_not_certified(fitted):
    said = judged(fitted, range(1000, 1040), policy={"per_question": {"queue": {"accept_top": 0.4}}})
    answers = [one.answers["queue"] for one in said]
    assert {answer.status for answer in answers} == {Status.FITTED}
    assert {answer.tier for answer in answers if max(answer.probabilities.values()) >= 0.4} == {Tier.FAST}


def test_other_wording_is_another_question_and_uncalibrated(fitted):
    questions = {"refund": {"type": "noul", "instructions": "Does the author ask for money back??"}}
    (said,) = judged(fitted, [1000], questions=questions)
    assert said.answers["refund"].status is Status.UNCALIBRATED


def test_heads_and_text_share_one_item():
    head = Head(np.zeros((2, 16)), np.array([-3.0, 0.0]), np.zeros(16), np.ones(16))
    bench = Bench(
        fits=FitBook([(ATTACK_FAST, FittedQuestion("f1", head, Certified(accept_below=0.2)))]),
        fast_more={"answer": None},
    )
    said = bench.one("any", questions={"attack": NOUL, "kind": CHOICE})
    ((item,),) = bench.fast.calls
    assert item.trunk
    assert set(item.questions) == {"kind"}
    assert said.answers["attack"].status is Status.CERTIFIED
    assert said.answers["kind"].status is Status.UNCALIBRATED


def test_the_judge_needs_neither_scipy_nor_scikit_learn():
    code = (
        "import sys, coolhead_worker.judgement.judge; "
        "print([m for m in ('scipy', 'sklearn', 'threadpoolctl', 'llama_cpp') if m in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
