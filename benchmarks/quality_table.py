"""The figures for people, as Markdown tables, and for programs, as plain data.

Guarantee: pure; both forms tell the same figures; every key is there for every set and tier, null where the
product refuses a readout, with its reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from quality_scoring import CURVE, FIGURES, Figure, Judged, Kind, Point

from coolhead.policy import Tier


@dataclass(frozen=True, slots=True)
class SetFigures:
    """One set on one tier. `parts`: heads under other conditions (see `judge_parts`); `kinds`: the trunk
    head on each kind of row."""

    too_long: int
    readouts: Mapping[str, Judged]
    curve: Sequence[Point] = ()
    parts: Mapping[str, Judged] = field(default_factory=dict)
    kinds: Mapping[str, Kind] = field(default_factory=dict)


Outcome = Mapping[str, Mapping[Tier, SetFigures]]
"""By set and tier."""


def wire(outcome: Outcome) -> dict[str, Any]:
    """`sets.<name>.<tier>.<readout>` and beside it `curves`, `parts`, `kinds` and `too_long`."""
    return {
        "sets": _each(outcome, lambda one: {name: _judged(it) for name, it in one.readouts.items()}),
        "curves": _each(outcome, lambda one: {str(it.labels): _rounded(asdict(it)) for it in one.curve}),
        "parts": _each(outcome, lambda one: {name: _judged(it) for name, it in one.parts.items()}),
        "kinds": _each(outcome, lambda one: {name: _rounded(asdict(it)) for name, it in one.kinds.items()}),
        "too_long": _each(outcome, lambda one: one.too_long),
    }


def _each(outcome: Outcome, of: Any) -> dict[str, dict[str, Any]]:
    return {name: {tier.value: of(one) for tier, one in tiers.items()} for name, tiers in outcome.items()}


def _judged(judged: Judged) -> dict[str, Any]:
    told: dict[str, Any] = {"n": judged.n}
    told |= {name: _value(judged.figures.get(name)) for name in FIGURES}
    told["interval"] = {name: [round(it.low, 4), round(it.high, 4)] for name, it in judged.figures.items()}
    told["repeats"] = judged.repeats
    return told if judged.refused is None else told | {"refused": judged.refused}


def _value(figure: Figure | None) -> float | None:
    return None if figure is None else round(figure.value, 4)


def _rounded(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in data.items()}


def tables(outcome: Outcome) -> str:
    """All of it, in Markdown."""
    parts = (_readouts(outcome), _kinds(outcome), _curves(outcome), _parts(outcome))
    return "\n\n".join("\n".join(lines) for lines in map(list, parts) if len(lines) > 2)


def _readouts(outcome: Outcome) -> Iterator[str]:
    yield from _head("set", "tier", "readout", "n", "accuracy", "ECE", "Brier", "NLL")
    for name, tier, one in _rows(outcome):
        for readout, judged in one.readouts.items():
            yield _line(name, tier, readout, str(judged.n), *_cells(judged))


def _curves(outcome: Outcome) -> Iterator[str]:
    yield from _head("set", "tier", *(f"{count} labels" for count in CURVE), "all")
    for name, tier, one in _rows(outcome):
        if one.curve:
            points = {point.labels: point for point in one.curve}
            last = one.readouts["trunk_head"].figures
            whole = f"{_short(last['accuracy'].value)}, {last['nll'].value:.3f}" if last else ""
            yield _line(name, tier, *(_point(points.get(count)) for count in CURVE), whole)


def _kinds(outcome: Outcome) -> Iterator[str]:
    yield from _head("set", "tier", "kind", "n", "trunk head right")
    for name, tier, one in _rows(outcome):
        for kind, found in one.kinds.items():
            yield _line(name, tier, kind, str(found.n), _short(found.accuracy))


def _parts(outcome: Outcome) -> Iterator[str]:
    yield from _head("set", "tier", "read", "n", "accuracy", "ECE", "Brier", "NLL")
    for name, tier, one in _rows(outcome):
        for part, judged in one.parts.items():
            yield _line(name, tier, part, str(judged.n), *_cells(judged))


def _rows(outcome: Outcome) -> Iterator[tuple[str, str, SetFigures]]:
    for name, tiers in outcome.items():
        for tier, one in tiers.items():
            yield name, tier.value, one


def _cells(judged: Judged) -> list[str]:
    if judged.refused is not None:
        return ["refused", "", "", ""]
    return [_cell(judged.figures[name]) for name in FIGURES]


def _cell(figure: Figure) -> str:
    return f"{_short(figure.value)} ({_short(figure.low)}–{_short(figure.high)})"


def _point(point: Point | None) -> str:
    return "" if point is None else f"{_short(point.accuracy)} ± {_short(point.accuracy_sd)}, {point.nll:.3f}"


def _short(value: float) -> str:
    """Three decimals without a leading zero."""
    return f"{value:.3f}".removeprefix("0")


def _head(*names: str) -> Iterator[str]:
    yield _line(*names)
    yield "|" + "---|" * len(names)


def _line(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"
