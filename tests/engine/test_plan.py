"""The layout keeps what a row sees at the same place whatever rides along."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coolhead_worker.engine.plan import (
    ALIGN,
    FIRST_SEQUENCE,
    OUTPUTS,
    PAD_SEQUENCE,
    PREFIX_SEQUENCE,
    Chunk,
    Limits,
    Trunk,
    aligned,
    cost,
    lay_out,
    plan_id,
    prefix_chunk,
)

LIMITS = Limits(cells=512, branches=6, ubatch=64)
PREFIX = 37

tokens = st.builds(
    lambda start, count: np.arange(start, start + count, dtype=np.int32),
    st.integers(0, 900),
    st.integers(1, 60),
)
states = st.one_of(tokens, st.just(np.zeros(0, np.int32)))
trunks = st.lists(
    st.builds(Trunk, states, st.lists(tokens, max_size=9).map(tuple)),
    max_size=6,
)


def seen_by(chunk: Chunk, row: int) -> list[tuple[int, int, int]]:
    """(cell mod 16, position, token) of all that row `row` of the call sees, itself included."""
    sequence = chunk.first[row]
    inside = (chunk.first <= sequence) & (sequence < chunk.first + chunk.count)
    cells = np.flatnonzero(inside & (chunk.positions <= chunk.positions[row]))
    return [(int(i % ALIGN), int(chunk.positions[i]), int(chunk.tokens[i])) for i in cells]


@given(trunks)
def test_every_branch_is_read_exactly_once_and_in_order(items: list[Trunk]) -> None:
    rows = [(row.item, row.branch) for chunk in lay_out(items, PREFIX, LIMITS) for row in chunk.rows]
    assert rows == [(i, b) for i, item in enumerate(items) for b in range(len(item.branches))]


@given(trunks)
def test_a_branch_sees_its_state_and_itself_and_no_neighbour(items: list[Trunk]) -> None:
    for chunk in lay_out(items, PREFIX, LIMITS):
        for row in chunk.rows:
            item = items[row.item]
            expected = [*item.state, *item.branches[row.branch]]
            seen = seen_by(chunk, row.at)
            assert [token for _, _, token in seen] == expected
            assert [position for _, position, _ in seen] == list(range(PREFIX, PREFIX + len(expected)))


@given(trunks)
def test_what_a_branch_sees_does_not_depend_on_neighbours(items: list[Trunk]) -> None:
    for chunk in lay_out(items, PREFIX, LIMITS):
        for row in chunk.rows:
            item = items[row.item]
            alone = lay_out([Trunk(item.state, (item.branches[row.branch],))], PREFIX, LIMITS)[0]
            assert seen_by(chunk, row.at) == seen_by(alone, alone.rows[0].at)


@given(trunks)
def test_calls_stay_within_their_limits(items: list[Trunk]) -> None:
    for chunk in lay_out(items, PREFIX, LIMITS):
        assert len(chunk.tokens) <= LIMITS.cells
        assert 1 <= chunk.sequences <= LIMITS.branches
        assert len(chunk.tokens) % ALIGN == 0
        highest = (chunk.first + chunk.count).max()
        assert highest == FIRST_SEQUENCE + chunk.sequences


@given(trunks)
def test_physical_batches_have_outputs_in_fours(items: list[Trunk]) -> None:
    for chunk in lay_out(items, PREFIX, LIMITS):
        assert all(chunk.outputs[row.at] for row in chunk.rows)
        for start in range(0, len(chunk.tokens), LIMITS.ubatch):
            assert chunk.outputs[start : start + LIMITS.ubatch].sum() % OUTPUTS == 0


@given(trunks)
def test_padding_continues_where_that_of_the_prefix_ended(items: list[Trunk]) -> None:
    start = aligned(PREFIX) - PREFIX
    for chunk in lay_out(items, PREFIX, LIMITS):
        pads = chunk.positions[chunk.first == PAD_SEQUENCE]
        assert pads.tolist() == list(range(start, start + len(pads)))


@given(trunks)
def test_the_same_items_are_laid_out_the_same_way(items: list[Trunk]) -> None:
    one, other = lay_out(items, PREFIX, LIMITS), lay_out(items, PREFIX, LIMITS)
    assert [chunk.tokens.tolist() for chunk in one] == [chunk.tokens.tolist() for chunk in other]
    assert [chunk.rows for chunk in one] == [chunk.rows for chunk in other]


def test_items_that_fit_share_one_call() -> None:
    item = Trunk(np.arange(20, dtype=np.int32), (np.arange(5, dtype=np.int32),) * 2)
    assert cost(20, [5, 5]) == 64
    assert [chunk.sequences for chunk in lay_out([item] * 4, PREFIX, LIMITS)] == [6, 2]


def test_an_item_with_too_many_branches_repeats_its_state_in_the_next_call() -> None:
    item = Trunk(np.arange(20, dtype=np.int32), (np.arange(5, dtype=np.int32),) * 8)
    first, second = lay_out([item], PREFIX, LIMITS)
    assert (first.sequences, second.sequences) == (6, 2)
    assert second.tokens[:20].tolist() == list(range(20))


def test_nothing_asked_is_no_call() -> None:
    assert lay_out([Trunk(np.arange(20, dtype=np.int32), ())], PREFIX, LIMITS) == []


def test_the_prefix_fills_whole_groups_of_cells() -> None:
    chunk = prefix_chunk(np.arange(PREFIX, dtype=np.int32))
    assert len(chunk.tokens) == 48
    assert chunk.first.tolist() == [PREFIX_SEQUENCE] * PREFIX + [PAD_SEQUENCE] * 11
    assert not chunk.outputs.any()


@pytest.mark.parametrize(
    "other",
    [("metal-0.3.36", 512, "aaaa0000"), ("cpu-0.3.36", 256, "aaaa0000"), ("cpu-0.3.36", 512, "bbbb0000")],
)
def test_the_plan_id_names_what_can_move_a_number(other: tuple[str, int, str]) -> None:
    assert plan_id("cpu-0.3.36", 512, "aaaa0000") == "isolated-v1.a16.ub512.fa0.f16.cpu-0.3.36.aaaa0000"
    assert plan_id(*other) != plan_id("cpu-0.3.36", 512, "aaaa0000")
