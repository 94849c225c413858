"""A batch says nothing twice, and everyone finds their own again."""

from __future__ import annotations

import numpy as np

from coolhead_worker.engine.chunk import Branch, Home, Span, Text, Tokens
from coolhead_worker.engine.compiler import Prepared
from coolhead_worker.engine.features import features_of
from coolhead_worker.engine.readout import Labels, read
from coolhead_worker.engine.sheets import Place, Sheet, Sheets

HOME = Home(2, 37)
LETTERS = Labels("letters", ("A", "B"), (1, 2), spaced=False)
NAMES = Labels("names", ("red", "blue"), (3, 4), spaced=False)
FORWARD, BACKWARD = (0, 1), (1, 0)
ROW = np.arange(9, dtype=np.float32) ** 1.5


def run(start: int, count: int) -> Tokens:
    return np.arange(start, start + count, dtype=np.int32)


PREFIX, OTHER_PREFIX, STATE = run(1, 5), run(1, 6), run(50, 4)
PROBE = run(90, 3)


def question(start: int, labels: Labels = LETTERS) -> Prepared:
    return Prepared(Branch(run(start, 3), (2,)), labels)


def free(index: int) -> Place:
    return Place(tight=False, index=index)


def tight(index: int) -> Place:
    return Place(tight=True, index=index)


def test_the_same_prefix_and_state_are_one_sheet() -> None:
    sheets = Sheets()
    one = sheets.at(PREFIX, STATE)
    assert sheets.at(PREFIX.copy(), STATE.copy()) is one
    assert sheets.at(OTHER_PREFIX, STATE) is not one
    assert sheets.at(PREFIX, run(50, 5)) is not one


def test_a_prefix_and_a_state_are_kept_apart_where_they_meet() -> None:
    sheets = Sheets()
    assert sheets.at(run(1, 3), run(4, 2)) is not sheets.at(run(1, 4), run(5, 1))


def test_sheets_with_a_common_prefix_stand_together_in_order_of_first_use() -> None:
    sheets = Sheets()
    made = [
        sheets.at(*key)
        for key in ((PREFIX, STATE), (OTHER_PREFIX, STATE), (PREFIX, run(9, 1)), (PREFIX, STATE))
    ]
    numbers = {id(sheet): at for at, sheet in enumerate(made[:3])}
    groups = sheets.by_prefix()
    assert [[numbers[id(sheet)] for sheet in group] for group in groups] == [[0, 2], [1]]
    assert Sheets().by_prefix() == []


def test_a_question_that_two_ask_is_one_branch() -> None:
    sheet, one = Sheet(PREFIX, STATE), question(100)
    assert sheet.want("q", FORWARD, one) == sheet.want("q", FORWARD, one) == free(0)
    assert sheet.free == [one.branch]


def test_another_question_and_another_order_are_branches_of_their_own() -> None:
    sheet = Sheet(PREFIX, STATE)
    places = [sheet.want(*key, question(100)) for key in (("q", FORWARD), ("q", BACKWARD), ("r", FORWARD))]
    assert places == [free(0), free(1), free(2)]


def test_a_sheet_is_the_text_of_its_layout() -> None:
    sheet, one, other = Sheet(PREFIX, STATE), question(100), question(200)
    sheet.want_pinned([one])
    sheet.want("q", FORWARD, other)
    assert sheet.text(HOME) == Text(HOME, STATE, (one.branch,), (other.branch,), open=False)
    sheet.probe, sheet.open = PROBE, True
    assert sheet.text(HOME) == Text(HOME, STATE, (one.branch,), (other.branch,), PROBE, open=True)


def test_the_text_of_a_sheet_does_not_grow_with_it() -> None:
    sheet = Sheet(PREFIX, STATE)
    text = sheet.text(HOME)
    sheet.want("q", FORWARD, question(100))
    assert text.free == ()


def test_branches_of_a_text_are_places_by_number_tight_ones_first() -> None:
    sheet = Sheet(PREFIX, STATE)
    sheet.want_pinned([question(100), question(200)])
    sheet.want("q", FORWARD, question(300))
    assert [sheet.place(number) for number in range(3)] == [tight(0), tight(1), free(0)]


def test_late_branches_come_alone_or_with_the_state_once_more() -> None:
    sheet = Sheet(PREFIX, STATE)
    made = [question(100 * at) for at in range(3)]
    places = [sheet.want(str(at), FORWARD, one) for at, one in enumerate(made)]
    sheet.probe, sheet.open = PROBE, True
    for state in (True, False):
        text = sheet.late(HOME, [places[2], places[0]], state=state)
        assert text.state.tolist() == (STATE.tolist() if state else [])
        assert text.branches == (made[2].branch, made[0].branch)
        assert (text.home, len(text.probe), text.open) == (HOME, 0, False)


def test_a_branch_is_heard_as_its_own_labels_were_shown() -> None:
    sheet = Sheet(PREFIX, STATE)
    shown = sheet.want("q", BACKWARD, question(100)), sheet.want("n", BACKWARD, question(100, NAMES))
    for place, labels in zip(shown, (LETTERS, NAMES), strict=True):
        sheet.hear(place, [ROW])
        assert sheet.heard[place].logits.tolist() == read([ROW], labels).logits.tolist()
        assert sheet.heard[place].kind == labels.kind


def test_pinned_questions_are_heard_by_their_own_labels() -> None:
    sheet = Sheet(PREFIX, STATE)
    places = sheet.want_pinned([question(100), question(200, NAMES)])
    for place in places:
        sheet.hear(place, [ROW])
    assert sheet.heard[places[0]].logits.tolist() == read([ROW], LETTERS).logits.tolist()
    assert sheet.heard[places[1]].logits.tolist() == read([ROW], NAMES).logits.tolist()


def test_a_pinned_set_that_two_ask_is_there_once() -> None:
    sheet, asked = Sheet(PREFIX, STATE), [question(100), question(200)]
    assert sheet.want_pinned(asked) == sheet.want_pinned(asked) == [tight(0), tight(1)]
    assert len(sheet.tight) == 2


def test_features_are_those_of_the_states_own_rows_and_of_the_probes_last_one() -> None:
    sheet, lower = Sheet(PREFIX, STATE), np.arange(24, dtype=np.float32).reshape(8, 3) ** 1.5
    upper = lower[::-1] * 2
    assert sheet.features is None
    sheet.feel(lower, upper, Span(2, 4, 7))
    assert sheet.features is not None
    assert np.array_equal(sheet.features, features_of(lower[2:6], upper[7]))
