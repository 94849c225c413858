"""What an engine says about labelled states: every question's logits, and the trunk's features.

Guarantee: one engine call a batch carries the questions and the trunk of its states together, as the
judge reads them: forward, by the task's plan; a state that was read before under the same model,
plans and set of questions comes from the cache, bit for bit; a damaged cache file is read anew. A
state that is too long for the engine is None, not cut.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np

from coolhead.errors import DecodeFailed, StateTooLong
from coolhead.questions import Question
from coolhead_worker.engine.protocol import Engine, EvalItem, Evaluation, PinnedSet, PlanKind
from coolhead_worker.judgement.calibration import Floats

BATCH = 1
"""States a call. Attention is quadratic in the tokens of a call: on a CPU more states cost more each."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One state: features (f,), and per question fingerprint the logits (k,) and the option mass."""

    features: Floats
    logits: dict[str, Floats]
    mass: dict[str, float]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is read of every state beside the trunk: these questions by text, none for the trunk alone.

    `pinned`: what stands before the state, all questions of the task among it; None for isolated ones.
    """

    questions: Mapping[str, Question]
    pinned: PinnedSet | None = None

    def item(self, state: str) -> EvalItem:
        """One state as the engine is asked."""
        return EvalItem(state, self.questions, trunk=True, pinned=self.pinned if self.questions else None)

    def plan_id(self, engine: Engine) -> str:
        """By which plan the questions are read; "" when there are none."""
        if not self.questions:
            return ""
        kind = PlanKind.ISOLATED if self.pinned is None else PlanKind.PINNED
        return engine.plan_id(kind, self.pinned)


def read_states(
    engine: Engine,
    states: Sequence[str],
    wanted: Wanted,
    *,
    cache: Path | None,
    timeout_s: float,
    read: Callable[[int], None],
) -> dict[str, Reading | None]:
    """Read each state once.

    Args:
        engine: the model.
        states: texts; repeats are read once.
        wanted: the questions, and how they are read.
        cache: a folder for readings, or None.
        timeout_s: seconds for each engine call.
        read: told the number of states done after every batch.

    Returns:
        By state; None when it is too long for the engine.

    Raises:
        DecodeFailed, DecodeTimeout, DecodeInterrupted, TierUnloaded: from the engine.
    """
    questions = wanted.questions
    place = None if cache is None else _folder(cache, engine, wanted)
    known = {state: _load(place, state, questions) for state in dict.fromkeys(states)}
    fresh = [state for state, reading in known.items() if reading is None]
    result: dict[str, Reading | None] = dict(known)
    read(len(known) - len(fresh))
    for start in range(0, len(fresh), BATCH):
        batch = fresh[start : start + BATCH]
        said_of_all = engine.evaluate([wanted.item(state) for state in batch], timeout_s)
        for state, said in zip(batch, said_of_all, strict=True):
            result[state] = None if isinstance(said, StateTooLong) else _reading(said, questions)
            _save(place, state, result[state])
        read(len(known) - len(fresh) + start + len(batch))
    return result


def _reading(said: Evaluation, questions: Mapping[str, Question]) -> Reading:
    if said.features is None:
        raise DecodeFailed("the engine gave no features for the trunk")
    readouts = {question.fingerprint: said.readouts[name] for name, question in questions.items()}
    return Reading(
        features=np.asarray(said.features, dtype=np.float64),
        logits={key: np.asarray(readout.logits, dtype=np.float64) for key, readout in readouts.items()},
        mass={key: float(readout.mass) for key, readout in readouts.items()},
    )


def _folder(cache: Path, engine: Engine, wanted: Wanted) -> Path:
    """One for everything that can move a number: a reading of other questions is never taken for ours."""
    identity = (
        engine.digest,
        engine.features_digest,
        engine.plan_id(PlanKind.TRUNK),
        wanted.plan_id(engine),
        *(question.fingerprint for question in wanted.questions.values()),
    )
    return cache / hashlib.sha256("|".join(identity).encode()).hexdigest()[:32]


def _file(place: Path, state: str) -> Path:
    return place / f"{hashlib.sha256(state.encode()).hexdigest()}.npz"


def _save(place: Path | None, state: str, reading: Reading | None) -> None:
    if place is None or reading is None:
        return
    path = _file(place, state)
    place.mkdir(parents=True, exist_ok=True)
    arrays = {f"logits.{key}": values for key, values in reading.logits.items()}
    arrays |= {f"mass.{key}": np.array(value) for key, value in reading.mass.items()}
    fresh = path.with_suffix(".new.npz")
    np.savez(fresh, features=reading.features, **arrays)  # type: ignore[arg-type]  # names are data here
    fresh.replace(path)


def _load(place: Path | None, state: str, questions: Mapping[str, Question]) -> Reading | None:
    if place is None:
        return None
    keys = {question.fingerprint for question in questions.values()}
    try:
        with np.load(BytesIO(_file(place, state).read_bytes()), allow_pickle=False) as found:
            return Reading(
                features=found["features"],
                logits={key: found[f"logits.{key}"] for key in keys},
                mass={key: float(found[f"mass.{key}"]) for key in keys},
            )
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile):
        return None
