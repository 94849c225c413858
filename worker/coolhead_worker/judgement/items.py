"""One job's part of an engine call: items out, and the numbers of each question back.

Guarantee: pure. Each question is asked for once, by the plan of its basis; where all are answered
by heads there is one item without any text question, whatever their number. Only questions without
a fit are read in several orders: a fitted one is read as it was fitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coolhead.policy import Debias, Policy
from coolhead_worker.engine.protocol import EvalItem, Evaluation, Orders, PinnedSet, PlanKind
from coolhead_worker.judgement.cascade import Basis, Numbers


def items_of(state: str, pinned: PinnedSet, bases: Mapping[str, Basis], policy: Policy) -> list[EvalItem]:
    """What to ask the engine for; two items only when questions differ in their text plan.

    Args:
        state: the text.
        pinned: all questions of the job, in order, and the examples: a pinned plan shows them all.
        bases: of the questions to read.
        policy: says in how many orders questions without a fit are read.
    """
    asked = {kind: [name for name, basis in bases.items() if basis.plan is kind] for kind in PlanKind}
    trunk = bool(asked[PlanKind.TRUNK])
    # isolated first: its questions and the trunk follow the same reading of the state
    texts = [kind for kind in (PlanKind.ISOLATED, PlanKind.PINNED) if asked[kind]]
    if not texts:
        return [EvalItem(state, {}, trunk=True)]
    return [
        EvalItem(
            state,
            {name: pinned.questions[name] for name in asked[kind]},
            trunk=trunk and kind is texts[0],
            pinned=pinned if kind is PlanKind.PINNED else None,
            orders=_orders(asked[kind], bases, policy),
        )
        for kind in texts
    ]


def _orders(names: Sequence[str], bases: Mapping[str, Basis], policy: Policy) -> dict[str, Orders]:
    if policy.debias is Debias.RAW:
        return {}
    wanted = Orders(policy.debias, policy.near_tie)
    return {name: wanted for name in names if bases[name].fitted is None}


def merged(parts: Sequence[Evaluation]) -> Evaluation:
    """What was read for one job, in whichever of its items."""
    return Evaluation(
        readouts={name: readout for part in parts for name, readout in part.readouts.items()},
        features=next((part.features for part in parts if part.features is not None), None),
        tokens=sum(part.tokens for part in parts),
    )


def numbers_of(said: Evaluation, name: str, basis: Basis, plan: str) -> Numbers:
    """The numbers of one question, as its basis wants them.

    Args:
        said: all that was read for the job.
        name: the question's id.
        basis: how it is read.
        plan: the id of the plan.

    Raises:
        KeyError: the question was not read.
        ValueError: the trunk was not read.
    """
    if basis.plan is PlanKind.TRUNK:
        if said.features is None:
            raise ValueError("the trunk was asked for and is missing")
        return Numbers(said.features, None, PlanKind.TRUNK.value, plan)
    readout = said.readouts[name]
    return Numbers(readout.logits, readout.mass, readout.kind, plan, readout.debias)
