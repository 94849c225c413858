"""The commands `fit` and `models` for a person: progress on stderr, results on stdout."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import platformdirs
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from coolhead.task import Task
from coolhead_worker.assembly import load_engines
from coolhead_worker.clock import SystemClock
from coolhead_worker.engine.modelfile import ModelFile
from coolhead_worker.judgement.record import FitRecord, QuestionRecord
from coolhead_worker.models import prepare
from coolhead_worker.settings import Settings


@dataclass(frozen=True, slots=True)
class FitOrder:
    """What to fit, and how."""

    task: Path
    labels: tuple[Path, ...]
    out: Path
    alpha: float = 0.10
    delta: float = 0.10
    seed: int = 0
    cache: Path | None = None
    heads_only: bool = False


def cache_folder() -> Path:
    """Where models, digests and readings are kept."""
    return platformdirs.user_cache_path("coolhead")


def fit_files(settings: Settings, order: FitOrder, *, as_json: bool) -> None:
    """Fit and show what came out; errors as in `fit_task` and `load_engines`."""
    from coolhead_worker.judgement.fit import fit_task  # brings scipy: not for `--help`

    task = Task.load(order.task)
    clock = SystemClock()
    with ExitStack() as stack, _bar() as progress:
        reading = progress.add_task("loading models", total=None)
        engines = load_engines(settings, None, stack, None, clock)

        def advance(done: int, total: int) -> None:
            what = "fitting" if done == total else "reading labelled states"
            progress.update(reading, completed=done, total=total, description=what)

        report = fit_task(
            task, order.labels, engines, order.out, advance, seed=order.seed, alpha=order.alpha,
            delta=order.delta, cache=order.cache, clock=clock, heads_only=order.heads_only,
        )  # fmt: skip
    if as_json:
        sys.stdout.write(json.dumps(report.record.model_dump(mode="json"), ensure_ascii=False) + "\n")
    else:
        _show(report.record)


def prepare_models(folder: Path | None = None) -> dict[str, ModelFile]:
    """Fetch and prepare the demo models with a progress bar; milliseconds when they are there."""
    with _bar() as progress:
        step = progress.add_task("models", total=1.0)
        found = prepare(
            folder or cache_folder() / "models",
            lambda what, share: progress.update(step, description=what, completed=share),
        )
    return {"fast": found.fast, "deep": found.deep}


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip


def _show(record: FitRecord) -> None:
    table = Table(title=f"fit {record.fit} of task {record.task}")
    for column in ("question", "tier", "method", "plan", "rows", "accuracy", "NLL", "ECE", "certified"):
        table.add_column(column)
    for question in record.questions:
        how = (question.tier.value, question.method.value, question.plan.value)
        table.add_row(question.id, *how, *_figures(question))
    Console().print(table)
    for question in record.questions:
        sys.stdout.write(f"{question.id}, {question.tier.value}: {question.guarantee}\n")
    for warning in record.warnings:
        sys.stderr.write(f"warning: {warning}\n")


def _figures(question: QuestionRecord) -> tuple[str, str, str, str, str]:
    """Rows used; accuracy, NLL and ECE on the threshold rows; certified sides."""
    scores = question.scores
    certified = [f"{c.side} {c.threshold:.2f}" for c in question.certificates if c.threshold is not None]
    rows = f"{question.rows_fit}+{question.rows_threshold}"
    if scores is None:
        return rows, "", "", "", ", ".join(certified)
    figures = (f"{scores.accuracy:.3f}", f"{scores.nll:.3f}", f"{scores.ece_mass:.3f}")
    return rows, *figures, ", ".join(certified) or "nothing"
