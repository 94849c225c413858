"""Sheets are read on one memory: prefixes once, near ties on top, and nothing left after a failure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coolhead.errors import DecodeFailed, NoRoom, NotFinite
from coolhead_worker.engine.chunk import NOTHING, Branch, Limits, Tokens
from coolhead_worker.engine.compiler import Prepared
from coolhead_worker.engine.features import features_of
from coolhead_worker.engine.layout import ALIGN, FIRST_SEQUENCE, PAD_SEQUENCE, aligned
from coolhead_worker.engine.reader import Reader
from coolhead_worker.engine.readout import Labels, Readout, read
from coolhead_worker.engine.sheets import Place, Sheet
from tests.engine.memory import N_VOCAB, WIDTH, FakeMemory, Seen, layers, numbers

CELLS = 512
FORWARD, BACKWARD = (0, 1, 2), (2, 1, 0)
few = settings(max_examples=40)  # each is a memory written cell by cell
LETTERS = Labels("letters", ("A", "B", "C"), (1, 2, 3), spaced=False)
STRINGS = Labels("strings", ("a", "b", "c"), (1, 1, 4), spaced=False, paths=((1, 2), (1, 3), (4,)))


def run(start: int, count: int) -> Tokens:
    return np.arange(start, start + count, dtype=np.int32)


PREFIX, PROBE = run(500, 21), run(800, 6)


def question(start: int, length: int, labels: Labels = LETTERS) -> Prepared:
    leaves = tuple(np.array(leaf, dtype=np.int32) for leaf in labels.leaves)
    return Prepared(Branch(run(start, length), (length - 1,), leaves), labels)


SHORT, LONG, ALIKE = question(1000, 7), question(2000, 30), question(3000, 9, STRINGS)
AGAIN = question(4000, 8)  # another order of SHORT


def reader(memory: FakeMemory, pack: int = 256, cells: int = CELLS, sequences: int = 20) -> Reader:
    return Reader(memory, Limits(cells, sequences, 64, pack))


def sheet(start: int, length: int, *asked: Prepared, prefix: Tokens = PREFIX, probe: bool = False) -> Sheet:
    made = Sheet(prefix, run(start, length))
    for one in asked:
        made.want(str(int(one.branch.stem[0])), FORWARD, one)
    made.probe = PROBE if probe else NOTHING
    return made


def nothing_more(_: Sheet) -> Sequence[Place]:
    return ()


def span(tokens: Tokens, position: int, cell: int) -> Seen:
    """Tokens one after the other from a position and a cell on."""
    return [((cell + i) % ALIGN, position + i, int(token)) for i, token in enumerate(tokens)]


def before(made: Sheet) -> Seen:
    """Prefix and state, where they stand when nothing else is there."""
    return span(made.prefix, 0, 0) + span(made.state, len(made.prefix), 0)


def expected(made: Sheet, one: Prepared) -> Readout:
    """What a question on a boundary reads when nothing else is there."""
    seen = before(made)
    seen += span(one.branch.stem, len(seen), 0)
    rows = [seen] + [
        seen + span(leaf[: at + 1], len(seen), 0) for leaf in one.branch.leaves for at in range(len(leaf))
    ]
    logits = [numbers(row, N_VOCAB) for row in rows]
    return read(logits, one.labels)


def felt(made: Sheet) -> np.ndarray:
    """The features of a state when nothing else is there."""
    seen = before(made) + span(PROBE, len(made.prefix) + len(made.state), len(made.state))
    states = [layers(seen[:size])[0] for size in range(len(made.prefix) + 1, len(seen) - len(PROBE) + 1)]
    return features_of(np.array(states).reshape(-1, WIDTH), layers(seen)[1])


def agree(one: Readout, other: Readout) -> bool:
    return np.array_equal(one.logits, other.logits) and one.mass == other.mass


def right(made: Sheet, *asked: Prepared) -> bool:
    """Whether a sheet has heard what each question says when it is asked alone."""
    return all(
        agree(made.heard[Place(tight=False, index=at)], expected(made, one)) for at, one in enumerate(asked)
    )


def no_more_than_prefixes(memory: FakeMemory) -> bool:
    return not memory.in_doubt and all(sequence < FIRST_SEQUENCE for sequence in memory.held())


shapes = st.lists(
    st.tuples(
        st.integers(0, 40),
        st.lists(st.sampled_from([SHORT, LONG, ALIKE]), unique_by=id, max_size=3),
        st.booleans(),
    ),
    min_size=1,
    max_size=4,
)


@few
@given(shapes, st.sampled_from([0, 64, 256]), st.sampled_from([4, 20]))
def test_whatever_rides_along_each_question_is_heard_as_if_alone(shape, pack: int, sequences: int) -> None:
    made = [
        sheet(6000 + 100 * at, length, *asked, probe=probe) for at, (length, asked, probe) in enumerate(shape)
    ]
    memory = FakeMemory(CELLS)
    reader(memory, pack, sequences=sequences).read(made, nothing_more)
    for one, (_, asked, probe) in zip(made, shape, strict=True):
        assert right(one, *asked)
        assert (one.features is not None) is probe
        assert not probe or np.array_equal(one.features, felt(one))
    assert no_more_than_prefixes(memory)


def test_pinned_questions_are_heard_one_after_the_other_behind_their_state() -> None:
    made = Sheet(PREFIX, run(6000, 10))
    places = made.want_pinned([SHORT, LONG])
    reader(FakeMemory(CELLS)).read([made, sheet(7000, 20, SHORT)], nothing_more)
    start = before(made)
    for place, one, cell in zip(places, (SHORT, LONG), (10, 17), strict=True):
        seen = start + span(one.branch.stem, len(start), cell)
        assert agree(made.heard[place], read([numbers(seen, N_VOCAB)], LETTERS))


def test_a_prefix_is_decoded_once_and_kept() -> None:
    memory = FakeMemory(CELLS)
    reading = reader(memory)
    for start in (6000, 6100):
        made = sheet(start, 10, SHORT)
        reading.read([made], nothing_more)
        assert right(made, SHORT)
    assert [len(chunk.rows) for chunk in memory.calls] == [0, 1, 1]
    assert memory.clears == 1


def test_a_cached_prefix_reads_like_a_cold_one_also_when_others_drove_it_out() -> None:
    memory = FakeMemory(CELLS)
    reading = reader(memory)
    prefixes = [run(500 + 40 * at, 20 + at) for at in range(5)]
    for prefix in (*prefixes, prefixes[0], prefixes[4], prefixes[0]):
        made = sheet(6000, 10, SHORT, LONG, prefix=prefix)
        reading.read([made], nothing_more)
        assert right(made, SHORT, LONG)
    assert [len(chunk.rows) for chunk in memory.calls] == [*[0, 2] * 6, 2, 2]
    assert memory.clears == 2


def test_prefixes_make_room_for_a_long_state() -> None:
    memory = FakeMemory(256)
    reading = reader(memory, cells=256)
    for start, length, prefix in ((6000, 10, PREFIX), (6100, 170, run(700, 40)), (6300, 10, PREFIX)):
        made = sheet(start, length, SHORT, prefix=prefix)
        reading.read([made], nothing_more)
        assert right(made, SHORT)
    assert memory.clears == 2


def test_without_a_prefix_a_state_begins_the_memory() -> None:
    memory = FakeMemory(CELLS)
    made = sheet(6000, 10, SHORT, prefix=NOTHING)
    reader(memory).read([made], nothing_more)
    assert right(made, SHORT)
    assert [len(chunk.rows) for chunk in memory.calls] == [1]


def test_texts_that_do_not_fit_together_are_read_alone_on_a_clear_memory() -> None:
    memory = FakeMemory(CELLS, effects={2: NoRoom("no")})
    made = [sheet(6000, 10, SHORT, LONG), sheet(6100, 40, SHORT), sheet(6200, 5, ALIKE)]
    reader(memory).read(made, nothing_more)
    assert [sorted(chunk.places) for chunk in memory.calls] == [[], [0, 1, 2], [], [0], [1], [2]]
    assert memory.clears == 2
    assert right(made[0], SHORT, LONG)
    assert right(made[1], SHORT)
    assert right(made[2], ALIKE)


def test_limits_that_promise_more_than_the_memory_has_end_in_reading_alone() -> None:
    memory = FakeMemory(160)
    made = [sheet(6000, 60, SHORT), sheet(6100, 60, SHORT)]
    reader(memory).read(made, nothing_more)
    assert [len(chunk.places) for chunk in memory.calls] == [0, 2, 0, 1, 1]
    assert all(right(one, SHORT) for one in made)


@pytest.mark.parametrize("prefix", [PREFIX, NOTHING], ids=["prefix", "no prefix"])
@pytest.mark.parametrize(
    ("effects", "error"),
    [
        ({1: DecodeFailed("boom")}, DecodeFailed),
        ({2: DecodeFailed("boom")}, DecodeFailed),
        ({2: NotFinite("nan")}, NotFinite),
        ({2: KeyboardInterrupt()}, KeyboardInterrupt),
        ({1: NoRoom("no"), 2: NoRoom("no")}, NoRoom),
        ({2: NoRoom("no"), 3: NoRoom("no"), 4: NoRoom("no")}, NoRoom),
    ],
    ids=["at once", "late", "not finite", "interrupted", "no room at once", "no room twice"],
)
def test_after_a_failure_the_next_read_begins_in_an_empty_memory(
    prefix: Tokens, effects: dict[int, Exception], error: type[Exception]
) -> None:
    memory = FakeMemory(CELLS, effects=effects)
    reading = reader(memory, pack=0)
    two = [sheet(6000, 10, SHORT, prefix=prefix), sheet(6100, 10, SHORT, prefix=prefix)]
    with pytest.raises(error):
        reading.read(two, nothing_more)
    made = sheet(6000, 10, SHORT, prefix=prefix)
    memory.effects = {}
    reading.read([made], nothing_more)
    assert right(made, SHORT)
    assert no_more_than_prefixes(memory)


class Once:
    """Wants more of some sheets, by the first token of their state, once each."""

    def __init__(self, wanted: dict[int, Prepared]) -> None:
        self.wanted = dict(wanted)
        self.asked: list[int] = []

    def __call__(self, made: Sheet) -> Sequence[Place]:
        start = int(made.state[0])
        self.asked.append(start)
        one = self.wanted.pop(start, None)
        return () if one is None else [made.want(f"late {start}", BACKWARD, one)]


def opened(start: int, length: int, *asked: Prepared) -> Sheet:
    made = sheet(start, length, *asked)
    made.open = True
    return made


def late(made: Sheet) -> Readout:
    return made.heard[Place(tight=False, index=len(made.free) - 1)]


def test_other_orders_of_near_ties_are_read_on_top_of_the_states_in_memory() -> None:
    memory = FakeMemory(CELLS)
    made = [opened(6000, 10, SHORT), opened(6100, 25, SHORT, LONG), opened(6200, 3, SHORT)]
    more = Once({6000: AGAIN, 6100: ALIKE})
    reader(memory).read(made, more)
    _prefix, together, follow_up = memory.calls
    assert len(together.places) == 3
    assert len(follow_up.places) == 2
    states = np.concatenate([one.state for one in made])
    assert not np.isin(follow_up.tokens, states).any()
    assert agree(late(made[0]), expected(made[0], AGAIN))
    assert agree(late(made[1]), expected(made[1], ALIKE))
    assert right(made[2], SHORT)
    assert sorted(more.asked) == [6000, 6100, 6200]
    assert no_more_than_prefixes(memory)


def test_a_state_in_memory_is_read_the_same_way_as_one_that_is_read_again() -> None:
    shown = []
    for cells in (CELLS, 128):
        made = opened(6000, 50, SHORT)
        memory = FakeMemory(cells)
        reader(memory, cells=cells).read([made], Once({6000: LONG}))
        shown.append(late(made))
        state = np.isin(memory.calls[-1].tokens, made.state).sum()
        assert state == (0 if cells == CELLS else 50)
        assert no_more_than_prefixes(memory)
    assert agree(*shown)
    assert agree(shown[0], expected(made, LONG))


@pytest.mark.parametrize(("sequences", "again"), [(2, False), (1, True)])
def test_branches_that_find_no_sequence_on_top_are_read_with_their_state_again(
    sequences: int, again: bool
) -> None:
    made = opened(6000, 10, SHORT)
    memory = FakeMemory(CELLS)
    reader(memory, sequences=sequences).read([made], Once({6000: AGAIN}))
    assert np.isin(memory.calls[-1].tokens, made.state).any() == again
    assert agree(late(made), expected(made, AGAIN))


def test_what_is_added_late_to_many_sheets_is_read_for_each() -> None:
    made = [opened(6000 + 100 * at, 60, SHORT) for at in range(4)]
    memory = FakeMemory(aligned(len(PREFIX)) + 4 * 80)
    reader(memory, pack=1000, cells=memory.size).read(
        made, Once({6000: AGAIN, 6100: LONG, 6200: ALIKE, 6300: AGAIN})
    )
    for one, asked in zip(made, (AGAIN, LONG, ALIKE, AGAIN), strict=True):
        assert agree(late(one), expected(one, asked))
    assert no_more_than_prefixes(memory)


def test_what_was_added_before_there_was_no_room_is_read_in_the_second_try() -> None:
    memory = FakeMemory(CELLS, effects={3: NoRoom("no")})
    made = [opened(6000, 10, SHORT), opened(6100, 10, SHORT)]
    more = Once({6000: AGAIN})
    reader(memory).read(made, more)
    assert right(made[0], SHORT)
    assert agree(late(made[0]), expected(made[0], AGAIN))
    assert right(made[1], SHORT)


def test_a_text_in_several_calls_is_asked_for_more_after_each_and_read_once_more() -> None:
    made = opened(6000, 10, SHORT, LONG, ALIKE)
    memory = FakeMemory(CELLS)
    more = Once({6000: AGAIN})
    reader(memory, sequences=1).read([made], more)
    assert more.asked == [6000] * 3
    assert right(made, SHORT, LONG, ALIKE)
    assert agree(late(made), expected(made, AGAIN))


def test_padding_of_prefixes_stays_and_that_of_calls_goes() -> None:
    memory = FakeMemory(CELLS)
    reader(memory).read([sheet(6000, 10, SHORT)], nothing_more)
    assert memory.positions(0) == list(range(len(PREFIX)))
    assert memory.positions(PAD_SEQUENCE) == list(range(aligned(len(PREFIX)) - len(PREFIX)))
