"""What judges know of a model: items in, readouts and features out.

Guarantee: this file names no backend; whatever implements `Engine` gives the same numbers for an
item whichever other items and questions ride along, within the tolerance that its plan states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from coolhead.errors import StateTooLong
from coolhead.policy import Debias
from coolhead.questions import Question

Floats = NDArray[np.float64]


class PlanKind(StrEnum):
    """How an item is laid out for the model."""

    ISOLATED = "isolated"  #: the state, then each question in a branch that sees no other question
    PINNED = "pinned"  #: all questions of a task in a cached prefix, the state, a short suffix for each
    TRUNK = "trunk"  #: the state alone: its features, for learned heads


@dataclass(frozen=True, slots=True)
class Orders:
    """In how many orders the options of a question are read, and when.

    `near_tie`: only when the two likeliest labels are closer than this in probability; 1 is always.
    """

    level: Debias = Debias.RAW
    near_tie: float = 1.0


@dataclass(frozen=True, slots=True)
class Shown:
    """A state that is shown with its answers: label indices by question id."""

    state: str
    answers: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PinnedSet:
    """All that stands before the state in a pinned plan: a task's questions, in its order, and examples."""

    questions: Mapping[str, Question]
    examples: tuple[Shown, ...] = ()


@dataclass(frozen=True, slots=True)
class EvalItem:
    """One state with what is wanted of it.

    `questions` are answered by text. `pinned`: what stands before the state, all of `questions` among
    it, in the plan `pinned`; None for the plan `isolated`, where ids are no part of the prompt.
    `trunk` asks for the features that learned heads read. `orders`: by question id.
    """

    state: str
    questions: Mapping[str, Question]
    trunk: bool
    pinned: PinnedSet | None = None
    orders: Mapping[str, Orders] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Readout:
    """What the model said to one question.

    `logits`: (k,) float64, log-softmax over the k labels, in the order of `question.labels`.
    `mass`: share of the whole vocabulary's probability that the k labels hold, 0..1.
    `kind`: how labels were shown and read: names, strings, letters, codes or digits.
    `debias`: in how many orders the options were read.
    """

    logits: Floats
    mass: float
    kind: str
    debias: Debias = Debias.RAW


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All that was read for one item.

    `readouts`: one per question asked, by id. `features`: (f,) float64 of the trunk, None when
    not asked for. `tokens`: prompt tokens this item stands on (its prefix, state and branches).
    """

    readouts: dict[str, Readout]
    features: Floats | None
    tokens: int


class Engine(Protocol):
    """A resident model.

    `digest` is the sha256 of the model file, `features_digest` names the recipe of the features;
    fits are bound to both and to the id of the plan that gave their numbers.
    """

    name: str
    digest: str
    features_digest: str
    max_state_tokens: int

    def plan_id(self, kind: PlanKind, pinned: PinnedSet | None = None) -> str:
        """Everything beside the weights that can move a number read in this way.

        Args:
            kind: the plan.
            pinned: of a pinned plan, what stands before the state.
        """

    def temperature(self, question: Question) -> float | None:
        """The calibration that the model's author ships for such a question; None for none."""

    def evaluate(self, items: Sequence[EvalItem], timeout_s: float) -> list[Evaluation | StateTooLong]:
        """Read all items, in order; an item that is too long is refused alone.

        Raises:
            DecodeTimeout: not finished within `timeout_s` seconds.
            DecodeInterrupted: `interrupt` was called.
            DecodeFailed: the model call returned an error; the next call starts afresh.
            TierUnloaded: the model is not in memory now.
        """

    def interrupt(self) -> None:
        """Stop the running call within one step of the model; nothing when none runs. Thread-safe."""

    def close(self) -> None:
        """Give the memory back; a second call does nothing."""
