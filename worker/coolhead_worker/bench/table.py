"""The figures of one model as rows, for people and for programs.

Guarantee: pure; both forms are made of the same rows; a share of the bare call is only told where a bare
call of the same tokens was measured in the same rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from rich.table import Table

from coolhead_worker.bench.measuring import Measured, Ratio, ratio
from coolhead_worker.bench.twins import bare_name
from coolhead_worker.bench.variants import Case


@dataclass(frozen=True, slots=True)
class Line:
    """One variant: medians a job. `share`: of its CPU time the bare call's, 0..1; None where there is
    no bare call of the same tokens."""

    name: str
    plan: str
    questions: int
    batch: int
    cpu_ms: float
    wall_ms: float
    tokens: float
    generated: float
    tokens_per_second: float
    share: float | None


def case_lines(figures: Mapping[str, Measured], cases: Sequence[Case]) -> list[Line]:
    """The engine's variants."""
    return [
        _line(figures[case.name], case.kind.value, case.questions, case.batch, _share(figures, case))
        for case in cases
        if case.name in figures
    ]


def other_lines(figures: Mapping[str, Measured], cases: Sequence[Case]) -> list[Line]:
    """All other variants."""
    ours = {case.name for case in cases}
    return [_line(found, "", 0, found.jobs, None) for name, found in figures.items() if name not in ours]


def _share(figures: Mapping[str, Measured], case: Case) -> float | None:
    bare = figures.get(bare_name(case))
    return None if bare is None else ratio(bare, figures[case.name]).value


def _line(found: Measured, plan: str, questions: int, batch: int, share: float | None) -> Line:
    return Line(
        found.name, plan, questions, batch, found.cpu_ms, found.wall_ms, found.tokens, found.made,
        found.per_second, share,
    )  # fmt: skip


def rounded(line: Line) -> dict[str, object]:
    """Plain data with as many digits as mean something."""
    return {
        name: round(value, 3 if name == "share" else 1) if isinstance(value, float) else value
        for name, value in asdict(line).items()
    }


def rendered(title: str, lines: Sequence[Line]) -> Table:
    """A table for a terminal."""
    table = Table(title=title, title_justify="left")
    table.add_column("variant", no_wrap=True)
    for column in ("CPU ms/job", "ms/job", "new tokens", "generated", "tokens/s", "bare share"):
        table.add_column(column, justify="right")
    for line in lines:
        share = "" if line.share is None else f"{line.share:.1%}"
        table.add_row(
            line.name, f"{line.cpu_ms:.1f}", f"{line.wall_ms:.1f}", _count(line.tokens),
            _count(line.generated), _count(line.tokens_per_second), share,
        )  # fmt: skip
    return table


def _count(value: float) -> str:
    """Nothing where nothing was counted."""
    return f"{value:.0f}" if value else ""


def overhead(figures: Mapping[str, Measured], case: Case) -> Ratio:
    """CPU time beyond the bare call of the same tokens, as a share of that call: 0.05 is 5 %."""
    found = ratio(figures[case.name], figures[bare_name(case)])
    return Ratio(found.value - 1, found.low - 1, found.high - 1)
