"""What judges know of a model: items in, readouts and features out.

Guarantee: this file names no backend; whatever implements `Engine` gives the same numbers for an
item whichever other items and questions ride along, within the tolerance that its `plan` states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from coolhead.errors import StateTooLong
from coolhead.questions import Question

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class EvalItem:
    """One state with what is wanted of it.

    `questions` are answered by text, each in a branch of its own (the ids are no part of the
    prompt); `trunk` asks for the rows that learned heads read. Either may be absent.
    """

    state: str
    questions: Mapping[str, Question]
    trunk: bool


@dataclass(frozen=True, slots=True)
class Readout:
    """What the model said to one question.

    `logits`: (k,) float64, log-softmax over the k labels, in the order of `question.labels`.
    `mass`: share of the whole vocabulary's probability that the k labels hold, 0..1.
    `kind`: how labels were shown and read: names, letters, codes or digits.
    """

    logits: Floats
    mass: float
    kind: str


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All that was read for one item.

    `readouts`: one per question asked, by id. `features`: (f,) float64 of the trunk rows, None when
    not asked for. `tokens`: prompt tokens this item stands on (its prefix, state and branches).
    """

    readouts: dict[str, Readout]
    features: Floats | None
    tokens: int


class Engine(Protocol):
    """A resident model.

    `digest` is the sha256 of the model file, `plan` names everything else that can move a number,
    `feature_ids_digest` the choice of features; fits are bound to all three.
    """

    name: str
    digest: str
    plan: str
    feature_ids_digest: str
    max_state_tokens: int

    def evaluate(self, items: Sequence[EvalItem], timeout_s: float) -> list[Evaluation | StateTooLong]:
        """Read all items, in order; an item that is too long is refused alone.

        Raises:
            DecodeTimeout: not finished within `timeout_s` seconds.
            DecodeFailed: the model call returned an error; the next call starts afresh.
        """

    def close(self) -> None:
        """Give the memory back; a second call does nothing."""
