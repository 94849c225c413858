"""The demo on a terminal: a progress bar on stderr, a table and a summary on stdout."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from labelled import Case
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from coolhead.answers import Decision, NoulAnswer
from coolhead.client import DecisionQueue
from coolhead.errors import CoolheadError
from coolhead.policy import Tier

SHOWN = 46  # cells of a text
LOOK_S = 2.0


@contextmanager
def bar() -> Iterator[Progress]:
    """A progress bar that leaves stdout alone."""
    with Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=Console(stderr=True), transient=True,
    ) as progress:  # fmt: skip
        yield progress


class ClosedReason(threading.Thread):
    """Tells on the bar why nothing moves, when the node has closed its lanes."""

    def __init__(self, queue: DecisionQueue, progress: Progress, step: Any) -> None:
        super().__init__(name="closed-reason", daemon=True)
        self._queue = queue
        self._progress = progress
        self._step = step
        self._done = threading.Event()

    def run(self) -> None:
        """Look every two seconds until `close`."""
        while not self._done.wait(LOOK_S):
            try:
                closed = [node.reason for node in self._queue.fleet().nodes if node.reason]
            except CoolheadError:
                closed = ["Redis does not answer"]
            what = f"waiting: {closed[0]}" if closed else "deciding"
            self._progress.update(self._step, description=what)

    def close(self) -> None:
        """End the thread."""
        self._done.set()
        self.join()


def table(answered: Sequence[tuple[Case, Decision]]) -> Table:
    """One row a ticket or prompt."""
    board = Table(title="held-out tickets and prompts, none of them seen by the fit")
    for column, justify in (
        ("text", "left"), ("queue", "left"), ("p", "right"), ("injection", "right"), ("urgency", "right"),
        ("tier", "left"), ("status", "left"), ("wait ms", "right"), ("model ms", "right"), ("node", "left"),
    ):  # fmt: skip
        width = SHOWN if column == "text" else None  # wide letters take two cells: the column cuts
        board.add_column(column, justify=justify, no_wrap=True, max_width=width)  # type: ignore[arg-type]
    for case, decision in answered:
        board.add_row(*_row(case, decision))
    return board


def _row(case: Case, decision: Decision) -> list[str]:
    answers = decision.answers
    queue, urgency = answers.get("queue"), answers.get("urgency")
    main = queue or answers["injection"]
    deep = any(answer.tier is Tier.DEEP for answer in answers.values())
    injection = answers["injection"]
    assert isinstance(injection, NoulAnswer)
    wrong = queue is not None and queue.choice != case.labels["queue"]  # type: ignore[union-attr]
    return [
        " ".join(case.text.split())[:SHOWN],
        (f"[red]{queue.choice}[/red]" if wrong else queue.choice) if queue else "-",  # type: ignore[union-attr]
        f"{max(main.probabilities.values()):.2f}",
        f"{injection.noul:.2f}",
        f"{urgency.score + 1:.1f}" if urgency else "-",  # type: ignore[union-attr]
        "fast+deep" if deep else "fast",
        main.status.value,
        f"{1000 * decision.timing.wait_s:.0f}",
        f"{1000 * decision.timing.inference_s:.0f}",
        decision.node,
    ]


def summary_lines(summary: dict[str, Any]) -> list[str]:
    """The summary for a person."""
    tickets, guardrail = summary["tickets"], summary["guardrail"]
    served, plain = guardrail["served"], guardrail["uncalibrated_fast_tier"]
    model, wait = summary["inference_ms"], summary["wait_ms"]
    return [
        f"queue accuracy    {_percent(tickets['queue_accuracy'])} of {tickets['n']} held-out tickets"
        f" (refund {_percent(tickets['refund_accuracy'])},"
        f" urgency off by {tickets['urgency_mean_error']} levels on average)",
        f"guardrail         {served['false_positives']} of {served['benign']} honest prompts with scary words"
        f" stopped ({_percent(served['false_positive_rate'])}),"
        f" {served['missed']} of {served['attacks']} attacks missed",
        f"  uncalibrated    {plain['false_positives']} of {plain['benign']} stopped"
        f" ({_percent(plain['false_positive_rate'])}), {plain['missed']} of {plain['attacks']} missed"
        " (fast tier alone, placeholder temperature)",
        f"model time        p50 {model['p50']} ms, p99 {model['p99']} ms a job;"
        f" wait in the queue p50 {wait['p50']} ms (all were handed in at once)",
        f"answers           {_percent(summary['share_escalated'])} escalated,"
        f" {_percent(summary['share_certified'])} accepted under a certificate",
        f"whole run         {summary['decisions']} decisions in {summary['seconds']:.1f} s",
    ]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
