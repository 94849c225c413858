"""Two plans have the same id exactly when they lay out and read alike."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import pytest

from coolhead.questions import Choice, Noul, Question
from coolhead_worker.engine import plan as plan_module
from coolhead_worker.engine.plan import EvaluationPlan, set_digest
from coolhead_worker.engine.protocol import PinnedSet, PlanKind, Shown

PLAN = EvaluationPlan(PlanKind.ISOLATED, "cpu-0.3.36", 512, "0a1b2c3d")
SPAM, HAM = Noul(instructions="Spam?"), Noul(instructions="Ham?")
COLOUR = Choice(criteria=["red", "blue"])
SET = {"a": SPAM, "b": COLOUR}


def set_of(questions: Mapping[str, Question], *examples: Shown) -> str:
    return set_digest(PinnedSet(questions, examples))


OTHERS = {
    "kind": replace(PLAN, kind=PlanKind.TRUNK),
    "pinned": replace(PLAN, kind=PlanKind.PINNED),
    "backend": replace(PLAN, backend="metal-0.3.36"),
    "build": replace(PLAN, backend="cpu-0.3.37"),
    "physical batch": replace(PLAN, ubatch=256),
    "words": replace(PLAN, dialect="0a1b2c3e"),
    "reading": replace(PLAN, reading="84426eb1"),
    "set": replace(PLAN, pinned="12345678"),
}


def test_an_id_reads_like_this() -> None:
    version = plan_module.VERSIONS[PlanKind.ISOLATED]
    assert PLAN.id == f"isolated-v{version}.a16t4.ub512.fa0.f16.cpu-0.3.36.0a1b2c3d.text"


def test_a_plan_of_pinned_questions_names_their_set_at_the_end() -> None:
    pinned = replace(PLAN, kind=PlanKind.PINNED, pinned=set_of(SET))
    assert pinned.id.endswith(f".text.s{set_of(SET)}")


@pytest.mark.parametrize("what", OTHERS)
def test_whatever_can_move_a_number_is_in_the_id(what: str) -> None:
    assert OTHERS[what].id != PLAN.id


def test_all_these_plans_differ_from_each_other() -> None:
    assert len({plan.id for plan in OTHERS.values()}) == len(OTHERS)


@pytest.mark.parametrize(("name", "other"), [("ALIGN", 32), ("TAIL", 8)])
def test_the_grid_of_the_layout_is_in_the_id(name: str, other: int, monkeypatch: pytest.MonkeyPatch) -> None:
    before = PLAN.id
    monkeypatch.setattr(plan_module, name, other)
    assert PLAN.id != before


@pytest.mark.parametrize("kind", PlanKind)
def test_a_new_version_of_a_kind_is_another_id(kind: PlanKind, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = replace(PLAN, kind=kind)
    before = plan.id
    monkeypatch.setitem(plan_module.VERSIONS, kind, plan_module.VERSIONS[kind] + 1)
    assert plan.id != before


def test_equal_plans_have_equal_ids() -> None:
    assert replace(PLAN).id == PLAN.id


@pytest.mark.parametrize(
    "other",
    [
        {"b": COLOUR, "a": SPAM},
        {"a": SPAM},
        {"a": SPAM, "c": COLOUR},
        {"a": HAM, "b": COLOUR},
        {"a": COLOUR, "b": SPAM},
        {"a": SPAM, "b": Choice(criteria=["blue", "red"])},
        {},
    ],
    ids=["order", "fewer", "id", "text", "swapped", "options", "none"],
)
def test_a_set_is_its_ids_its_questions_and_their_order(other: dict) -> None:
    assert set_of(other) != set_of(SET)


def test_the_same_set_has_the_same_digest_in_any_mapping() -> None:
    again = {"a": Noul(instructions="Spam?"), "b": Choice(criteria={"red": None, "blue": None})}
    assert set_of(again) == set_of(SET)
    assert re.fullmatch("[0-9a-f]{8}", set_of(SET))


HI, HO = Shown("hi", {"a": 0, "b": 1}), Shown("ho", {"a": 1})


@pytest.mark.parametrize(
    "examples",
    [(), (HI,), (HO, HI), (HI, HI), (HI, Shown("ho", {"a": 0})), (Shown("hi", {"b": 1, "a": 0}), HO)],
    ids=["none", "fewer", "order", "text", "answer", "order of answers"],
)
def test_another_example_is_another_set(examples: tuple[Shown, ...]) -> None:
    assert set_of(SET, *examples) != set_of(SET, HI, HO)
