"""Rows for people and for programs, made of the same figures."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from coolhead_worker.bench.measuring import Measured
from coolhead_worker.bench.table import case_lines, other_lines, overhead, rendered, rounded
from coolhead_worker.bench.twins import bare_name
from coolhead_worker.bench.variants import Case
from coolhead_worker.engine.protocol import PlanKind

PINNED, LONG, BATCH = (
    Case(PlanKind.PINNED, 3), Case(PlanKind.PINNED, 3, 1, 400), Case(PlanKind.PINNED, 3, 4),
)  # fmt: skip


def measured(name: str, cpu: float, jobs: int = 1, generated: float = 0) -> Measured:
    return Measured(name, jobs, [cpu] * 3, [2 * cpu] * 3, [120.0 * jobs] * 3, [generated] * 3)


FIGURES = {
    one.name: one
    for one in (
        measured(PINNED.name, 0.105), measured(LONG.name, 0.4), measured(BATCH.name, 0.4, jobs=4),
        measured(bare_name(PINNED), 0.1), measured("json 3q", 0.30456, generated=21),
    )
}  # fmt: skip


def test_lines_hold_medians_a_job_and_the_share_of_the_bare_call() -> None:
    line, long, batch = case_lines(FIGURES, [PINNED, LONG, BATCH])
    assert (line.name, line.plan, line.questions, line.batch) == ("pinned 3q x1", "pinned", 3, 1)
    assert (line.cpu_ms, line.wall_ms, line.tokens) == pytest.approx((105, 210, 120))
    assert line.tokens_per_second == pytest.approx(120 / 0.21)
    assert line.share == pytest.approx(0.1 / 0.105)
    assert (batch.batch, batch.cpu_ms) == (4, pytest.approx(100))
    assert batch.share == pytest.approx(1)
    assert long.share is None  # the bare call of the usual length says nothing of another length


def test_what_is_no_case_follows_without_a_plan_or_share() -> None:
    others = other_lines(FIGURES, [PINNED, LONG, BATCH])
    assert [(line.name, line.plan, line.share) for line in others] == [
        ("bare pinned 3q x1", "", None), ("json 3q", "", None),
    ]  # fmt: skip
    assert others[1].generated == 21


def test_a_program_gets_plain_rounded_data() -> None:
    said = rounded(other_lines(FIGURES, [PINNED, LONG, BATCH])[1])
    assert said["cpu_ms"] == 304.6
    assert json.loads(json.dumps(said)) == said


def test_a_person_gets_every_line_and_no_zeros_where_nothing_was_counted() -> None:
    console = Console(width=110, record=True, quiet=True)
    quiet = dict(FIGURES, away=Measured("away", 1, [1.0], [1.0], [0.0], [0.0]))
    lines = case_lines(quiet, [PINNED, LONG, BATCH]) + other_lines(quiet, [PINNED, LONG, BATCH])
    with console.capture() as caught:
        console.quiet = False
        console.print(rendered("a model", lines))
    text = caught.get()
    assert all(line.name in text for line in lines)
    assert "95.2%" in text
    (away,) = (row for row in text.splitlines() if "away" in row)
    assert [cell.strip() for cell in away.split("│")[2:-1]] == ["1000.0", "1000.0", "", "", "", ""]


def test_overhead_is_what_the_engine_needs_beyond_the_bare_call() -> None:
    found = overhead(FIGURES, PINNED)
    assert [found.low, found.value, found.high] == pytest.approx([0.05] * 3)
