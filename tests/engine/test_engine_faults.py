"""How the real engine fails, and that the next call is as ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from coolhead.errors import DecodeInterrupted, DecodeTimeout, NoRoom
from coolhead.questions import Noul
from coolhead_worker.engine.llama_engine import LlamaEngine
from coolhead_worker.engine.protocol import EvalItem, Evaluation
from coolhead_worker.engine.reader import Reader
from coolhead_worker.engine.requests import Room
from coolhead_worker.models import DemoModels
from tests.engine.tickets import ALL, QUESTIONS, STATE, move, one, slack

pytestmark = pytest.mark.model

SPAM = Noul(instructions="Spam?")
ASK = EvalItem(STATE, {"spam": SPAM}, trunk=False)
LONG = EvalItem("word " * 2000, {}, trunk=True)


@pytest.fixture(scope="module")
def base(fast: LlamaEngine) -> Evaluation:
    return one(fast, ALL)


@pytest.fixture(scope="module")
def small(demo_models: DemoModels) -> Iterator[LlamaEngine]:
    """An engine with room for little more than one item."""
    engine = LlamaEngine(demo_models.fast, threads=1, n_ctx=256)
    yield engine
    engine.close()


def kept(result: object) -> Evaluation:
    assert isinstance(result, Evaluation)
    return result


@contextmanager
def promising(engine: LlamaEngine, cells: int) -> Iterator[None]:
    """An engine that believes its memory has so many cells."""
    room = engine._room
    believe(engine, replace(room, cells=cells))
    try:
        yield
    finally:
        believe(engine, room)


def believe(engine: LlamaEngine, room: Room) -> None:
    """Begin with an empty memory and these limits."""
    engine._context.clear()
    engine._room = room
    engine._reader = Reader(engine._context, replace(engine._limits, cells=room.cells, pack=room.cells))


def test_a_small_context_splits_the_work_and_changes_nothing(small: LlamaEngine, base: Evaluation) -> None:
    before = small.decodes
    other, result = map(kept, small.evaluate([replace(ALL, state="Where is it?"), ALL], 60.0))
    assert small.decodes - before >= 3
    assert other.readouts.keys() == result.readouts.keys() == QUESTIONS.keys()
    assert move(base, result) <= slack(small)


def test_two_items_that_find_no_room_together_are_read_alone(small: LlamaEngine, fast: LlamaEngine) -> None:
    items = [EvalItem(f"{name} " + "word " * 82, {"spam": SPAM}, trunk=False) for name in ("one", "two")]
    with promising(small, cells=512):  # more than the memory has
        before = small.decodes
        results = small.evaluate(items, 60.0)
    assert small.decodes - before == 4  # the prefix, then a call that fails, the prefix again, one call each
    assert move(one(fast, items[1]), kept(results[1])) <= slack(small)


def test_an_item_that_finds_no_room_even_alone_fails_the_call_and_the_next_is_as_ever(
    small: LlamaEngine,
) -> None:
    before = one(small, ASK)
    with promising(small, cells=512), pytest.raises(NoRoom):
        small.evaluate([EvalItem("word " * 210, {"spam": SPAM}, trunk=False)], 60.0)
    assert move(before, one(small, ASK)) <= slack(small)


def test_a_call_past_its_deadline_is_aborted_and_the_next_is_as_ever(
    fast: LlamaEngine, base: Evaluation
) -> None:
    started = time.monotonic()
    with pytest.raises(DecodeTimeout):
        fast.evaluate([LONG] * 3, 0.1)
    assert time.monotonic() - started < 20.0  # the whole call takes a minute on two cores
    assert move(base, one(fast, ALL)) <= slack(fast)


def test_an_interrupt_from_another_thread_stops_a_long_call_and_the_next_is_as_ever(
    fast: LlamaEngine, base: Evaluation
) -> None:
    stop = threading.Event()

    def interrupt() -> None:
        while not stop.wait(0.01):
            fast.interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(DecodeInterrupted):
            fast.evaluate([LONG], 60.0)
    finally:
        stop.set()
        thread.join()
    assert move(base, one(fast, ALL)) <= slack(fast)


def test_an_interrupt_between_two_calls_stops_neither(fast: LlamaEngine) -> None:
    fast.interrupt()
    assert one(fast, ASK).readouts.keys() == {"spam"}
