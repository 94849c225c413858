"""The cells of the table: which there are, which go together, and what is timed of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coolhead.errors import StateTooLong
from coolhead_worker.bench.measuring import Done
from coolhead_worker.bench.twins import bare_name, bare_variants, json_name
from coolhead_worker.bench.variants import USUAL, Case, engine_variant, grid, grouped, item_for, random_heads
from coolhead_worker.bench.workload import WORDS, asked
from coolhead_worker.engine.fake import FakeEngine
from coolhead_worker.engine.protocol import PinnedSet, PlanKind

cases = st.builds(
    Case, st.sampled_from(PlanKind), st.integers(1, 10), st.integers(1, 8), st.sampled_from([10, WORDS, 400])
)


@pytest.mark.parametrize(
    ("case", "name"),
    [
        (Case(PlanKind.PINNED, 3), "pinned 3q x1"),
        (Case(PlanKind.TRUNK, 10, 8), "trunk 10q x8"),
        (Case(PlanKind.ISOLATED, 3, 1, 400), "isolated 3q x1 400w"),
    ],
)
def test_a_name_tells_the_plan_the_questions_the_batch_and_an_unusual_length(case: Case, name: str) -> None:
    assert case.name == name


@given(case=cases, number=st.integers(-50, 50))
def test_states_are_new_for_every_run_and_the_same_for_the_same_run(case: Case, number: int) -> None:
    states = case.states(number)
    assert states == case.states(number)
    assert len(set(states)) == case.batch
    assert not set(states) & set(case.states(number + 1))
    assert {len(state.split()) for state in states} == {case.words}


@pytest.mark.parametrize(
    ("kind", "asks", "trunk", "pinned"),
    [(PlanKind.ISOLATED, 3, False, 0), (PlanKind.PINNED, 3, False, 3), (PlanKind.TRUNK, 0, True, 0)],
)
def test_an_item_asks_by_text_or_of_the_trunk(kind: PlanKind, asks: int, trunk: bool, pinned: int) -> None:
    item = item_for(kind, "x", asked(3))
    shown = item.pinned.questions if item.pinned else {}
    assert (len(item.questions), item.trunk, len(shown)) == (asks, trunk, pinned)


@pytest.mark.parametrize(("quick", "batches"), [(True, {1, 4}), (False, {1, 2, 4, 8})])
def test_the_grid_has_every_plan_with_one_three_and_ten_questions_and_batches(
    quick: bool, batches: set[int]
) -> None:
    made = grid(quick)
    assert len(set(made)) == len(made)
    for kind in PlanKind:
        own = [case for case in made if case.kind is kind]
        assert {case.questions for case in own if case.batch == 1} == {1, 3, 10}
        assert {case.batch for case in own if case.questions == USUAL} == batches


@given(st.lists(cases, unique=True))
def test_groups_keep_every_case_and_hold_one_pinned_set_each_at_most(made: list[Case]) -> None:
    groups = grouped(made)
    assert sorted(case.name for group in groups for case in group) == sorted(case.name for case in made)
    for group in groups:
        assert group
        assert len({case.questions for case in group if case.kind is PlanKind.PINNED}) <= 1
        assert len({case.questions for case in group if case.kind is not PlanKind.TRUNK}) <= 1
    usual = [case for case in made if case.kind is PlanKind.TRUNK or case.questions == USUAL]
    assert set(groups[0] if usual else []) == set(usual)


def test_an_engine_variant_reads_its_states_and_counts_their_tokens() -> None:
    engine, case = FakeEngine(), Case(PlanKind.PINNED, 3, batch=2)
    variant = engine_variant(engine, case, lambda: 70 * len(engine.calls), repeats=5)
    assert (variant.name, variant.jobs, variant.repeats) == (case.name, 2, 5)
    run = variant.prepare(4)
    assert engine.calls == []
    assert run() == Done(70)
    assert [item.state for item in engine.calls[0]] == case.states(4)
    assert all(item.pinned == PinnedSet(asked(3)) for item in engine.calls[0])


def test_a_trunk_variant_asks_as_many_heads_as_it_has_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    from coolhead_worker.judgement.calibration import Head

    asked_of: list[int] = []
    plain = Head.probabilities

    def counted(self: Head, x: object) -> object:
        asked_of.append(len(self.bias))
        return plain(self, x)  # type: ignore[arg-type]  # handed on as it came

    monkeypatch.setattr(Head, "probabilities", counted)
    variant = engine_variant(FakeEngine(), Case(PlanKind.TRUNK, 10, batch=2), lambda: 0)
    variant.prepare(0)()
    assert asked_of == [len(question.labels) for question in asked(10).values()] * 2


def test_a_state_that_is_too_long_for_the_model_ends_the_bench() -> None:
    engine = FakeEngine(max_state_tokens=50)
    with pytest.raises(StateTooLong):
        engine_variant(engine, Case(PlanKind.TRUNK, 1), lambda: 0).prepare(0)()


def test_random_heads_give_a_probability_for_each_label_and_are_the_same_each_time() -> None:
    import numpy as np

    questions = list(asked(3).values())
    features = np.linspace(-1, 1, 8)
    one, other = ([head.probabilities(features) for head in random_heads(8, questions)] for _ in "ab")
    assert [len(row) for row in one] == [2, 5, 10]
    assert all(row.sum() == pytest.approx(1) for row in one)
    assert all((a == b).all() for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("case", "name"),
    [
        (Case(PlanKind.PINNED, 3), "bare pinned 3q x1"),
        (Case(PlanKind.PINNED, 3, 8), "bare pinned 3q x1"),
        (Case(PlanKind.TRUNK, 10), "bare trunk 1q x1"),
        (Case(PlanKind.TRUNK, 1), "bare trunk 1q x1"),
    ],
)
def test_a_bare_twin_is_one_job_and_the_same_for_any_number_of_heads(case: Case, name: str) -> None:
    assert bare_name(case) == name


class FakeBare:
    """Stands for bare calls: a token is a word."""

    def __init__(self) -> None:
        self.made: list[int] = []

    def shape(self, item: object) -> FakeShape:
        return FakeShape(1000)

    def length(self, text: str) -> int:
        return len(text)

    def prepared(self, shape: FakeShape) -> Callable[[], Done]:
        return lambda: Done(shape.new)


class FakeShape:
    def __init__(self, new: int) -> None:
        self.new = new

    def longer(self, tokens: int) -> FakeShape:
        return FakeShape(self.new + tokens)


def test_bare_twins_are_made_once_for_single_jobs_of_usual_length() -> None:
    some = [
        Case(PlanKind.PINNED, 3), Case(PlanKind.PINNED, 3, 8), Case(PlanKind.ISOLATED, 3, 1, 400),
        Case(PlanKind.TRUNK, 1), Case(PlanKind.TRUNK, 10),
    ]  # fmt: skip
    twins = bare_variants(FakeBare(), some, repeats=3)  # type: ignore[arg-type]  # stands for it
    assert [(twin.name, twin.repeats) for twin in twins] == [
        ("bare pinned 3q x1", 3),
        ("bare trunk 1q x1", 3),
    ]


@given(number=st.integers(0, 99))
def test_a_bare_twin_has_as_many_tokens_as_its_case_in_the_same_run(number: int) -> None:
    case = Case(PlanKind.PINNED, 3)
    (twin,) = bare_variants(FakeBare(), [case])  # type: ignore[arg-type]  # stands for it
    lengths = [len(case.states(at)[0]) for at in (0, number)]
    assert twin.prepare(number)() == Done(1000 + lengths[1] - lengths[0])


def test_names_of_generations_tell_where_the_questions_stand() -> None:
    assert (json_name(3), json_name(3, questions_first=True)) == ("json 3q", "json 3q questions first")
