"""Fits on disk: `fit.json` and `heads.safetensors` in one folder, and the book of those in use.

Guarantee: an entry is only used with the very model, plan and feature ids it was fitted on, from
files that are as they were written; anything else is refused with what differs. No pickle.
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
from coolhead_worker.engine.protocol import Engine
from coolhead_worker.judgement.calibration import (
    Calibrator,
    Floats,
    Head,
    Raw,
    Temperature,
    TemperatureBias,
)
from coolhead_worker.judgement.fitted import Certified, FittedQuestion
from coolhead_worker.judgement.record import FORMAT, FitRecord, QuestionRecord

RECORD, HEADS = "fit.json", "heads.safetensors"
PARTS = ("weight", "bias", "mean", "scale")

_log = logging.getLogger("coolhead.judgement")


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
    """The fitted questions that this node's engines can use, by fingerprint and tier."""

    def __init__(
        self,
        entries: Mapping[tuple[str, Tier], FittedQuestion] | None = None,
        records: Sequence[FitRecord] = (),
    ) -> None:
        self._entries = dict(entries or {})
        self.records = tuple(records)

    @classmethod
    def load(
        cls, folders: Iterable[Path], engines: Mapping[Tier, Engine], *, lenient: bool = False
    ) -> FitBook:
        """Read fits. A tier that this node has no engine for is left out.

        Args:
            folders: each a fit, or a folder of fits; of two fits of one question the later counts.
            engines: this node's engines.
            lenient: leave a fit that does not match out, with a warning, instead of raising.

        Raises:
            FitMismatch: names the fit and what differs (unless `lenient`).
        """
        entries: dict[tuple[str, Tier], FittedQuestion] = {}
        records: list[FitRecord] = []
        for folder in folders:
            for place in _fits_in(folder):
                try:
                    found, record = _usable(place, engines, lenient=lenient)
                except FitMismatch as error:
                    if not lenient:
                        raise
                    _log.warning("fit left out: %s", error, extra={"action": "fit_left_out"})
                    continue
                entries.update(found)
                records.append(record)
        return cls(entries, records)

    def find(self, fingerprint: str, tier: Tier) -> FittedQuestion | None:
        """The entry of a question on a tier, if there is one."""
        return self._entries.get((fingerprint, tier))

    def __len__(self) -> int:
        return len(self._entries)


def _fits_in(folder: Path) -> list[Path]:
    """The folder itself, or those inside it that hold a fit."""
    inner = sorted(path.parent for path in folder.glob(f"*/{RECORD}"))
    return inner if inner and not (folder / RECORD).exists() else [folder]


def _usable(
    folder: Path, engines: Mapping[Tier, Engine], *, lenient: bool
) -> tuple[dict[tuple[str, Tier], FittedQuestion], FitRecord]:
    record, tensors = read_fit(folder)
    usable = set()
    for tier, engine in engines.items():
        differs = _difference(record, tier, engine)
        if differs and not lenient:
            raise FitMismatch(f"{folder.name}: {differs}")
        if differs:
            _log.warning("fit left out: %s: %s", folder.name, differs, extra={"action": "fit_left_out"})
        else:
            usable.add(tier)
    entries = {
        (question.fingerprint, question.tier): _entry(folder, record, question, tensors)
        for question in record.questions
        if question.tier in usable
    }
    return entries, record


def _difference(record: FitRecord, tier: Tier, engine: Engine) -> str:
    """What of an engine is not as it was fitted; "" when all is, or the fit knows nothing of the tier."""
    fitted = record.engines.get(tier)
    if fitted is None:
        return ""
    pairs = {
        "model sha256": (fitted.sha256[:12], engine.digest[:12], fitted.sha256 == engine.digest),
        "plan": (fitted.plan, engine.plan, fitted.plan == engine.plan),
        "feature ids": (
            fitted.feature_ids_digest[:12],
            engine.feature_ids_digest[:12],
            fitted.feature_ids_digest == engine.feature_ids_digest,
        ),
    }
    wrong = [f"{what} {was} in the fit, {now} here" for what, (was, now, same) in pairs.items() if not same]
    return f"{tier.value} tier: {'; '.join(wrong)}: fit again" if wrong else ""


def _entry(
    folder: Path, record: FitRecord, question: QuestionRecord, tensors: Mapping[str, Floats]
) -> FittedQuestion:
    try:
        calibrator = _calibrator(question, tensors)
    except (KeyError, ValueError, TypeError) as error:
        raise FitMismatch(f"{folder.name}: question {question.id!r}: {one_line(str(error))}") from None
    granted = {c.side: c.threshold for c in question.certificates if c.threshold is not None}
    certified = Certified(**granted, min_mass=question.min_mass)
    given = None if question.given is None else question.given.route(record.fit)
    return FittedQuestion(record.fit, calibrator, certified, given)


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
