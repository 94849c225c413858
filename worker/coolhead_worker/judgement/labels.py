"""Labelled rows for a fit, from JSONL files.

Guarantee: a `LabelSet` that exists holds only valid states and labels, as indices into
`question.labels`; a bad row is refused with file, row and rule, never skipped; rows marked
`held_out` are counted and left out, so no fit can see them. A row's split never depends on the
other rows: adding labels moves none between the splits.

A row: `{"text": "..."}` or `{"state": ...}`, labels under the question ids (at the top or under
`labels`), optional `id`, `group` and `split` (`fit`, `threshold`, `held_out`).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from coolhead.errors import InvalidLabels, InvalidState, one_line
from coolhead.job import check_state
from coolhead.questions import text_of
from coolhead.task import Task

FIT_SHARE = 0.6
"""Share of unmarked rows that the calibrators are fitted on; the rest sets thresholds."""

_RESERVED = frozenset({"text", "state", "labels", "id", "split", "group"})


class Split(StrEnum):
    """What a row is for."""

    FIT = "fit"  #: choosing and fitting calibrators
    THRESHOLD = "threshold"  #: certifying thresholds
    HELD_OUT = "held_out"  #: for the user's own tests; never read by a fit


@dataclass(frozen=True, slots=True)
class LabelRow:
    """One state with label indices by question id. `group` names rows that belong together."""

    state: str
    labels: dict[str, int]
    split: Split
    group: str


@dataclass(frozen=True, slots=True)
class LabelFile:
    """A file's name (not its folder), sha256 and number of rows."""

    name: str
    sha256: str
    rows: int


@dataclass(frozen=True, slots=True)
class LabelSet:
    """All rows of all files in order, without the held-out ones, which are only counted."""

    rows: tuple[LabelRow, ...]
    held_out: int
    files: tuple[LabelFile, ...]
    warnings: tuple[str, ...]


def load_labels(paths: Sequence[Path], task: Task) -> LabelSet:
    """Read label files for a task.

    Raises:
        InvalidLabels: names file, row and rule of the first fault.
    """
    rows: list[LabelRow] = []
    files: list[LabelFile] = []
    seen: set[str] = set()
    for path in paths:
        data = _bytes(path)
        found = [
            _parse(line, f"{path.name}:{number}", task, seen)
            for number, line in enumerate(data.splitlines(), start=1)
            if line.strip()
        ]
        rows += found
        files.append(LabelFile(path.name, hashlib.sha256(data).hexdigest(), len(found)))
    if not rows:
        raise InvalidLabels(f"{', '.join(path.name for path in paths) or 'no file'}: there are no rows")
    used = tuple(row for row in rows if row.split is not Split.HELD_OUT)
    return LabelSet(used, len(rows) - len(used), tuple(files), tuple(_leaks(rows)))


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidLabels(f"{path.name}: {one_line(error.strerror or str(error))}") from None


def _parse(line: bytes, where: str, task: Task, seen: set[str]) -> LabelRow:
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError):
        raise InvalidLabels(f"{where}: not a JSON object on one line") from None
    if not isinstance(raw, dict):
        raise InvalidLabels(f"{where}: not a JSON object on one line")
    try:
        _check_id(raw.get("id"), seen)
        state = _state(raw)
        group = _group(raw.get("group"), state)
        return LabelRow(state, _labels(raw, task), _split(raw.get("split"), group), group)
    except (InvalidLabels, InvalidState) as error:
        raise InvalidLabels(f"{where}: {error}") from None


def _check_id(name: object, seen: set[str]) -> None:
    if name is None:
        return
    if str(name) in seen:
        raise InvalidLabels(f"the id {str(name)[:64]!r} is used twice")
    seen.add(str(name))


def _state(raw: dict[str, Any]) -> str:
    if ("text" in raw) == ("state" in raw):
        raise InvalidLabels("give either `text` or `state`")
    if "text" in raw and not isinstance(raw["text"], str):
        raise InvalidLabels("`text` must be text; an object or list goes under `state`")
    return text_of(check_state(raw["text"] if "text" in raw else raw["state"]))


def _group(raw: object, state: str) -> str:
    """Equal texts form a group even when unmarked, so that no fold sees an answer beforehand."""
    if raw is None:
        return "text " + hashlib.sha256(state.encode()).hexdigest()[:32]
    if isinstance(raw, bool) or not isinstance(raw, str | int):
        raise InvalidLabels("`group` must be text or a whole number")
    return f"group {raw}"


def _split(raw: object, group: str) -> Split:
    if raw is None:
        draw = int.from_bytes(hashlib.sha256(group.encode()).digest()[:8], "big") / 2**64
        return Split.FIT if draw < FIT_SHARE else Split.THRESHOLD
    try:
        return Split(str(raw))
    except ValueError:
        raise InvalidLabels(f"split {str(raw)[:32]!r} is not one of {', '.join(Split)}") from None


def _labels(raw: dict[str, Any], task: Task) -> dict[str, int]:
    inner = raw.get("labels", {})
    if not isinstance(inner, dict):
        raise InvalidLabels("`labels` must be an object of question ids")
    unknown = sorted(set(inner) - set(task.questions.root))
    if unknown:
        raise InvalidLabels(f"labels: the task {task.name!r} has no question {unknown[0][:64]!r}")
    top = {name: raw[name] for name in task.questions.root if name in raw and name not in _RESERVED}
    twice = sorted(set(top) & set(inner))
    if twice:
        raise InvalidLabels(f"{twice[0]}: the label stands at the top and under `labels`")
    given = {name: value for name, value in {**top, **inner}.items() if value is not None}
    if not given:
        raise InvalidLabels(f"no label for any question of the task {task.name!r}")
    return {name: task.label(name, value) for name, value in given.items()}


def _leaks(rows: Iterable[LabelRow]) -> Iterable[str]:
    splits: dict[str, set[Split]] = defaultdict(set)
    for row in rows:
        splits[row.group].add(row.split)
    across = Counter(len(found) > 1 for found in splits.values())[True]
    if across:
        yield f"{across} texts or groups have rows in more than one split: the figures will look too good"
