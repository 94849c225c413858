"""The sensor for demos and tests: a file that says what the machine is like.

The file holds one word (`nominal`, `fair`, `serious`, `critical`, `unknown`) or a JSON object of
`Conditions` fields other than `read_at`, for example `{"thermal": "fair", "low_power": true}`.

Guarantee: anything else, or no file, is thermal `unknown`, and vanished when there had been a valid
file before; a change of the file ends a wait within 50 ms, also when it happened between the last
read and the wait.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from coolhead.errors import one_line
from coolhead_worker.admission.conditions import Conditions, Memory, Thermal
from coolhead_worker.admission.sensor import QuietSensor
from coolhead_worker.clock import Clock

POLL_S = 0.05
SOURCE = "scripted"
MAX_BYTES = 1 << 16

_Identity = tuple[int, int, int] | None
_SOURCE_NAMES = ("thermal_source", "low_power_source", "memory_source", "vanished_source")
_NAMES = {field.name for field in fields(Conditions)} - {"read_at"}


class ScriptedSensor(QuietSensor):
    """Reads a script file; the file may come and go at any time."""

    name = SOURCE

    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__(clock)
        self._path = path
        self._seen: _Identity = None
        self._had_been_there = False

    def read(self) -> Conditions:
        """What the file says now."""
        # Identity before content: a change in between is seen by the next wait.
        self._seen = identity(self._path)
        now = self._clock.monotonic()
        try:
            found = parse_script(_load(self._path))
        except (OSError, ValueError):
            return Conditions(
                thermal_source=SOURCE, vanished=self._had_been_there, vanished_source=SOURCE, read_at=now
            )
        self._had_been_there = True
        return replace(found, read_at=now)

    def wait(self, timeout_s: float) -> bool:
        """Sleep until the file differs from what was read, or `wake()`, at most `timeout_s` seconds."""
        left = timeout_s
        while identity(self._path) == self._seen:
            if self._waker.wait(min(left, POLL_S)):
                return True
            left -= POLL_S
            if left <= 0:
                return identity(self._path) != self._seen
        return True


def identity(path: Path) -> _Identity:
    """What tells one state of a file from another: time, size, inode; None without a file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def parse_script(text: str) -> Conditions:
    """The conditions in a script.

    Raises:
        ValueError: neither a level nor an object of known fields with fitting values.
    """
    stripped = text.strip()
    if not stripped.startswith("{"):
        return Conditions(Thermal(stripped.lower()), SOURCE)
    try:
        given = json.loads(stripped)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    unknown = given.keys() - _NAMES
    if unknown:
        raise ValueError(f"unknown fields: {', '.join(sorted(unknown))}")
    return _conditions(given)


def write_script(path: Path, content: str) -> None:
    """Replace a script in one step, so that no reader finds half of it."""
    draft = path.with_name(path.name + ".new")
    draft.write_text(content)
    draft.replace(path)


def _load(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return file.read(MAX_BYTES)


def _conditions(given: dict[str, Any]) -> Conditions:
    values: dict[str, Any] = {name: _CHECKS[name](value) for name, value in given.items()}
    return Conditions(**dict.fromkeys(_SOURCE_NAMES, SOURCE) | values)


def _flag(value: object) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise ValueError("not true, false or null")


def _certain(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError("not true or false")


def _share(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    raise ValueError("not a number from 0 to 1")


def _name(value: object) -> str:
    if isinstance(value, str) and len(value) <= 64:
        return one_line(value)
    raise ValueError("not a short text")


_CHECKS: dict[str, Callable[[Any], object]] = {
    "thermal": Thermal,
    "memory": Memory,
    "on_ac": _flag,
    "low_power": _flag,
    "battery": _share,
    "vanished": _certain,
} | dict.fromkeys(_SOURCE_NAMES, _name)
