"""How decisions, nodes and lanes look in a terminal.

Guarantee: what is shown is what the wire form holds, rounded; nothing of a job's state is shown.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from coolhead.answers import ChoiceAnswer, Decision, NoulAnswer, ScoreAnswer
from coolhead.fleet import Fleet, Node


@contextmanager
def busy(what: str) -> Iterator[None]:
    """A spinner on stderr, when that is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(what):
        yield


def decision(decided: Decision) -> None:
    """One row for each question, and where the answers come from."""
    table = Table("question", "answer", "probability", "tier", "calibration")
    for name, answer in decided.answers.items():
        said, probability = _said(answer)
        table.add_row(
            escape(name), escape(said), f"{probability:.3f}", answer.tier.value, answer.status.value
        )
    timing = decided.timing
    table.caption = (
        f"node {escape(decided.node)}, waited {timing.wait_s * 1000:.0f} ms, "
        f"inference {timing.inference_s * 1000:.0f} ms, job {escape(decided.job_id)}"
    )
    _show(table)


def _said(answer: NoulAnswer | ChoiceAnswer | ScoreAnswer) -> tuple[str, float]:
    """The answer as text, and its own probability."""
    if isinstance(answer, NoulAnswer):
        return ("yes", answer.noul) if answer.verdict else ("no", 1.0 - answer.noul)
    if isinstance(answer, ChoiceAnswer):
        return answer.choice, answer.probabilities[answer.choice]
    level = str(answer.verdict)
    return f"{answer.score:.2f} ({answer.legend[level]})", answer.probabilities[level]


def nodes(fleet: Fleet) -> None:
    """One row for each node."""
    if not fleet.nodes:
        Console(stderr=True).print("no node has been seen in the last day")
        return
    table = Table("node", "state", "reason", "thermal", "open lanes", "models", "seen")
    for node in fleet.nodes:
        table.add_row(
            escape(node.name), f"{node.state} {_age(node, fleet.now)}".strip(), escape(node.reason),
            escape(" ".join(filter(None, [node.thermal, f"({node.source})" if node.source else ""]))),
            ", ".join(node.lanes), escape(node.models), f"{max(0.0, fleet.now - node.seen_at):.0f} s ago",
        )  # fmt: skip
    _show(table)


def _age(node: Node, now: float) -> str:
    """For how long the state has lasted."""
    if not node.since:
        return ""
    seconds = max(0, int(now - node.since))
    return time.strftime("%H:%M:%S", time.gmtime(seconds)) if seconds < 86400 else f"{seconds // 86400} d"


def lanes(fleet: Fleet) -> None:
    """One row for each lane."""
    columns = ("queued", "running", "delayed", "finished", "failed", "quarantined", "enqueued")
    table = Table("lane", *columns, "oldest")
    for lane in fleet.lanes:
        oldest = "" if lane.oldest_s is None else f"{lane.oldest_s:.1f} s"
        table.add_row(lane.lane.value, *(str(getattr(lane, column)) for column in columns), oldest)
    _show(table)


def _show(table: Table) -> None:
    # Into a file or a pipe a table is as wide as it needs: nothing is cut.
    Console(width=None if Console().is_terminal else 240).print(table)
