"""Whether a model stays in memory: tables, and what holds for every history of readings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coolhead_worker.admission.conditions import Memory
from coolhead_worker.engine.residency import LONGEST, Move, decide, next_hold, normal_since

N, W, C, U = Memory.NORMAL, Memory.WARN, Memory.CRITICAL, Memory.UNKNOWN


@pytest.mark.parametrize(
    ("memory", "loaded", "since", "move"),
    [
        (N, True, 0.0, Move.KEEP),
        (W, True, None, Move.KEEP),
        (U, True, None, Move.KEEP),
        (C, True, None, Move.UNLOAD),
        (C, False, None, Move.KEEP),
        (W, False, None, Move.KEEP),
        (U, False, None, Move.KEEP),
        (N, False, None, Move.KEEP),
        (N, False, 40.1, Move.KEEP),  # 59.9 s of 60
        (N, False, 40.0, Move.LOAD),
    ],
)
def test_a_reading_asks_for_a_move(memory: Memory, loaded: bool, since: float | None, move: Move) -> None:
    assert decide(memory, loaded=loaded, normal_since=since, now=100.0, hold_s=60.0) is move


Story = list[tuple[float, Memory]]
STORIES = st.lists(st.tuples(st.floats(0.1, 50.0), st.sampled_from(Memory)), min_size=1, max_size=40)


def played(story: Story, hold_s: float = 60.0) -> list[tuple[float, Memory, Move, bool]]:
    """(time, reading, move, loaded before it) of each step."""
    now, since, loaded = 0.0, None, True
    seen: list[tuple[float, Memory, Move, bool]] = []
    for step, memory in story:
        now += step
        since = normal_since(memory, since, now)
        move = decide(memory, loaded=loaded, normal_since=since, now=now, hold_s=hold_s)
        seen.append((now, memory, move, loaded))
        loaded = {Move.UNLOAD: False, Move.LOAD: True, Move.KEEP: loaded}[move]
    return seen


@given(STORIES)
def test_critical_gives_a_model_up_with_that_very_reading_and_nothing_else_does(story: Story) -> None:
    for _, memory, move, loaded in played(story):
        assert (move is Move.UNLOAD) == (loaded and memory is C)


@given(STORIES)
def test_a_model_comes_back_only_after_an_unbroken_hold_of_normal_memory(story: Story) -> None:
    seen = played(story)
    for at, (now, _, move, loaded) in enumerate(seen):
        if move is Move.LOAD:
            assert not loaded
            spell = [memory for then, memory, _, _ in seen[: at + 1] if then >= now - 60.0]
            assert set(spell) == {N}
            assert seen[0][0] <= now - 60.0


@given(STORIES)
def test_after_a_hold_of_normal_memory_the_model_is_there(story: Story) -> None:
    end = [(30.0, N)] * 4  # the first reading of the spell, then 90 s more
    assert played(story + end)[-1][3] or played(story + end)[-1][2] is Move.LOAD


@pytest.mark.parametrize(
    ("hold", "resident", "then"),
    [
        (60.0, None, 60.0),  # never been away
        (60.0, 119.0, 120.0),  # less than two hold-downs: waits twice as long
        (60.0, 121.0, 60.0),
        (480.0, 10.0, 960.0),
        (960.0, 10.0, 960.0),  # 16 * 60 at most
        (960.0, 10_000.0, 60.0),  # it had found room: begins anew
    ],
)
def test_a_model_that_goes_again_soon_waits_longer(hold: float, resident: float | None, then: float) -> None:
    assert next_hold(hold, 60.0, resident) == then


@given(st.floats(0.1, 1e4), st.lists(st.none() | st.floats(0, 1e6), max_size=20))
def test_a_hold_is_never_shorter_than_asked_nor_longer_than_the_longest(
    base: float, history: list[float | None]
) -> None:
    hold = base
    for resident in history:
        hold = next_hold(hold, base, resident)
        assert base <= hold <= LONGEST * base
