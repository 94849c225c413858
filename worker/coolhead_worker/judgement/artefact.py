"""Fits on disk: `fit.json` and `heads.safetensors` in one folder, and the book of those in use.

Guarantee: an entry is only used with the very model, feature ids and plan it was fitted on (of a
pinned plan, with the very questions of its task), from files that are as they were written; anything
else is refused with what differs. No pickle.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load, save

from coolhead.answers import Method
from coolhead.errors import FitMismatch, one_line
from coolhead.policy import Tier
from coolhead.questions import explain
from coolhead.task import Task
from coolhead_worker.engine.protocol import Engine, PlanKind
from coolhead_worker.judgement.calibration import (
    Calibrator,
    Floats,
    Head,
    Raw,
    Temperature,
    TemperatureBias,
)
from coolhead_worker.judgement.fitted import Certified, FittedQuestion
from coolhead_worker.judgement.plans import PlanIds
from coolhead_worker.judgement.record import FORMAT, FitRecord, QuestionRecord

RECORD, HEADS = "fit.json", "heads.safetensors"
PARTS = ("weight", "bias", "mean", "scale")

_log = logging.getLogger("coolhead.judgement")

Entry = tuple[tuple[str, Tier], FittedQuestion]
"""A fitted question with its fingerprint and tier."""


def write_fit(folder: Path, record: FitRecord, heads: Mapping[tuple[Tier, str], Head]) -> FitRecord:
    """Write a fit; the record comes back with the hash of its heads and its id.

    Args:
        folder: made if missing; a fit that is already there is replaced.
        record: all but `heads_sha256` and `fit` filled in.
        heads: by tier and question fingerprint.

    Raises:
        OSError: the folder can't be written.
    """
    tensors = {f"{_key(*at)}.{part}": getattr(head, part) for at, head in heads.items() for part in PARTS}
    data = save({name: np.ascontiguousarray(values) for name, values in tensors.items()})
    digest = hashlib.sha256(data).hexdigest()
    full = record.model_copy(update={"heads_sha256": digest}).identified()
    folder.mkdir(parents=True, exist_ok=True)
    # heads first: stopped in between, the old fit.json names other heads and is refused
    _replace(folder / HEADS, data)
    text = json.dumps(full.model_dump(mode="json"), ensure_ascii=False, indent=1, allow_nan=False)
    _replace(folder / RECORD, text.encode() + b"\n")
    return full


def _replace(path: Path, data: bytes) -> None:
    fresh = path.with_name(path.name + ".new")
    fresh.write_bytes(data)
    fresh.replace(path)


def _key(tier: Tier, fingerprint: str) -> str:
    return f"{tier.value}.{fingerprint}"


def read_fit(folder: Path) -> tuple[FitRecord, dict[str, Floats]]:
    """The record and the tensors of its heads.

    Raises:
        FitMismatch: a file is missing, of another version, cut short or edited.
    """
    record = _read_record(folder)
    data = _read_bytes(folder / HEADS)
    if hashlib.sha256(data).hexdigest() != record.heads_sha256:
        raise FitMismatch(f"{folder.name}/{HEADS} is not the file that was fitted: fit again")
    try:
        return record, load(data)
    except SafetensorError as error:
        raise FitMismatch(f"{folder.name}/{HEADS}: {one_line(str(error))}") from None


def _read_record(folder: Path) -> FitRecord:
    where = f"{folder.name}/{RECORD}"
    try:
        raw = json.loads(_read_bytes(folder / RECORD))
        version = raw.get("format") if isinstance(raw, dict) else None
        if version != FORMAT:
            raise FitMismatch(f"{where}: format {str(version)[:40]!r} is not {FORMAT}: fit again")
        record = FitRecord.model_validate(raw)
    except ValidationError as error:
        raise FitMismatch(f"{where}: {explain(error, 'fit')}") from None
    except (ValueError, RecursionError):
        raise FitMismatch(f"{where} is cut short or not JSON: fit again") from None
    if record.fit != record.expected_id():
        raise FitMismatch(f"{where} was edited after the fit: fit again")
    return record


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        reason = one_line(error.strerror or str(error))
        raise FitMismatch(f"{path.parent.name}/{path.name}: {reason}") from None


class FitBook:
    """The fitted questions that this node's engines can use, by fingerprint, tier and pinned plan."""

    def __init__(self, entries: Iterable[Entry] = (), records: Sequence[FitRecord] = ()) -> None:
        self._entries: dict[tuple[str, Tier], dict[str | None, FittedQuestion]] = {}
        for key, entry in entries:
            mine = self._entries.setdefault(key, {})
            mine.pop(entry.pinned, None)  # so that the order is that of coming
            mine[entry.pinned] = entry
        self.records = tuple(records)

    @classmethod
    def load(
        cls,
        folders: Iterable[Path],
        engines: Mapping[Tier, Engine],
        tasks: Mapping[str, Task],
        *,
        lenient: bool = False,
    ) -> FitBook:
        """Read fits. A tier that this node has no engine for is left out, and so are, with a warning,
        questions that were read pinned in a task that this node does not know: nobody can ask them.

        Args:
            folders: each a fit, or a folder of fits; of two fits of one question the later counts.
            engines: this node's engines.
            tasks: this node's tasks, by name.
            lenient: leave a fit that does not match out, with a warning, instead of raising.

        Raises:
            FitMismatch: names the fit and what differs (unless `lenient`).
        """
        entries: list[Entry] = []
        records: list[FitRecord] = []
        plans = {tier: PlanIds(engine, tasks) for tier, engine in engines.items()}
        for folder in folders:
            for place in _fits_in(folder):
                try:
                    found, record = _usable(place, engines, plans, lenient=lenient)
                except FitMismatch as error:
                    if not lenient:
                        raise
                    _left_out(str(error))
                    continue
                entries += found
                records.append(record)
        return cls(entries, records)

    def find(self, fingerprint: str, tier: Tier, pinned: str | None = None) -> FittedQuestion | None:
        """The entry of a question on a tier, if there is one.

        Args:
            fingerprint: the question's.
            tier: the tier.
            pinned: the id of the plan that pins the questions of its task; None when it is asked
                inline. Entries that were fitted under another pinned plan do not count.
        """
        mine = self._entries.get((fingerprint, tier), {})
        fits = [entry for entry in mine.values() if entry.pinned in (None, pinned)]
        return fits[-1] if fits else None

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))


