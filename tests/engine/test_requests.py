"""An item becomes branches of sheets, or an error value of its own, and finds its evaluation again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coolhead.errors import InvalidQuestion, StateTooLong
from coolhead.policy import Debias
from coolhead.questions import Choice, Noul, Question
from coolhead_worker.engine.chunk import Branch, Home, Limits, Text, Tokens
from coolhead_worker.engine.compiler import Compiler
from coolhead_worker.engine.dialect import Piece
from coolhead_worker.engine.layout import Base, aligned, lay_out
from coolhead_worker.engine.protocol import EvalItem, Orders, PinnedSet, Readout
from coolhead_worker.engine.readout import Labels
from coolhead_worker.engine.requests import Request, RequestWriter, Room
from coolhead_worker.engine.sheets import Place, Sheet, Sheets
from coolhead_worker.engine.template import PLAIN, Template
from tests.engine.vocabulary import SmallVocabulary

SPAM = Noul(instructions="Spam?")
COLOUR = Choice(instructions="Which?", criteria=["red", "green", "blue"])
SET: dict[str, Question] = {"spam": SPAM, "colour": COLOUR}
FORWARD = (0, 1, 2)
TIE = Readout(np.log([0.34, 0.33, 0.33]), 0.5, "names")
CLEAR = Readout(np.log([0.8, 0.1, 0.1]), 0.5, "names")


class Unpinned(Template):
    """A dialect that can't put questions before the state."""

    pins = False


class Alone(Template):
    """A dialect whose prompts do not begin with the head."""

    def row(self, question: Question, labels: Labels, order: Sequence[int], state: str) -> tuple[Piece, ...]:
        return (Piece(f"{state}: "),)


def compiler(template: Template = PLAIN) -> Compiler:
    return Compiler(SmallVocabulary(" Yes", " No", " red", " green", " blue"), (7,), template)


class Batch:
    """What some items wrote."""

    def __init__(self, *items: EvalItem, room: Room | None = None, template: Template = PLAIN) -> None:
        self.compiler, self._sheets = compiler(template), Sheets()
        writer = RequestWriter(self.compiler, self._sheets, room or Room(4096, 4096, 500, "tiny"))
        self.written = [writer.write(item) for item in items]

    @property
    def sheets(self) -> list[Sheet]:
        return [sheet for group in self._sheets.by_prefix() for sheet in group]

    @property
    def requests(self) -> list[Request]:
        return [one for one in self.written if isinstance(one, Request)]

    def go_on(self, sheet: Sheet) -> list[Place]:
        return [place for request in self.requests for place in request.go_on(sheet, self.compiler)]


def asks(state: str, trunk: bool = False, orders: Orders | None = None, **questions: Question) -> EvalItem:
    return EvalItem(state, questions, trunk, orders=dict.fromkeys(questions, orders) if orders else {})


def pins(state: str, *names: str, trunk: bool = False, of: Mapping[str, Question] = SET) -> EvalItem:
    return EvalItem(state, {name: of[name] for name in names}, trunk, pinned=PinnedSet(of))


def hear(sheet: Sheet, said: Readout = TIE) -> None:
    for index in range(len(sheet.free)):
        sheet.heard[Place(tight=False, index=index)] = said


def test_items_with_the_same_state_share_a_sheet_and_ask_everything_once() -> None:
    batch = Batch(asks("hi", a=SPAM), asks("hi", True, b=COLOUR), asks("hi", z=SPAM), asks("ho", a=SPAM))
    first, other = batch.sheets
    assert [len(first.free), len(other.free)] == [2, 1]
    assert len(first.probe) > 0
    assert len(other.probe) == 0
    one, another = batch.requests[0].asked["a"], batch.requests[2].asked["z"]
    assert one.shown == another.shown


def test_a_trunk_is_wanted_only_of_those_that_asked_for_it() -> None:
    batch = Batch(asks("hi", a=SPAM), asks("hi", trunk=True))
    (sheet,) = batch.sheets
    hear(sheet)
    sheet.features = np.arange(3.0)
    first, second = (request.evaluation(PLAIN) for request in batch.requests)
    assert first.features is None
    assert second.features is sheet.features
    assert (list(first.readouts), list(second.readouts)) == (["a"], [])


def test_pinned_questions_are_all_on_the_sheet_and_the_wanted_ones_are_found_by_id() -> None:
    batch = Batch(pins("hi", "colour"), pins("hi", "colour", "spam"))
    (sheet,) = batch.sheets
    held = batch.compiler.pinned(PinnedSet(SET))
    assert all(branch is one.branch for branch, one in zip(sheet.tight, held.questions.values(), strict=True))
    assert sheet.prefix is held.prefix
    assert sheet.free == []
    assert batch.requests[0].asked["colour"].shown == [(FORWARD, Place(tight=True, index=1))]
    assert list(batch.requests[1].asked) == ["colour", "spam"]
    sheet.heard = {Place(tight=True, index=0): CLEAR, Place(tight=True, index=1): TIE}
    assert batch.requests[0].evaluation(PLAIN).readouts == {"colour": TIE}


