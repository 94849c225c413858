"""The file of golden numbers: what sound models said in the exam of `selfcheck`.

Guarantee: a file that was made for another exam, or is damaged, is refused in one line; writing keeps
the entries of other models and kernels, unless they are for another exam, and readers see the old file
or the new one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from coolhead.errors import InvalidSettings, NodeError, one_line
from coolhead.questions import explain
from coolhead_worker.engine.modelfile import write_whole
from coolhead_worker.engine.protocol import Engine, PlanKind
from coolhead_worker.engine.selfcheck import QUESTIONS, STATES, Golden, Subject, observe

SHIPPED = Path(__file__).with_name("golden.json")
"""Goldens of the demo models."""

DIGITS = 6  # of a log-probability; the finest tolerance is 1e-3
FLOOR = -99.0


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    sha256: str
    claim: str
    plan: str
    kernels: str
    logits: tuple[tuple[tuple[float, ...], ...], ...]


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    exam: str
    goldens: tuple[_Entry, ...]


def exam_id() -> str:
    """8 hex digits over the states and questions of the exam."""
    asked = [(name, question.fingerprint) for name, question in QUESTIONS.items()]
    return hashlib.sha256(repr((STATES, asked)).encode()).hexdigest()[:8]


def load_goldens(path: Path) -> list[Golden]:
    """The goldens of a file.

    Raises:
        InvalidSettings: no such file, not such a file, or made for another exam.
    """
    return [_golden(entry) for entry in _read(path).goldens]


def record(engine: Engine, subject: Subject, path: Path) -> None:
    """Put a sound model's numbers into a file; those of the same model and kernels are replaced.

    Raises:
        InvalidSettings: the file is there and is none of goldens.
        NodeError: it can't be written; or the model could not be examined, as in `selfcheck.check`.
    """
    said = observe(engine)
    entry = _Entry(
        name=engine.name,
        sha256=subject.sha256,
        claim=subject.claim,
        plan=engine.plan_id(PlanKind.ISOLATED),
        kernels=subject.kernels,
        logits=tuple(tuple(_rounded(row) for row in rows) for rows in said.logits),
    )
    old = _parsed(path) if path.exists() else None
    others = old.goldens if old is not None and old.exam == exam_id() else ()
    kept = [one for one in others if (one.sha256, one.kernels) != (entry.sha256, entry.kernels)]
    _write(path, _File(exam=exam_id(), goldens=(*kept, entry)))


def claim_of(meta: Callable[[str], str | None], size: int) -> str:
    """What a file says it is: architecture, name, kind of quantisation; "" when it does not say.

    Its size is part of that: damage does not change it, another making of the model nearly always does.

    Args:
        meta: a value of the model's metadata by its key; None when absent.
        size: bytes of the file.
    """
    said = [meta(f"general.{key}") or "" for key in ("architecture", "name", "file_type")]
    return " / ".join([*said, str(size)]) if all(said) else ""


def _read(path: Path) -> _File:
    file = _parsed(path)
    if file.exam != exam_id():
        raise InvalidSettings(f"golden file {path} is for another exam: record it again")
    return file


def _parsed(path: Path) -> _File:
    try:
        return _File.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InvalidSettings(f"golden file {path}: {one_line(error.strerror or str(error))}") from None
    except ValidationError as error:
        raise InvalidSettings(f"golden file {path}: {explain(error, 'file')}: record it again") from None


def _write(path: Path, file: _File) -> None:
    try:
        write_whole(path, (json.dumps(file.model_dump(), indent=1, ensure_ascii=False) + "\n").encode())
    except OSError as error:
        raise NodeError(f"golden file {path}: {one_line(error.strerror or str(error))}") from None


def _golden(entry: _Entry) -> Golden:
    return Golden(entry.sha256, entry.claim, entry.plan, entry.kernels, entry.logits)


def _rounded(row: Iterable[float]) -> tuple[float, ...]:
    # JSON has no infinity; a label that improbable is 0 either way.
    return tuple(round(max(float(value), FLOOR), DIGITS) for value in row)