def _left_out(what: str) -> None:
    _log.warning("fit left out: %s", what, extra={"action": "fit_left_out"})


def _fits_in(folder: Path) -> list[Path]:
    """The folder itself, or those inside it that hold a fit."""
    inner = sorted(path.parent for path in folder.glob(f"*/{RECORD}"))
    return inner if inner and not (folder / RECORD).exists() else [folder]


def _usable(
    folder: Path, engines: Mapping[Tier, Engine], plans: Mapping[Tier, PlanIds], *, lenient: bool
) -> tuple[list[Entry], FitRecord]:
    record, tensors = read_fit(folder)
    usable: list[QuestionRecord] = []
    for tier, engine in engines.items():
        mine = [question for question in record.questions if question.tier is tier]
        here = {question.plan: _plan_here(record, question, plans[tier]) for question in mine}
        other = _other_model(record, tier, engine)
        wrong = other or _other_plans(mine, here)
        if wrong:
            differs = f"{folder.name}: {tier.value} tier: {'; '.join(wrong)}: fit again"
            if not lenient:
                raise FitMismatch(differs)
            _left_out(differs)
        elif None in here.values():
            _left_out(f"{folder.name}: {tier.value} tier: this node does not know task {record.task!r}")
        usable += [] if other else [q for q in mine if q.plan_id == here[q.plan]]
    return [_entry(folder, record, question, tensors) for question in usable], record


def _plan_here(record: FitRecord, question: QuestionRecord, plans: PlanIds) -> str | None:
    """The id by which this node's engine reads a question of this plan; None when nobody can ask it."""
    return plans.pinned(record.task) if question.plan is PlanKind.PINNED else plans.of(question.plan)


def _other_model(record: FitRecord, tier: Tier, engine: Engine) -> list[str]:
    """What of an engine is not as it was fitted; nothing when the fit does not know the tier."""
    fitted = record.engines.get(tier)
    if fitted is None:
        return []
    pairs = (
        ("model sha256", fitted.sha256, engine.digest),
        ("features", fitted.features_digest, engine.features_digest),
    )
    return [f"{what} {was[:12]} in the fit, {now[:12]} here" for what, was, now in pairs if was != now]


def _other_plans(questions: Sequence[QuestionRecord], here: Mapping[PlanKind, str | None]) -> list[str]:
    """The plans that are not as they were fitted, each once."""
    known = [(question, here[question.plan]) for question in questions]
    wrong = [
        f"plan {question.plan.value} {question.plan_id} in the fit, {now} here"
        for question, now in known
        if now not in (None, question.plan_id)
    ]
    return list(dict.fromkeys(wrong))


def _entry(folder: Path, record: FitRecord, question: QuestionRecord, tensors: Mapping[str, Floats]) -> Entry:
    try:
        calibrator = _calibrator(question, tensors)
    except (KeyError, ValueError, TypeError) as error:
        raise FitMismatch(f"{folder.name}: question {question.id!r}: {one_line(str(error))}") from None
    granted = {c.side: c.threshold for c in question.certificates if c.threshold is not None}
    certified = Certified(**granted, min_mass=question.min_mass)
    given = None if question.given is None else question.given.route(record.fit)
    pinned = question.plan_id if question.plan is PlanKind.PINNED else None
    fitted = FittedQuestion(record.fit, calibrator, certified, given, pinned)
    return (question.fingerprint, question.tier), fitted


def _calibrator(question: QuestionRecord, tensors: Mapping[str, Floats]) -> Calibrator:
    k = len(question.labels)
    if question.method is Method.RAW:
        return Raw()
    if question.method is Method.HEAD:
        key = _key(question.tier, question.fingerprint)
        head = Head(*(tensors[f"{key}.{part}"] for part in PARTS))
        if len(head.bias) != k:
            raise ValueError(f"a head for {len(head.bias)} options, the question has {k}")
        return head
    if question.temperature is None:
        raise ValueError("no temperature")
    if question.method is Method.TEMPERATURE:
        return Temperature(question.temperature)
    bias = np.asarray(question.bias or (), dtype=np.float64)
    if bias.shape != (k,):
        raise ValueError(f"{bias.size} biases, the question has {k} options")
    return TemperatureBias(question.temperature, bias)
