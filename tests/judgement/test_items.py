"""What an engine is asked for one job, for every mix of plans."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coolhead.policy import Debias, Policy
from coolhead.questions import Noul
from coolhead_worker.engine.protocol import Evaluation, Orders, PinnedSet, PlanKind, Readout, Shown
from coolhead_worker.judgement.calibration import PLACEHOLDER, Head, Raw
from coolhead_worker.judgement.cascade import Basis
from coolhead_worker.judgement.fitted import Certified, FittedQuestion
from coolhead_worker.judgement.items import items_of, merged, numbers_of

HEAD = Head(np.zeros((2, 3)), np.zeros(2), np.zeros(3), np.ones(3))
QUESTIONS = {name: Noul(instructions=f"{name}?") for name in "abcdef"}
SET = PinnedSet(QUESTIONS, (Shown("hi", {"a": 0}),))


def unfitted(plan: PlanKind) -> Basis:
    return Basis(PLACEHOLDER, None, plan)


def fitted(plan: PlanKind) -> Basis:
    calibrator = HEAD if plan is PlanKind.TRUNK else Raw()
    pinned = "set-1" if plan is PlanKind.PINNED else None
    entry = FittedQuestion("f1", calibrator, Certified(), None, pinned)
    return Basis(calibrator, entry, entry.plan)


def items(bases: dict[str, Basis], **policy):
    return items_of("s", SET, bases, Policy(**policy))


def test_heads_alone_make_one_item_without_questions_whatever_their_number():
    one, many = (
        items(dict.fromkeys(names, fitted(PlanKind.TRUNK)), debias=Debias.ROTATED)
        for names in ("a", "abcdef")
    )
    assert one == many
    (item,) = one
    assert (item.trunk, item.questions, item.pinned, item.orders) == (True, {}, None, {})


@pytest.mark.parametrize("plan", [PlanKind.ISOLATED, PlanKind.PINNED])
def test_heads_ride_with_questions_of_one_text_plan(plan):
    (item,) = items({"a": fitted(PlanKind.TRUNK), "c": unfitted(plan), "b": fitted(plan)})
    assert item.trunk
    assert list(item.questions) == ["c", "b"]
    assert item.pinned == (SET if plan is PlanKind.PINNED else None)


def test_two_text_plans_make_two_items_and_the_trunk_rides_with_the_isolated_one():
    alone, pinned = items(
        {"a": unfitted(PlanKind.PINNED), "b": fitted(PlanKind.ISOLATED), "c": fitted(PlanKind.TRUNK)}
    )
    assert (list(alone.questions), alone.pinned, alone.trunk) == (["b"], None, True)
    assert (list(pinned.questions), list(pinned.pinned.questions), pinned.trunk) == (
        ["a"],
        list(QUESTIONS),
        False,
    )


kinds = st.sampled_from(PlanKind)
text_kinds = st.sampled_from([PlanKind.ISOLATED, PlanKind.PINNED])
any_basis = st.builds(fitted, kinds) | st.builds(unfitted, text_kinds)
any_bases = st.dictionaries(st.sampled_from(list(QUESTIONS)), any_basis, min_size=1)


@given(any_bases, st.sampled_from(Debias), st.floats(0, 1))
def test_every_question_is_asked_once_by_its_plan_and_only_what_is_not_fitted_in_other_orders(
    bases, debias, near_tie
):
    asked = items(bases, debias=debias, near_tie=near_tie)
    assert 1 <= len(asked) <= 2
    by_text = [name for item in asked for name in item.questions]
    assert len(by_text) == len(set(by_text))
    assert set(by_text) == {name for name, basis in bases.items() if basis.plan is not PlanKind.TRUNK}
    assert sum(item.trunk for item in asked) == any(b.plan is PlanKind.TRUNK for b in bases.values())
    for item in asked:
        assert item.pinned in (None, SET)
        plan = PlanKind.ISOLATED if item.pinned is None else PlanKind.PINNED
        assert {bases[name].plan for name in item.questions} <= {plan}
        wanted = (
            {}
            if debias is Debias.RAW
            else {name: Orders(debias, near_tie) for name in item.questions if bases[name].fitted is None}
        )
        assert item.orders == wanted


def readout(debias: Debias = Debias.RAW) -> Readout:
    return Readout(np.log([0.25, 0.75]), 0.5, "letters", debias)


def test_what_two_items_gave_is_one_jobs_reading():
    features = np.arange(3.0)
    whole = merged(
        [Evaluation({"b": readout()}, features, 10), Evaluation({"a": readout(Debias.REVERSED)}, None, 30)]
    )
    assert whole.tokens == 40
    assert whole.features is features
    said = numbers_of(whole, "a", unfitted(PlanKind.PINNED), "pinned-v0")
    assert (said.mass, said.kind, said.plan, said.debias) == (0.5, "letters", "pinned-v0", Debias.REVERSED)
    by_head = numbers_of(whole, "c", fitted(PlanKind.TRUNK), "trunk-v0")
    assert by_head.x is features
    assert (by_head.mass, by_head.kind, by_head.plan, by_head.debias) == (None, "trunk", "trunk-v0", "raw")


def test_what_was_not_read_is_missed_by_name():
    nothing = Evaluation({}, None, 1)
    with pytest.raises(KeyError, match="a"):
        numbers_of(nothing, "a", unfitted(PlanKind.ISOLATED), "p")
    with pytest.raises(ValueError, match="trunk was asked for"):
        numbers_of(nothing, "a", fitted(PlanKind.TRUNK), "p")
