"""Prefixes stand one after the other in memory, without holes, and start anew when they are too many."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coolhead_worker.engine.chunk import Home, Tokens
from coolhead_worker.engine.layout import ALIGN, PREFIXES, aligned
from coolhead_worker.engine.prefixes import Placed, Prefixes

CELLS = 256


def prefix(number: int, length: int = 20) -> Tokens:
    return np.full(length, number, dtype=np.int32)


# An operation: a prefix by number (its length follows from it), and the room wanted beside it.
wishes = st.lists(st.tuples(st.integers(1, 7), st.integers(0, 120)), max_size=25)


def length_of(number: int) -> int:
    return 9 * number


@given(wishes)
def test_bookkeeping_agrees_with_a_memory_that_is_written_cell_by_cell(wanted: list[tuple[int, int]]) -> None:
    prefixes, memory = Prefixes(CELLS), []  # (sequence, number) of each cell, None for padding
    for number, need in wanted:
        length = length_of(number)
        placed = prefixes.place(prefix(number, length), need)
        if placed.clear:
            memory = []
        if placed.decode:
            assert len(memory) % ALIGN == 0
            memory += [(placed.home.sequence, number)] * length + [None] * (aligned(length) - length)
        assert memory.count((placed.home.sequence, number)) == placed.home.length == length
        assert {cell[0] for cell in memory if cell} == set(range(len({cell for cell in memory if cell})))
        assert prefixes.used == len(memory)
        assert prefixes.pads == memory.count(None)


@given(wishes)
def test_what_is_wanted_fits_beside_all_prefixes(wanted: list[tuple[int, int]]) -> None:
    prefixes = Prefixes(CELLS)
    for number, need in wanted:
        prefixes.place(prefix(number, length_of(number)), need)
        assert prefixes.used + need <= CELLS


def test_the_first_prefix_begins_in_an_empty_memory() -> None:
    assert Prefixes(CELLS).place(prefix(1), 0) == Placed(Home(0, 20), decode=True, clear=True)


def test_a_known_prefix_is_neither_decoded_nor_cleared() -> None:
    prefixes = Prefixes(CELLS)
    prefixes.place(prefix(1), 0)
    prefixes.place(prefix(2), 0)
    assert prefixes.place(prefix(1), 0) == Placed(Home(0, 20), decode=False, clear=False)
    assert prefixes.place(prefix(2), 0) == Placed(Home(1, 20), decode=False, clear=False)
    assert (prefixes.used, prefixes.pads) == (64, 24)


def test_a_fifth_prefix_gives_up_all_four_and_begins_anew() -> None:
    prefixes = Prefixes(10_000)
    homes = [prefixes.place(prefix(number), 0).home.sequence for number in range(PREFIXES)]
    assert homes == [0, 1, 2, 3]
    assert prefixes.place(prefix(9), 0) == Placed(Home(0, 20), decode=True, clear=True)
    assert prefixes.used == 32
    assert prefixes.place(prefix(0), 0).decode


@pytest.mark.parametrize(("need", "kept"), [(CELLS - 64, True), (CELLS - 63, False)])
def test_prefixes_are_given_up_when_the_work_needs_their_room(need: int, kept: bool) -> None:
    prefixes = Prefixes(CELLS)
    prefixes.place(prefix(1), 0)
    assert prefixes.place(prefix(2), need).clear is not kept
    assert prefixes.used == (64 if kept else 32)


def test_a_known_prefix_begins_anew_when_the_others_leave_no_room_for_the_work() -> None:
    prefixes = Prefixes(CELLS)
    prefixes.place(prefix(1), 0)
    prefixes.place(prefix(2), 0)
    assert prefixes.place(prefix(2), CELLS - 32) == Placed(Home(0, 20), decode=True, clear=True)
    assert prefixes.used == 32


def test_after_forgetting_everything_is_decoded_into_an_empty_memory() -> None:
    prefixes = Prefixes(CELLS)
    prefixes.place(prefix(1), 0)
    prefixes.forget()
    assert (prefixes.used, prefixes.pads) == (0, 0)
    assert prefixes.place(prefix(1), 0) == Placed(Home(0, 20), decode=True, clear=True)


def test_prefixes_of_other_lengths_are_others() -> None:
    prefixes = Prefixes(CELLS)
    prefixes.place(prefix(1, 20), 0)
    assert prefixes.place(prefix(1, 21), 0).decode
