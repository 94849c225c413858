"""The layout keeps what a row sees at the same place whatever rides along."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coolhead_worker.engine.chunk import NOTHING, Branch, Chunk, Home, Limits, Row, Span, Text, Tokens
from coolhead_worker.engine.layout import (
    ALIGN,
    FIRST_SEQUENCE,
    OUTPUTS,
    PAD_SEQUENCE,
    PREFIXES,
    TAIL,
    Base,
    aligned,
    cost,
    lay_out,
    prefix_chunk,
)

LIMITS = Limits(cells=512, sequences=10, ubatch=64, pack=256)
HOME = Home(2, 37)
BASE = Base(pads=11)

Seen = list[tuple[int, int, int]]


def run(start: int, count: int) -> Tokens:
    return np.arange(start, start + count, dtype=np.int32)


def whole(stem: Tokens) -> Branch:
    """A branch that is read at its last token."""
    return Branch(stem, (len(stem) - 1,))


class Shapes:
    """Texts from bytes, each of which is a size; all tokens of all texts are different."""

    def __init__(self, data: bytes) -> None:
        self._sizes = iter(data)
        self._token = 100

    def size(self, least: int, most: int) -> int:
        return least + next(self._sizes, 0) % (most - least + 1)

    def tokens(self, least: int, most: int) -> Tokens:
        count = self.size(least, most)
        self._token += count
        return run(self._token - count, count)

    def branch(self) -> Branch:
        stem = self.tokens(1, 24)
        reads = {self.size(0, len(stem) - 1), len(stem) - 1}
        return Branch(stem, tuple(sorted(reads)), tuple(self.tokens(1, 5) for _ in range(self.size(0, 3))))

    def text(self) -> Text:
        home, state = Home(self.size(0, PREFIXES - 1), self.size(0, 40)), self.tokens(0, 60)
        tight, free = (tuple(self.branch() for _ in range(max(0, self.size(-1, most)))) for most in (3, 5))
        return Text(home, state, tight, free, self.tokens(0, 9), open=not self.size(0, 3))


texts = st.binary(min_size=120, max_size=120).map(
    lambda data: (lambda shapes: [shapes.text() for _ in range(shapes.size(0, 5))])(Shapes(data))
)
bases = st.builds(Base, st.integers(0, 40), st.integers(FIRST_SEQUENCE, 30))


def calls(items: list[Text], limits: Limits = LIMITS, base: Base = BASE) -> list[Chunk]:
    return list(lay_out(items, limits, base))


def seen_by(chunk: Chunk, row: int) -> Seen:
    """(cell mod 16, position, token) of all of this call that row `row` sees, itself included."""
    sequence = chunk.first[row]
    inside = (chunk.first <= sequence) & (sequence < chunk.first + chunk.count)
    at = np.flatnonzero(inside & (chunk.positions <= chunk.positions[row]))
    return [(int(i % ALIGN), int(chunk.positions[i]), int(chunk.tokens[i])) for i in at]


def home_of(chunk: Chunk, row: int) -> Home:
    """What the sequence of a row begins with."""
    return chunk.homes[chunk.first[row] - chunk.base]


def expected(text: Text, number: int) -> list[list[int]]:
    """For each row that a branch is read at, the tokens after the home that it may see."""
    branch = text.branches[number]
    before, stem = text.state.tolist(), branch.stem.tolist()
    rows = [before + stem[: read + 1] for read in branch.reads]
    for leaf in branch.leaves:
        rows += [before + stem + leaf[: at + 1].tolist() for at in range(len(leaf))]
    return rows


def parts_of(chunk: Chunk, items: list[Text]) -> dict[int, list[Branch]]:
    """The branches that are read in a call, by text."""
    parts: dict[int, list[Branch]] = {text: [] for text in chunk.places}
    for row in chunk.rows:
        parts[row.text].append(items[row.text].branches[row.branch])
    return parts


@given(texts, bases)
def test_every_branch_of_every_text_is_read_exactly_once(items: list[Text], base: Base) -> None:
    rows = [(row.text, row.branch) for chunk in calls(items, base=base) for row in chunk.rows]
    assert sorted(rows) == [(t, b) for t, item in enumerate(items) for b in range(len(item.branches))]


@given(texts, bases)
def test_a_row_sees_its_home_its_state_and_its_own_branch_and_nothing_else(
    items: list[Text], base: Base
) -> None:
    for chunk in calls(items, base=base):
        for row in chunk.rows:
            text = items[row.text]
            wanted = expected(text, row.branch)
            assert len(row.at) == len(wanted)
            for at, said in zip(row.at, wanted, strict=True):
                seen = seen_by(chunk, at)
                assert [token for _, _, token in seen] == said
                start = text.home.length
                assert [position for _, position, _ in seen] == list(range(start, start + len(said)))
                assert home_of(chunk, at) == text.home


@given(texts)
def test_what_a_row_sees_stands_as_if_it_were_alone(items: list[Text]) -> None:
    for chunk in calls(items):
        for row in chunk.rows:
            text = items[row.text]
            tight = row.branch < len(text.tight)
            free = () if tight else (text.branches[row.branch],)
            probe = text.probe if tight else NOTHING
            (alone,) = calls([Text(text.home, text.state, text.tight if tight else (), free, probe)])
            same = alone.rows[row.branch if tight else 0]
            assert [seen_by(chunk, at) for at in row.at] == [seen_by(alone, at) for at in same.at]


@given(texts, bases)
def test_hidden_states_are_those_of_the_state_and_of_the_end_of_its_probe(
    items: list[Text], base: Base
) -> None:
    found: list[int] = []
    for chunk in calls(items, base=base):
        for text, span in chunk.spans.items():
            found.append(text)
            state, probe = items[text].state.tolist(), items[text].probe.tolist()
            assert span.length == len(state)
            assert chunk.tokens[span.start : span.start + span.length].tolist() == state
            seen, start = seen_by(chunk, span.probe), items[text].home.length
            assert [token for _, _, token in seen] == state + probe
            assert [position for _, position, _ in seen] == list(range(start, start + len(seen)))
            assert [cell for cell, _, _ in seen] == [at % ALIGN for at in range(len(seen))]
            assert home_of(chunk, span.probe) == items[text].home
    assert sorted(found) == [at for at, text in enumerate(items) if len(text.probe)]


@given(texts, bases)
def test_calls_stay_within_their_limits(items: list[Text], base: Base) -> None:
    for chunk in calls(items, base=base):
        assert 0 < len(chunk.tokens) <= LIMITS.cells
        assert 1 <= len(chunk.homes) <= LIMITS.sequences
        assert chunk.base == base.sequence
        assert (chunk.first + chunk.count).max() <= base.sequence + len(chunk.homes)


@given(texts)
def test_rows_come_in_whole_groups_of_four_and_never_in_a_few(items: list[Text]) -> None:
    for chunk in calls(items):
        assert len(chunk.tokens) % TAIL == 0
        last = len(chunk.tokens) % LIMITS.ubatch
        assert last == 0 or last >= ALIGN


@given(texts)
def test_physical_batches_have_outputs_in_fours_and_no_idle_ones_beyond(items: list[Text]) -> None:
    for chunk in calls(items):
        wanted = np.zeros(len(chunk.tokens), dtype=np.int8)
        wanted[[at for row in chunk.rows for at in row.at]] = 1
        assert (chunk.outputs >= wanted).all()
        for start in range(0, len(chunk.tokens), LIMITS.ubatch):
            batch = slice(start, start + LIMITS.ubatch)
            assert chunk.outputs[batch].sum() == aligned(int(wanted[batch].sum()), OUTPUTS)


@given(texts, bases)
def test_padding_belongs_to_nobody_and_continues_where_it_ended(items: list[Text], base: Base) -> None:
    for chunk in calls(items, base=base):
        padding = chunk.first == PAD_SEQUENCE
        positions = chunk.positions[padding].tolist()
        assert positions == list(range(base.pads, base.pads + chunk.pads))
        assert (chunk.count[padding] == 1).all()
        assert (chunk.first[~padding] >= FIRST_SEQUENCE).all()


@given(texts, bases)
def test_a_call_on_top_of_an_open_one_begins_on_a_boundary_and_takes_new_numbers(
    items: list[Text], base: Base
) -> None:
    nested = (whole(run(5, 9)), whole(run(50, 3)))
    for done in calls(items, base=base):
        if not any(items[text].open for text in done.places):
            continue
        assert len(done.tokens) % ALIGN == 0
        top = base.beside(done)
        (chunk,) = calls([Text(Home(done.base, 37), NOTHING, (), nested)], base=top)
        assert chunk.base == base.sequence + len(done.homes)
        assert [int(np.flatnonzero(chunk.first == chunk.base + n)[0]) % ALIGN for n in range(2)] == [0, 0]
        pads = chunk.positions[chunk.first == PAD_SEQUENCE].tolist()
        start = base.pads + done.pads
        assert pads == list(range(start, start + chunk.pads))


@given(texts)
def test_texts_share_a_call_up_to_the_pack_and_no_further(items: list[Text]) -> None:
    for chunk in calls(items):
        assert len(chunk.tokens) <= LIMITS.pack or len(chunk.places) == 1


@given(texts, bases)
def test_a_text_in_a_call_is_found_by_a_sequence_that_holds_its_state(items: list[Text], base: Base) -> None:
    for chunk in calls(items, base=base):
        for text, sequence in chunk.places.items():
            holds = (chunk.first <= sequence) & (sequence < chunk.first + chunk.count)
            length = len(items[text].state)
            assert chunk.tokens[holds][:length].tolist() == items[text].state.tolist()
            assert chunk.homes[sequence - chunk.base] == items[text].home


@given(texts)
def test_the_cost_of_a_text_is_what_its_call_takes_up_to_the_last_group(items: list[Text]) -> None:
    for chunk in calls(items):
        total = 0
        for text, read in parts_of(chunk, items).items():
            tight = [branch for branch in items[text].tight if any(branch is one for one in read)]
            free = [branch for branch in read if not any(branch is one for one in tight)]
            probe = len(items[text].probe) if text in chunk.spans else 0
            total += cost(len(items[text].state), probe + sum(branch.tokens for branch in tight), free)
        assert total - ALIGN < len(chunk.tokens) <= total


@given(texts)
def test_the_same_texts_are_laid_out_the_same_way(items: list[Text]) -> None:
    one, other = calls(items), calls(items)
    assert [chunk.tokens.tolist() for chunk in one] == [chunk.tokens.tolist() for chunk in other]
    assert [chunk.rows for chunk in one] == [chunk.rows for chunk in other]


def sized(cells: int, branches: int = 1) -> Text:
    """A text of so many cells and branches."""
    return Text(HOME, run(0, cells - ALIGN * branches), (), (whole(run(7, 9)),) * branches)


@pytest.mark.parametrize(
    ("cells", "groups"),
    [
        ((64, 64, 64, 64), [[0, 1, 2, 3]]),
        ((64, 64, 64, 64, 64), [[0, 1, 2, 3], [4]]),
        ((32, 208, 64, 192), [[1, 0], [3, 2]]),
        ((48, 400, 304), [[1], [2], [0]]),
        ((256, 32), [[0], [1]]),
    ],
    ids=str,
)
def test_the_longest_text_goes_first_and_short_ones_fill_the_rest(
    cells: tuple[int, ...], groups: list[list[int]]
) -> None:
    assert [list(chunk.places) for chunk in calls([sized(size) for size in cells])] == groups


def test_texts_do_not_share_a_call_when_their_branches_outnumber_the_sequences() -> None:
    made = calls([sized(64, 3)] * 4)
    assert [len(chunk.homes) for chunk in made] == [9, 3]


def test_a_pack_above_the_cells_is_the_cells() -> None:
    made = calls([sized(128)] * 3, Limits(256, 10, 64, 10_000))
    assert [len(chunk.places) for chunk in made] == [2, 1]


def test_a_pack_of_nothing_reads_every_text_alone() -> None:
    made = calls([sized(32)] * 3, Limits(512, 10, 64, 0))
    assert [len(chunk.places) for chunk in made] == [1, 1, 1]


def test_a_text_with_too_many_branches_repeats_its_state_in_the_next_call() -> None:
    first, second = calls([sized(20 + 14 * ALIGN, 14)])
    assert sorted((len(first.homes), len(second.homes))) == [4, 10]
    assert first.tokens[:20].tolist() == second.tokens[:20].tolist() == list(range(20))


def test_tight_branches_are_read_once_when_their_text_is_split() -> None:
    text = Text(HOME, run(0, 20), (whole(run(1, 3)),) * 2, (whole(run(7, 9)),) * 10)
    rows = [[row.branch for row in chunk.rows] for chunk in calls([text])]
    assert sorted(branch for row in rows for branch in row) == list(range(12))
    assert [row[:2] for row in rows if 0 in row] == [[0, 1]]


def test_tight_branches_that_leave_no_room_for_a_free_one_go_alone() -> None:
    text = Text(HOME, run(0, 20), (whole(run(1, 3)),) * 10, (whole(run(7, 9)),))
    assert [[row.branch for row in chunk.rows] for chunk in calls([text])] == [list(range(10)), [10]]


@pytest.mark.parametrize("length", [20, 0])
def test_a_probe_alone_is_a_call_without_rows(length: int) -> None:
    (chunk,) = calls([Text(HOME, run(0, length), probe=run(50, 3))])
    assert (chunk.rows, chunk.spans, chunk.homes) == ((), {0: Span(0, length, length + 2)}, (HOME,))
    assert not chunk.outputs.any()


def test_a_probe_is_read_once_when_its_text_is_split() -> None:
    text = Text(HOME, run(0, 20), (), (whole(run(7, 9)),) * 14, probe=run(50, 3))
    assert sorted(len(chunk.spans) for chunk in calls([text])) == [0, 1]


@pytest.mark.parametrize("text", [Text(HOME, run(0, 20)), Text(HOME, NOTHING)])
def test_nothing_asked_is_no_call(text: Text) -> None:
    assert calls([text]) == []
    assert calls([]) == []


def test_a_branch_with_leaves_is_read_stem_first_then_leaf_by_leaf() -> None:
    (chunk,) = calls([Text(HOME, NOTHING, (), (Branch(run(1, 4), (1, 3), (run(10, 2), run(20, 1))),))])
    assert chunk.rows == (Row(0, 0, (1, 3, 16, 17, 32)),)
    assert chunk.tokens[[1, 3, 16, 17, 32]].tolist() == [2, 4, 10, 11, 20]
    assert chunk.count[:4].tolist() == [2] * 4


@pytest.mark.parametrize(
    ("state", "tight", "free", "cells"),
    [
        (20, 0, [5, 5], 64),
        (0, 0, [16], 16),
        (0, 0, [17], 32),
        (20, 12, [], 32),
        (20, 13, [1], 64),
        (0, 0, [], 0),
    ],
)
def test_a_text_costs_whole_groups_of_cells(state: int, tight: int, free: list[int], cells: int) -> None:
    assert cost(state, tight, [whole(run(0, size)) for size in free]) == cells


def test_every_leaf_of_a_free_branch_costs_a_group_of_its_own() -> None:
    assert cost(16, 0, [Branch(run(0, 3), (2,), (run(0, 1), run(0, 17)))]) == 16 + 16 + 16 + 32


@given(st.integers(0, 500), st.sampled_from([TAIL, ALIGN]))
def test_the_next_multiple_is_the_least_that_is_not_below(count: int, to: int) -> None:
    assert aligned(count, to) % to == 0
    assert count <= aligned(count, to) < count + to


@pytest.mark.parametrize(("length", "pads"), [(37, 11), (48, 0), (1, 15), (600, 8)])
def test_a_prefix_fills_whole_groups_of_cells_and_wants_no_logits(length: int, pads: int) -> None:
    chunk = prefix_chunk(run(0, length), 3, pads=5)
    assert chunk.tokens[:length].tolist() == list(range(length))
    assert chunk.positions.tolist() == [*range(length), *range(5, 5 + pads)]
    assert chunk.first.tolist() == [3] * length + [PAD_SEQUENCE] * pads
    assert (chunk.pads, chunk.rows, chunk.homes) == (pads, (), ())
    assert not chunk.outputs.any()


def test_numbers_of_prefixes_padding_and_branches_never_meet() -> None:
    assert max(range(PREFIXES)) < PAD_SEQUENCE < FIRST_SEQUENCE
    assert all(a + 1 == b for a, b in pairwise((PREFIXES - 1, PAD_SEQUENCE, FIRST_SEQUENCE)))


def test_a_branch_counts_its_tokens_and_its_sequences() -> None:
    plain, forked = whole(run(0, 5)), Branch(run(0, 5), (4,), (run(0, 2), run(0, 3)))
    assert (plain.reads, plain.tokens, plain.sequences) == ((4,), 5, 1)
    assert (forked.tokens, forked.sequences) == (10, 2)
