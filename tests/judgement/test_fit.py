"""The whole fit on engines whose features carry the labels: what is chosen, certified and written."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from coolhead.answers import Method, Status
from coolhead.errors import DecodeFailed, FitFailed, InvalidLabels
from coolhead.job import Job
from coolhead.policy import Grey, Tier
from coolhead.task import Task, TaskBook
from coolhead_worker.clock import ManualClock
from coolhead_worker.engine.protocol import PinnedSet, PlanKind
from coolhead_worker.judgement.artefact import FitBook
from coolhead_worker.judgement.fit import FitReport, fit_task
from coolhead_worker.judgement.guarantee import upper_bound
from coolhead_worker.judgement.judge import Judge, JudgeItem
from coolhead_worker.judgement.labels import Split, load_labels
from coolhead_worker.judgement.record import QuestionRecord
from coolhead_worker.judgement.selection import STRENGTHS
from tests.judgement.synthetic import TASK, SyntheticEngine, row, text_of_row, write_rows

ROWS = [row(i) for i in range(240)] + [row(i, split="held_out") for i in range(240, 260)]


def engines(fast: float = 4.0, deep: float = 6.0, **more) -> dict[Tier, SyntheticEngine]:
    return {
        Tier.FAST: SyntheticEngine("small", signal=fast, **more),
        Tier.DEEP: SyntheticEngine("large", signal=deep),
    }


def slim(i: int, name: str = "queue", **extra: object) -> dict[str, object]:
    """A row that is labelled for one question."""
    full = row(i)
    return {"text": full["text"], name: full[name], **extra}


def fast_only(signal: float = 4.0, text: float = 0.5) -> dict[Tier, SyntheticEngine]:
    return {Tier.FAST: SyntheticEngine("small", signal=signal, text=text)}


@dataclass(frozen=True)
class Done:
    report: FitReport
    engines: dict[Tier, SyntheticEngine]
    progress: list[tuple[int, int]]
    labels: Path


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> Done:
    folder = tmp_path_factory.mktemp("fit")
    labels, used = write_rows(folder / "tickets.jsonl", ROWS), engines()
    progress: list[tuple[int, int]] = []
    report = fit_task(
        TASK,
        [labels],
        used,
        folder / "out",
        lambda d, t: progress.append((d, t)),
        clock=ManualClock(86_400.0),
    )
    return Done(report, used, progress, labels)


def of(report: FitReport, name: str, tier: Tier) -> QuestionRecord:
    (found,) = (q for q in report.record.questions if (q.id, q.tier) == (name, tier))
    return found


def test_every_question_is_fitted_on_both_tiers(done):
    assert [(q.id, q.tier) for q in done.report.record.questions] == [
        (name, tier) for name in ("queue", "refund", "urgency") for tier in (Tier.FAST, Tier.DEEP)
    ]


def test_heads_beat_raw_on_rows_they_did_not_see(done):
    for question in done.report.record.questions:
        scores = {c.method: c.scores for c in question.candidates}
        assert question.method is Method.HEAD
        assert scores[Method.HEAD].nll < scores[Method.RAW].nll
        assert scores[Method.HEAD].brier <= scores[Method.RAW].brier
        assert question.scores.accuracy > 0.8
        assert question.strength in STRENGTHS


def test_every_candidate_is_in_the_record_with_all_figures(done):
    for question in done.report.record.questions:
        assert [c.method for c in question.candidates] == list(Method)
        for candidate in question.candidates:
            assert (candidate.scores is None) == (candidate.refused is not None)
            assert candidate.scores is None or candidate.scores.n == question.rows_fit
        assert "held-out NLL" in question.why


def test_certificates_hold_on_the_rows_they_count(done):
    granted = [c for q in done.report.record.questions for c in q.certificates if c.threshold is not None]
    assert len(granted) >= 4
    for certificate in granted:
        assert certificate.upper_bound == upper_bound(
            certificate.errors, certificate.n_accepted, certificate.delta
        )
        assert certificate.upper_bound <= certificate.alpha == 0.10
        assert certificate.needs_about is None


def test_a_noul_spends_half_of_delta_on_each_side(done):
    sides = of(done.report, "refund", Tier.FAST).certificates
    assert [(c.side, c.delta) for c in sides] == [("accept_below", 0.05), ("accept_above", 0.05)]
    assert [c.delta for c in of(done.report, "queue", Tier.FAST).certificates] == [0.10]
    below, above = (c.threshold for c in sides)
    assert below <= 0.5 <= above


def test_the_deep_tier_is_certified_on_what_the_fast_one_passes_on(done):
    fast, deep = of(done.report, "queue", Tier.FAST), of(done.report, "queue", Tier.DEEP)
    (certificate,) = fast.certificates
    assert fast.given is None
    assert fast.rows_reaching == fast.rows_threshold
    assert deep.rows_reaching == deep.rows_threshold - certificate.n_accepted
    assert deep.given.thresholds.accept_top == certificate.threshold
    assert "fast tier passes on" in deep.guarantee or "Nothing is certified" in deep.guarantee


def test_the_guarantee_is_told_in_words(done):
    words = of(done.report, "queue", Tier.FAST).guarantee
    assert "at most 10% each are wrong" in words
    assert "confidence 90%" in words
    assert "both tiers at once the confidence is at least 80%" in words


def test_held_out_rows_are_never_shown_to_an_engine(done):
    assert done.report.record.rows.held_out == 20
    held_out = {str(one["text"]) for one in ROWS[240:]}
    for engine in done.engines.values():
        seen = {item.state for call in engine.calls for item in call}
        assert len(seen) == 240
        assert not seen & held_out


def test_progress_counts_states_over_both_tiers(done):
    assert done.progress[-1] == (480, 480)
    assert [d for d, _ in done.progress] == sorted(d for d, _ in done.progress)
    assert {t for _, t in done.progress} == {480}


def test_the_record_names_labels_engines_and_tool_but_no_folder(done):
    record = done.report.record
    (file,) = record.label_files
    assert (file.name, file.rows) == ("tickets.jsonl", 260)
    assert record.engines[Tier.DEEP].sha256 == done.engines[Tier.DEEP].digest
    assert record.fitted_at == "1970-01-02T00:00:00+00:00"
    assert record.tool.startswith("coolhead ")
    text = (done.report.folder / "fit.json").read_text()
    assert str(done.labels.parent) not in text
    assert "ticket 1 queue" not in text


def test_every_question_says_by_which_plan_its_numbers_were_read(done):
    for question in done.report.record.questions:
        assert question.method is Method.HEAD
        assert (question.plan, question.plan_id) == (PlanKind.TRUNK, "fake-v1.trunk")


@pytest.mark.parametrize("plan", ["isolated", "pinned"])
def test_questions_are_read_by_the_plan_of_the_task_with_the_trunk_beside_them(tmp_path, plan):
    task = Task.build(
        {**TASK.model_dump(exclude={"questions"}), "questions": TASK.questions.wire(), "plan": plan}
    )
    used = fast_only(signal=0.0, text=4.0)
    report = fit_task(
        task, [write_rows(tmp_path / "l.jsonl", [slim(i) for i in range(60)])], used, tmp_path / "out"
    )
    items = [item for call in used[Tier.FAST].calls for item in call]
    assert all(item.trunk and list(item.questions) == ["queue"] for item in items)
    pinned = None if plan == "isolated" else list(task.questions.root)
    assert {item.pinned and tuple(item.pinned.questions) for item in items} == {pinned and tuple(pinned)}
    question = of(report, "queue", Tier.FAST)
    assert question.plan.value == plan
    assert question.plan_id == used[Tier.FAST].plan_id(question.plan, PinnedSet(task.questions.root))


def test_two_fits_differ_only_in_their_time(done, tmp_path):
    again = fit_task(TASK, [done.labels], engines(), tmp_path, clock=ManualClock(5.0))
    assert again.fit == done.report.fit
    for name in ("fit.json", "heads.safetensors"):
        first, second = ((folder / name).read_bytes() for folder in (done.report.folder, tmp_path))
        if name == "fit.json":
            assert first != second
            first = first.replace(b"1970-01-02T00:00:00", b"1970-01-01T00:00:05")
        assert first == second


def test_another_seed_is_another_fit(tmp_path):
    labels = write_rows(tmp_path / "l.jsonl", [slim(i) for i in range(60)])
    first, second = (
        fit_task(TASK, [labels], fast_only(), tmp_path / str(seed), seed=seed) for seed in (1, 2)
    )
    assert first.fit != second.fit


def test_the_second_fit_reads_nothing_from_the_engines(done, tmp_path):
    cache = tmp_path / "cache"
    small = [slim(i) for i in range(60)]
    labels = write_rows(tmp_path / "l.jsonl", small)
    first = fit_task(TASK, [labels], engines(), tmp_path / "a", cache=cache)
    used = engines()
    second = fit_task(TASK, [labels], used, tmp_path / "b", cache=cache)
    assert not any(engine.calls for engine in used.values())
    assert second.fit == first.fit


def test_noise_certifies_nothing_and_says_how_many_labels_would_do(tmp_path):
    labels = write_rows(tmp_path / "l.jsonl", [slim(i) for i in range(90)])
    used = fast_only(signal=0.0, text=0.0)
    report = fit_task(TASK, [labels], used, tmp_path / "out")
    question = of(report, "queue", Tier.FAST)
    assert question.certificates[0].threshold is None
    assert question.guarantee == "Nothing is certified: every input goes to the deep tier."
    assert any("nothing certified at 10%" in warning for warning in question.warnings)


def test_a_text_readout_with_a_liking_gets_a_bias(tmp_path):
    labels = write_rows(tmp_path / "l.jsonl", [slim(i) for i in range(150)])
    used = fast_only(signal=0.0, text=4.0)
    report = fit_task(TASK, [labels], used, tmp_path / "out")
    question = of(report, "queue", Tier.FAST)
    assert question.method is Method.TEMPERATURE_BIAS
    assert question.bias[0] < min(question.bias[1:])  # the first option was liked too well


def test_a_deep_tier_that_does_not_help_is_called_out(tmp_path):
    labels = write_rows(tmp_path / "l.jsonl", [slim(i) for i in range(150)])
    report = fit_task(TASK, [labels], engines(fast=4.0, deep=0.0), tmp_path / "out")
    warnings = of(report, "queue", Tier.DEEP).warnings
    assert any("the deep tier does not help" in warning for warning in warnings)


def rows_without(name: str, keep: int, total: int = 80) -> list[dict[str, object]]:
    """Rows of which only the first `keep` are labelled for the question."""
    return [slim(i, "refund", **({name: row(i)[name]} if i < keep else {})) for i in range(total)]


def test_a_question_with_few_or_no_labels_is_left_out_with_a_remark(tmp_path):
    labels = write_rows(tmp_path / "l.jsonl", rows_without("queue", 10))
    report = fit_task(TASK, [labels], fast_only(), tmp_path / "a")
    assert {q.id for q in report.record.questions} == {"refund"}
    assert any(w.startswith("queue (fast): ") and "20 are needed" in w for w in report.record.warnings)
    none = write_rows(tmp_path / "n.jsonl", rows_without("queue", 0))
    report = fit_task(TASK, [none], fast_only(), tmp_path / "b")
    assert "queue: no labels" in report.record.warnings


def test_a_question_that_always_has_one_answer_is_left_out(tmp_path):
    labels = write_rows(tmp_path / "l.jsonl", [slim(i, refund=True) for i in range(80)])
    report = fit_task(TASK, [labels], fast_only(), tmp_path / "out")
    assert any("every fit row says 'yes'" in w for w in report.record.warnings)
    assert "refund" not in {q.id for q in report.record.questions}


def test_an_option_without_labels_is_warned_about(tmp_path):
    rows = [slim(i) for i in range(150) if i % 3 != 2]
    report = fit_task(TASK, [write_rows(tmp_path / "l.jsonl", rows)], fast_only(), tmp_path / "out")
    assert "no fit row is labelled 'sales'" in of(report, "queue", Tier.FAST).warnings


def test_nothing_to_fit_writes_nothing(tmp_path):
    labels = write_rows(tmp_path / "l.jsonl", [row(i) for i in range(10)])
    with pytest.raises(FitFailed, match="no question can be fitted: queue"):
        fit_task(TASK, [labels], engines(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_rows_marked_only_for_fitting_certify_nothing(tmp_path):
    labels = write_rows(tmp_path / "l.jsonl", [slim(i, split="fit") for i in range(60)])
    report = fit_task(TASK, [labels], fast_only(), tmp_path / "out")
    question = of(report, "queue", Tier.FAST)
    assert question.scores is None
    assert "no threshold rows: nothing can be certified" in question.warnings
    assert question.certificates[0].needs_about == 22  # without errors, at 10 % and 90 %


def test_states_that_are_too_long_are_left_out_with_a_remark(tmp_path):
    rows = [slim(i) for i in range(80)] + [
        slim(900 + i, text=str(row(900 + i)["text"]) + " x" * 50) for i in range(3)
    ]
    labels = write_rows(tmp_path / "l.jsonl", rows)
    report = fit_task(TASK, [labels], engines(max_state_tokens=20), tmp_path / "out")
    assert "3 states are too long for the fast tier and were left out there" in report.record.warnings
    fast, deep = of(report, "queue", Tier.FAST), of(report, "queue", Tier.DEEP)
    assert fast.rows_fit + fast.rows_threshold == deep.rows_fit + deep.rows_threshold == 80


def test_shared_groups_weaken_the_bound_and_are_warned_about(tmp_path):
    labels = write_rows(tmp_path / "l.jsonl", [slim(i, group=i // 2) for i in range(100)])
    report = fit_task(TASK, [labels], fast_only(), tmp_path / "out")
    assert any("share groups" in w for w in of(report, "queue", Tier.FAST).warnings)


def with_policy(policy: dict[str, object]) -> Task:
    return Task.build(
        {
            **TASK.model_dump(exclude={"policy", "questions"}),
            "questions": TASK.questions.wire(),
            "policy": policy,
        }
    )


def test_the_deep_tier_counts_the_rows_it_needs_by_the_share_that_reaches_it(done):
    deep = of(done.report, "queue", Tier.DEEP)
    (certificate,) = deep.certificates
    # without errors 22 rows must reach it; each threshold row does so with the share seen here
    more = math.ceil((22 - deep.rows_reaching) * deep.rows_threshold / deep.rows_reaching)
    assert (certificate.threshold, certificate.needs_about) == (None, more)
    unreached = of(done.report, "refund", Tier.DEEP)
    assert unreached.rows_reaching == 0
    assert {c.needs_about for c in unreached.certificates} == {None}
    assert "no threshold row reaches this tier: nothing can be certified" in unreached.warnings


def test_the_policys_own_thresholds_are_called_out_and_decide_what_goes_deep(tmp_path):
    task = with_policy({"per_question": {"queue": {"accept_top": 0.999}}})
    labels = write_rows(tmp_path / "l.jsonl", [slim(i) for i in range(240)])
    report = fit_task(task, [labels], engines(), tmp_path / "out")
    fast, deep = of(report, "queue", Tier.FAST), of(report, "queue", Tier.DEEP)
    assert "the task's policy sets accept_top, which wins over the certificate" in fast.warnings
    assert deep.given.thresholds.accept_top == 0.999
    assert fast.certificates[0].n_accepted > 22
    assert deep.rows_reaching > deep.rows_threshold - fast.certificates[0].n_accepted


def test_a_policy_that_always_asks_the_deep_tier_certifies_it_on_all_rows(tmp_path):
    labels = write_rows(tmp_path / "l.jsonl", [slim(i) for i in range(120)])
    report = fit_task(with_policy({"escalation": "always"}), [labels], engines(), tmp_path / "out")
    deep = of(report, "queue", Tier.DEEP)
    assert deep.given.forced
    assert deep.rows_reaching == deep.rows_threshold


class LightEngine(SyntheticEngine):
    """Hardly considers the options of every fourth ticket."""

    def evaluate(self, items, timeout_s):
        said = super().evaluate(items, timeout_s)
        for item, one in zip(items, said, strict=True):
            if int(item.state.split()[1]) % 4 == 0:
                one.readouts.update({name: replace(r, mass=0.05) for name, r in one.readouts.items()})
        return said


def test_rows_of_low_mass_are_never_accepted_and_all_reach_the_deep_tier(tmp_path):
    task = with_policy({"thresholds": {"min_mass": 0.5}})
    used = {
        Tier.FAST: LightEngine("small", signal=0.0, text=9.0),
        Tier.DEEP: SyntheticEngine("large", signal=6.0),
    }
    labels = write_rows(tmp_path / "l.jsonl", [slim(i) for i in range(300)])
    report = fit_task(task, [labels], used, tmp_path / "out")
    fast, deep = of(report, "queue", Tier.FAST), of(report, "queue", Tier.DEEP)
    (certificate,) = fast.certificates
    tested = [i for i, one in enumerate(load_labels([labels], task).rows) if one.split is Split.THRESHOLD]
    light = sum(i % 4 == 0 for i in tested)
    assert fast.method is not Method.HEAD
    assert fast.min_mass == 0.5
    assert certificate.threshold == 0.34  # the readout is good: all but the light ones are accepted
    assert certificate.n_accepted == len(tested) - light
    assert deep.rows_reaching == light > 0

    # and the judge accepts the very same rows
    book = TaskBook({task.name: task})
    judge = Judge(
        used[Tier.FAST], used[Tier.DEEP], FitBook.load([report.folder], used, book), book, "n", ManualClock()
    )
    jobs = [JudgeItem(Job.make(text_of_row(i), task=task.name)) for i in tested]
    answers = [one.answers["queue"] for one in judge.judge(jobs, 10.0)]
    assert [a.escalated for a in answers] == [Grey.LOW_MASS if i % 4 == 0 else None for i in tested]
    assert {a.status for a in answers if a.tier is Tier.FAST} == {Status.CERTIFIED}


def test_one_question_under_two_names_is_fitted_once(tmp_path):
    questions = {"queue": TASK.questions.wire()["queue"], "again": TASK.questions.wire()["queue"]}
    task = Task.build({"name": "t", "questions": questions})
    labels = write_rows(tmp_path / "l.jsonl", [slim(i, again=row(i)["queue"]) for i in range(60)])
    report = fit_task(task, [labels], fast_only(), tmp_path / "out")
    assert [q.id for q in report.record.questions] == ["queue"]
    assert "again: the same question as queue, fitted there" in report.record.warnings


def test_failures_come_through_and_write_nothing(tmp_path):
    labels = write_rows(tmp_path / "l.jsonl", [row(i) for i in range(60)])
    broken = {Tier.FAST: SyntheticEngine("s", effects={2: DecodeFailed("no")})}
    with pytest.raises(DecodeFailed):
        fit_task(TASK, [labels], broken, tmp_path / "out")
    with pytest.raises(InvalidLabels):
        fit_task(TASK, [write_rows(tmp_path / "b.jsonl", [{"text": "a"}])], engines(), tmp_path / "out")
    with pytest.raises(ValueError, match="fast tier"):
        fit_task(TASK, [labels], {Tier.DEEP: SyntheticEngine("s")}, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_fit_json_is_plain_json_without_nan(done):
    raw = (done.report.folder / "fit.json").read_text()

    def refuse(name: str) -> None:
        raise AssertionError(name)

    assert json.loads(raw, parse_constant=refuse)["format"] == "coolhead-fit/2"
    assert np.isfinite([q.scores.nll for q in done.report.record.questions]).all()