def test_a_pinned_item_with_a_trunk_has_two_sheets() -> None:
    batch = Batch(pins("hi", "spam", trunk=True))
    assert [(len(sheet.tight), len(sheet.free), len(sheet.probe) > 0) for sheet in batch.sheets] == [
        (0, 0, True),
        (2, 0, False),
    ]
    assert batch.requests[0].trunk is batch.sheets[0]


def test_a_dialect_that_cant_pin_reads_pinned_questions_isolated() -> None:
    batch = Batch(pins("hi", "spam"), asks("hi", a=SPAM), template=Unpinned(**vars(PLAIN)))
    (sheet,) = batch.sheets
    assert (sheet.tight, len(sheet.free)) == ((), 1)


def test_an_item_stands_on_the_tokens_of_its_own_prefix_state_and_branches() -> None:
    batch = Batch(asks("hi", True, a=SPAM, b=COLOUR), pins("hi", "spam"), asks("hi"))
    known, held = batch.compiler, batch.compiler.pinned(PinnedSet(SET))
    branches = [known.question(SPAM, (0, 1), "").branch, known.question(COLOUR, FORWARD, "").branch]
    suffixes = [one.branch for one in held.questions.values()]
    assert [request.tokens for request in batch.requests] == [
        len(known.prefix) + 2 + len(known.probe) + sum(branch.tokens for branch in branches),
        len(held.prefix) + 2 + sum(branch.tokens for branch in suffixes),
        0,
    ]


def test_a_prompt_that_stands_alone_is_counted_without_prefix_and_state() -> None:
    batch = Batch(asks("hi", a=SPAM), asks("hi", True, a=SPAM), template=Alone(**vars(PLAIN)))
    known = batch.compiler
    row, trunk = len("hi: "), len(known.prefix) + 2 + len(known.probe)
    assert [request.tokens for request in batch.requests] == [row, row + trunk]


def test_nothing_asked_is_nothing_to_read() -> None:
    batch = Batch(asks("hi"), EvalItem("hi", {}, trunk=False, pinned=PinnedSet(SET)))
    assert batch.sheets == []
    assert [request.evaluation(PLAIN).readouts for request in batch.requests] == [{}, {}]


@pytest.mark.parametrize(
    "item",
    [asks("x" * 501, a=SPAM), asks("x" * 501, trunk=True), asks("x" * 501), pins("x" * 501, "spam")],
    ids=["asked", "trunk", "nothing", "pinned"],
)
def test_a_long_state_is_refused_alone_with_the_counts_and_never_the_text(item: EvalItem) -> None:
    batch = Batch(item, asks("hi", a=SPAM))
    refused, kept = batch.written
    assert isinstance(refused, StateTooLong)
    assert str(refused) == "the state has 501 tokens, tiny reads at most 500: shorten it"
    assert isinstance(kept, Request)
    assert len(batch.sheets) == 1


def test_a_state_of_just_the_limit_is_read() -> None:
    assert len(Batch(asks("x" * 500, a=SPAM), pins("x" * 500, "spam")).requests) == 2


@pytest.mark.parametrize("item", [asks("hello", a=SPAM), pins("hello", "spam"), asks("hello", trunk=True)])
@pytest.mark.parametrize("field", ["cells", "trained"])
def test_what_does_not_fit_beside_its_questions_is_refused_alone(item: EvalItem, field: str) -> None:
    limits = {"cells": 4096, "trained": 4096, "state": 500, "model": "tiny"}
    least = next(n for n in range(4096) if Batch(item, room=Room(**{**limits, field: n})).requests)
    refused = Batch(item, room=Room(**{**limits, field: least - 1})).written[0]
    assert isinstance(refused, StateTooLong)
    assert "the state has 5 tokens" in str(refused)
    assert "shorten them" in str(refused)
    prefix = compiler().pinned(PinnedSet(SET)).prefix if item.pinned else compiler().prefix
    assert least > len(prefix) + 5


def test_an_order_that_may_be_read_later_counts_for_the_room_too() -> None:
    # " red" and "red" are one token and three, so the orders differ in length
    words = SmallVocabulary("Options: red", " Yes", " No", " red", " green", " blue")
    known = Compiler(words, (), PLAIN)
    lengths = [known.question(COLOUR, order, "").branch.tokens for order in ((0, 1, 2), (2, 1, 0))]
    assert lengths[0] < lengths[1]
    trained = len(known.prefix) + 2 + lengths[0]
    for level, refused in ((Debias.RAW, False), (Debias.REVERSED, True)):
        writer = RequestWriter(known, Sheets(), Room(4096, trained, 500, "tiny"))
        written = writer.write(asks("hi", orders=Orders(level, 0.1), c=COLOUR))
        assert isinstance(written, StateTooLong) is refused


def run(count: int) -> Tokens:
    return np.arange(count, dtype=np.int32)


