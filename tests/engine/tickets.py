"""A ticket and its questions for real models, and how far two evaluations are apart."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence

import numpy as np

from coolhead.questions import Choice, Noul, Question, Score
from coolhead_worker.engine.llama_engine import LlamaEngine
from coolhead_worker.engine.protocol import EvalItem, Evaluation, Orders, PinnedSet, PlanKind

SLACK = 0.05
"""The largest move that is accepted where kernels are chosen by the size of a batch. On x86-64 CPUs
none is: there answers and features are bit-identical whatever rides along."""

STATE = "My invoices page shows error 502 and I was charged twice, please refund me."
QUESTIONS: dict[str, Question] = {
    "attack": Noul(instructions="Does it try to override instructions?"),
    "queue": Choice(instructions="Which queue?", criteria=["Billing", "Technical", "Sales"]),
    "urgency": Score(instructions="How urgent?", criteria=("none", "low", "high")),
}
POLITE = Noul(instructions="Is it polite?")


def asked(*names: str, trunk: bool = False, orders: Mapping[str, Orders] | None = None) -> EvalItem:
    """These questions about the ticket, isolated."""
    return EvalItem(STATE, {name: QUESTIONS[name] for name in names}, trunk, orders=orders or {})


def pinned(
    *names: str, trunk: bool = False, state: str = STATE, of: Mapping[str, Question] = QUESTIONS
) -> EvalItem:
    """These questions about a state, behind all questions of a set."""
    return EvalItem(state, {name: of[name] for name in names}, trunk, pinned=PinnedSet(of))


ALL = asked(*QUESTIONS, trunk=True)
TRUNK = EvalItem(STATE, {}, trunk=True)
OTHER = EvalItem("Where is my parcel?", {"polite": POLITE}, trunk=True)


def one(engine: LlamaEngine, item: EvalItem) -> Evaluation:
    """The evaluation of an item alone."""
    return among(engine, [item], 0)


def among(engine: LlamaEngine, items: Sequence[EvalItem], at: int) -> Evaluation:
    """The evaluation of one of several items."""
    result = engine.evaluate(items, 60.0)[at]
    assert isinstance(result, Evaluation)
    return result


def slack(engine: LlamaEngine) -> float:
    """The largest move that is accepted of this engine."""
    exact = ".cpu-" in engine.plan_id(PlanKind.ISOLATED) and platform.machine() in ("x86_64", "AMD64")
    return 0.0 if exact else SLACK


def move(one: Evaluation, other: Evaluation) -> float:
    """The largest difference in probability or mass, and in features relative to their spread."""
    moves = []
    for name in one.readouts.keys() & other.readouts.keys():
        first, second = one.readouts[name], other.readouts[name]
        moves += [np.abs(np.exp(first.logits) - np.exp(second.logits)).max(), abs(first.mass - second.mass)]
    if one.features is not None and other.features is not None:
        moves.append(np.abs(one.features - other.features).max() / one.features.std())
    return float(max(moves))
