"""The fit command's work: label files in, one artefact and a report out.

Guarantee: questions are read by text under the task's plan, as the judge reads them, and the trunk
beside them; the same labels, engines' numbers and seed give the same artefact, byte for byte but for
the time of the fit; rows marked held-out are never read by an engine here. A question that its
labels do not support is left out with a warning; when none is left, nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # ships no types

from coolhead import __version__
from coolhead.answers import Method
from coolhead.errors import FitFailed
from coolhead.policy import Tier
from coolhead.questions import Question
from coolhead.task import Task, TextPlan
from coolhead_worker.clock import Clock, SystemClock
from coolhead_worker.engine.protocol import Engine, PinnedSet, PlanKind
from coolhead_worker.judgement.artefact import write_fit
from coolhead_worker.judgement.calibration import Head
from coolhead_worker.judgement.labels import LabelSet, Split, load_labels
from coolhead_worker.judgement.learning import Course, Learned, learn, unfit
from coolhead_worker.judgement.plans import PlanIds, pinned_set
from coolhead_worker.judgement.readings import Reading, Wanted, read_states
from coolhead_worker.judgement.record import (
    EngineRecord,
    FitRecord,
    LabelFileRecord,
    QuestionRecord,
    RowsRecord,
)
from coolhead_worker.judgement.report import question_record
from coolhead_worker.judgement.table import table_of

Readings = Mapping[str, Reading | None]
Progress = Callable[[int, int], None]
Key = tuple[str, Tier]


@dataclass(frozen=True, slots=True)
class FitReport:
    """What a fit did: its folder, and the record that was written there."""

    folder: Path
    record: FitRecord

    @property
    def fit(self) -> str:
        """The fit's id: what answers carry as `x_fit`."""
        return self.record.fit


def fit_task(
    task: Task,
    label_files: Sequence[Path],
    engines: Mapping[Tier, Engine],
    out_dir: Path,
    progress: Progress | None = None,
    *,
    seed: int = 0,
    alpha: float = 0.10,
    delta: float = 0.10,
    cache: Path | None = None,
    clock: Clock | None = None,
    timeout_s: float = 600.0,
    heads_only: bool = False,
) -> FitReport:
    """Fit every question of a task that has labels, on every tier.

    Args:
        task: questions, policy, plan and how labels are written.
        label_files: JSONL, as `labels` describes.
        engines: the fast tier's, and the deep tier's if there is one.
        out_dir: where the artefact goes; one that is there is replaced.
        progress: told (done, total) in states read, over all tiers.
        seed: of the folds.
        alpha: share of wrong answers allowed among accepted ones.
        delta: chance allowed of a wrong certificate, per tier and question.
        cache: a folder that keeps readings between fits; None for none.
        clock: its wall time is written as the time of the fit.
        timeout_s: seconds allowed for each engine call.
        heads_only: try learned heads alone. Several times faster, because no question is asked by
            text; nothing tells then whether a text readout would have done.

    Raises:
        InvalidLabels: a row is not valid.
        FitFailed: no question is supported by the labels.
        DecodeFailed, DecodeTimeout, DecodeInterrupted, TierUnloaded, InvalidQuestion: from an engine.
        ValueError: no engine for the fast tier.
        OSError: the artefact can't be written.
    """
    if Tier.FAST not in engines:
        raise ValueError("a fit needs the fast tier's engine")
    course = Course(task.policy, seed, alpha, delta, (Method.HEAD,) if heads_only else tuple(Method))
    labels = load_labels(label_files, task)
    asked, remarks = _asked(task, labels)
    by_text = Wanted({} if heads_only else asked, _pinned(task))
    readings = _read_all(labels, by_text, engines, progress or _silent, cache, timeout_s)
    learned = _learn_all(asked, labels, readings, course, remarks)
    if not learned:
        raise FitFailed(f"{task.name}: no question can be fitted: {'; '.join(remarks)}")
    warnings = (*labels.warnings, *remarks, *_too_long(readings))
    record = _record(task, labels, engines, course, (clock or SystemClock()).wall(), warnings)
    questions = _questions(task, engines, asked, learned, course)
    return _write(out_dir, record.model_copy(update={"questions": questions}), asked, learned)


def _questions(
    task: Task,
    engines: Mapping[Tier, Engine],
    asked: Mapping[str, Question],
    learned: Mapping[Key, Learned],
    course: Course,
) -> tuple[QuestionRecord, ...]:
    plans = {tier: PlanIds(engine, {task.name: task}) for tier, engine in engines.items()}
    return tuple(
        question_record(
            name,
            asked[name],
            tier,
            _plan(task, plans[tier], found),
            found,
            course,
            _fast(learned, name, tier),
        )
        for (name, tier), found in learned.items()
    )


def _pinned(task: Task) -> PinnedSet | None:
    """What stands before the state when a question of the task is read by text."""
    return pinned_set(task) if task.plan is TextPlan.PINNED else None