branches = st.builds(
    lambda stem, leaves: Branch(run(stem), (stem - 1,), tuple(map(run, leaves))),
    st.integers(1, 40),
    st.lists(st.integers(1, 4), max_size=4),
)


@given(
    st.integers(0, 60),
    st.integers(0, 60),
    st.lists(branches, max_size=2),
    st.lists(branches, max_size=4),
    st.integers(16, 200),
)
def test_what_is_not_refused_fits_into_calls(
    prefix: int, state: int, tight: list[Branch], free: list[Branch], cells: int
) -> None:
    refused = Room(cells, 10_000, 500, "tiny").refusal(prefix, state, tight, free)
    left = cells - aligned(prefix)
    text = Text(Home(0, prefix), run(state), tuple(tight), tuple(free))
    sizes = [len(chunk.tokens) for chunk in lay_out([text], Limits(max(0, left), 99, 64, 0), Base(pads=0))]
    if refused is None:
        assert max(sizes, default=0) <= left
    else:  # nothing is refused that fits into one call
        assert sum(sizes) > left or len(sizes) > 1 or not sizes


@pytest.mark.parametrize(
    ("level", "near_tie", "now", "open_"),
    [
        (Debias.RAW, 1.0, 1, False),
        (Debias.RAW, 0.1, 1, False),
        (Debias.REVERSED, 1.0, 2, False),
        (Debias.REVERSED, 0.1, 1, True),
        (Debias.ROTATED, 1.0, 3, False),
        (Debias.ROTATED, 0.1, 1, True),
    ],
)
def test_other_orders_are_written_at_once_only_when_they_are_always_wanted(
    level: Debias, near_tie: float, now: int, open_: bool
) -> None:
    batch = Batch(asks("hi", orders=Orders(level, near_tie), c=COLOUR))
    assert (len(batch.sheets[0].free), batch.sheets[0].open) == (now, open_)
    assert len(batch.requests[0].asked["c"].shown) == now


def near(**questions: Question) -> EvalItem:
    return asks("hi", orders=Orders(Debias.ROTATED, 0.1), **questions)


def test_a_near_tie_wants_its_other_orders_once() -> None:
    batch = Batch(near(c=COLOUR))
    (sheet,) = batch.sheets
    assert batch.go_on(sheet) == []
    hear(sheet)
    assert batch.go_on(sheet) == [Place(tight=False, index=1), Place(tight=False, index=2)]
    assert batch.go_on(sheet) == []
    hear(sheet)
    readout = batch.requests[0].evaluation(PLAIN).readouts["c"]
    assert readout.debias is Debias.ROTATED
    assert [order for order, _ in batch.requests[0].asked["c"].shown] == [FORWARD, (1, 2, 0), (2, 0, 1)]


def test_what_is_no_near_tie_wants_no_more() -> None:
    batch = Batch(near(c=COLOUR))
    (sheet,) = batch.sheets
    hear(sheet, CLEAR)
    assert batch.go_on(sheet) == []
    assert batch.requests[0].evaluation(PLAIN).readouts["c"].debias is Debias.RAW


def test_two_that_want_the_same_other_orders_add_them_once_and_both_read_them() -> None:
    batch = Batch(near(a=COLOUR), near(b=COLOUR), asks("hi", c=COLOUR))
    (sheet,) = batch.sheets
    hear(sheet)
    assert len(batch.go_on(sheet)) == 2
    hear(sheet)
    said = [request.evaluation(PLAIN).readouts for request in batch.requests]
    assert [readouts[name].debias for readouts, name in zip(said, "abc", strict=True)] == [
        Debias.ROTATED,
        Debias.ROTATED,
        Debias.RAW,
    ]


def test_an_order_that_another_item_wanted_from_the_start_is_not_added_again() -> None:
    always = asks("hi", orders=Orders(Debias.ROTATED, 1.0), a=COLOUR)
    batch = Batch(always, near(b=COLOUR))
    (sheet,) = batch.sheets
    hear(sheet)
    assert batch.go_on(sheet) == []
    assert batch.requests[1].evaluation(PLAIN).readouts["b"].debias is Debias.ROTATED


def test_a_sheet_is_only_asked_about_its_own_questions() -> None:
    batch = Batch(near(c=COLOUR), asks("ho", orders=Orders(Debias.ROTATED, 0.1), c=COLOUR))
    for sheet in batch.sheets:
        hear(sheet)
    first, second = batch.sheets
    assert len(batch.go_on(first)) == 2
    assert (len(first.free), len(second.free)) == (3, 1)


def test_a_question_that_this_vocabulary_cant_answer_is_the_callers_to_handle() -> None:
    many = Choice(criteria=[f"one of many {number}" for number in range(60)])
    for item in (asks("hi", q=many), EvalItem("hi", {"q": many}, trunk=False, pinned=PinnedSet({"q": many}))):
        with pytest.raises(InvalidQuestion):
            Batch(item)
