"""What a PromQL expression names, held against what workers export."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import promql_parser as pp

from coolhead_worker.metrics_catalogue import CATALOGUE, LATE, TASKS, VERDICTS, Series

TARGET_LABELS = {"job", "instance", "node"}
_PLAIN = re.compile(r"[\w|-]+")


@dataclass(frozen=True)
class Known:
    """One name a query may use: its labels with their values (None: open), and whether it only rises."""

    labels: Mapping[str, frozenset[str] | None]
    rises: bool = False


def vocabulary(recorded: Iterator[str] | list[str] = ()) -> dict[str, Known]:  # type: ignore[assignment]
    """Names of the catalogue, `up`, and recording rules (whose first word lists their labels)."""
    known = {"up": Known({})}
    for series in CATALOGUE.values():
        for name in series.sample_names:
            labels = _labels(series) | ({"le": None} if name.endswith("_bucket") else {})
            known[name] = Known(labels, series.kind in ("counter", "histogram"))
    for name in recorded:
        known[name] = Known(dict.fromkeys(name.split(":")[0].split("_")))
    return known


def faults(expr: str, known: Mapping[str, Known]) -> list[str]:
    """Everything that is wrong with an expression; empty when nothing is."""
    try:
        tree = pp.parse(expr)
    except ValueError as error:
        return [f"does not parse: {error}"]
    return [*_selectors(tree, known, ranged=False), *_groupings(tree, known)]


def names(expr: str) -> set[str]:
    """The metric names of an expression."""
    return {node.name for node in _walk(pp.parse(expr)) if isinstance(node, pp.VectorSelector)}


def _labels(series: Series) -> dict[str, frozenset[str] | None]:
    open_sets = (LATE, TASKS, VERDICTS)
    return {
        label.name: None if label.values in open_sets else frozenset(label.values) for label in series.labels
    }


def _children(node: Any) -> list[Any]:
    if isinstance(node, pp.Call):
        return list(node.args)
    if isinstance(node, pp.BinaryExpr):
        return [node.lhs, node.rhs]
    if isinstance(node, pp.MatrixSelector):
        return [node.vector_selector]
    return [node.expr] if hasattr(node, "expr") else []


def _walk(node: Any) -> Iterator[Any]:
    yield node
    for child in _children(node):
        yield from _walk(child)


def _selectors(node: Any, known: Mapping[str, Known], *, ranged: bool) -> Iterator[str]:
    if isinstance(node, pp.VectorSelector):
        yield from _selector(node, known, ranged=ranged)
    for child in _children(node):
        yield from _selectors(child, known, ranged=ranged or isinstance(node, pp.MatrixSelector))


def _selector(node: pp.VectorSelector, known: Mapping[str, Known], *, ranged: bool) -> Iterator[str]:
    found = known.get(node.name)
    if found is None:
        yield f"nothing exports {node.name}"
        return
    if found.rises and not ranged:
        yield f"{node.name} only rises: put it inside rate or increase"
    for matcher in node.matchers.matchers:
        if matcher.name not in found.labels and matcher.name not in TARGET_LABELS:
            yield f"{node.name} has no label {matcher.name}"
            continue
        allowed = found.labels.get(matcher.name)
        if allowed is not None and _PLAIN.fullmatch(matcher.value):
            yield from (
                f"{node.name}: {matcher.name} is never {value}"
                for value in matcher.value.split("|")
                if value not in allowed
            )


def _groupings(tree: Any, known: Mapping[str, Known]) -> Iterator[str]:
    for node in _walk(tree):
        used = _grouping(node)
        below = {n.name for n in _walk(node) if isinstance(n, pp.VectorSelector)}
        if not used or not below <= set(known):
            continue
        there = TARGET_LABELS.union(*(known[name].labels for name in below))
        yield from (f"no label {label} to group by in {node}" for label in used - there)
        if isinstance(node, pp.Call) and node.func.name == "histogram_quantile" and "le" not in used:
            yield "a quantile needs le"


def _grouping(node: Any) -> set[str]:
    if isinstance(node, pp.AggregateExpr):
        return set(node.modifier.labels) if node.modifier else set()
    if isinstance(node, pp.BinaryExpr) and node.modifier and node.modifier.matching:
        return set(node.modifier.matching.labels)
    if isinstance(node, pp.Call) and node.func.name == "histogram_quantile":
        inner = node.args[1]
        return _grouping(inner) or {"nothing"} if isinstance(inner, pp.AggregateExpr) else {"nothing"}
    return set()