def _plan(task: Task, plans: PlanIds, learned: Learned) -> tuple[PlanKind, str]:
    """How the numbers of the chosen method are read."""
    kind = PlanKind.TRUNK if learned.calibrator.method is Method.HEAD else plans.text(task)
    return kind, plans.of(kind, task.name)


def _record(
    task: Task,
    labels: LabelSet,
    engines: Mapping[Tier, Engine],
    course: Course,
    wall: float,
    warnings: tuple[str, ...],
) -> FitRecord:
    """All but the questions and the heads."""
    return FitRecord(
        fitted_at=datetime.fromtimestamp(wall, UTC).isoformat(timespec="seconds"),
        tool=f"coolhead {__version__}",
        task=task.name,
        seed=course.seed,
        alpha=course.alpha,
        delta=course.delta,
        label_files=tuple(LabelFileRecord(name=f.name, sha256=f.sha256, rows=f.rows) for f in labels.files),
        rows=_count(labels),
        engines={tier: _identity(engines[tier]) for tier in Tier if tier in engines},
        heads_sha256="",
        questions=(),
        warnings=warnings,
    )


def _write(
    folder: Path,
    record: FitRecord,
    asked: Mapping[str, Question],
    learned: Mapping[Key, Learned],
) -> FitReport:
    heads = {
        (tier, asked[name].fingerprint): found.calibrator
        for (name, tier), found in learned.items()
        if isinstance(found.calibrator, Head)
    }
    return FitReport(folder, write_fit(folder, record, heads))


def _silent(_done: int, _total: int) -> None:
    pass


def _identity(engine: Engine) -> EngineRecord:
    return EngineRecord(
        name=engine.name,
        sha256=engine.digest,
        features_digest=engine.features_digest,
    )


def _count(labels: LabelSet) -> RowsRecord:
    fit = sum(row.split is Split.FIT for row in labels.rows)
    return RowsRecord(fit=fit, threshold=len(labels.rows) - fit, held_out=labels.held_out)


def _asked(task: Task, labels: LabelSet) -> tuple[dict[str, Question], list[str]]:
    """The questions to fit, each wording once, and what to say about the others."""
    labelled = {name for row in labels.rows for name in row.labels}
    asked: dict[str, Question] = {}
    remarks: list[str] = []
    by_wording: dict[str, str] = {}
    for name, question in task.questions.items():
        if name not in labelled:
            remarks.append(f"{name}: no labels")
        elif question.fingerprint in by_wording:
            remarks.append(f"{name}: the same question as {by_wording[question.fingerprint]}, fitted there")
        else:
            by_wording[question.fingerprint] = name
            asked[name] = question
    return asked, remarks


def _read_all(
    labels: LabelSet,
    wanted: Wanted,
    engines: Mapping[Tier, Engine],
    progress: Progress,
    cache: Path | None,
    timeout_s: float,
) -> dict[Tier, Readings]:
    states = [row.state for row in labels.rows]
    each = len(set(states))
    total = each * len(engines)
    result: dict[Tier, Readings] = {}
    for turn, tier in enumerate(tier for tier in Tier if tier in engines):
        result[tier] = read_states(
            engines[tier],
            states,
            wanted,
            cache=cache,
            timeout_s=timeout_s,
            read=partial(_advance, progress, turn * each, total),
        )
    return result


def _advance(progress: Progress, before: int, total: int, done: int) -> None:
    progress(before + done, total)


def _too_long(readings: Mapping[Tier, Readings]) -> Iterator[str]:
    for tier, read in readings.items():
        count = sum(reading is None for reading in read.values())
        if count:
            yield f"{count} states are too long for the {tier.value} tier and were left out there"


def _learn_all(
    asked: Mapping[str, Question],
    labels: LabelSet,
    readings: Mapping[Tier, Readings],
    course: Course,
    remarks: list[str],
) -> dict[Key, Learned]:
    """What can be learned, question by question, fast tier first; the rest is remarked on."""
    learned: dict[Key, Learned] = {}
    # one thread: on a busy machine BLAS threads wait for each other far longer than they work,
    # and the sums, so the artefact, would depend on how many there are
    with threadpool_limits(1, user_api="blas"):
        for name, question in asked.items():
            for tier, read in readings.items():
                usable = _judged_by_fast(read, readings[Tier.FAST])
                tables = tuple(table_of(name, question, split, labels.rows, usable) for split in _SPLITS)
                problem = unfit(question, tables[0])
                if problem:
                    remarks.append(f"{name} ({tier.value}): {problem}")
                    break
                fast = _fast(learned, name, tier)
                learned[name, tier] = learn(name, question, (tables[0], tables[1]), course, fast)
    return learned


_SPLITS = (Split.FIT, Split.THRESHOLD)


def _judged_by_fast(read: Readings, fast: Readings) -> Readings:
    """A state that is too long for the fast tier never comes to the deep one."""
    return {state: None if fast[state] is None else reading for state, reading in read.items()}


def _fast(learned: Mapping[Key, Learned], name: str, tier: Tier) -> Learned | None:
    return None if tier is Tier.FAST else learned.get((name, Tier.FAST))
