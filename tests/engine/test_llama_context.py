"""The memory of a model: calls, typed failures, deadlines and interrupts, and that it recovers."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import llama_cpp
import numpy as np
import pytest

from coolhead.errors import DecodeFailed, DecodeInterrupted, DecodeTimeout, NoRoom, NotFinite
from coolhead_worker.engine.abort import Abort
from coolhead_worker.engine.chunk import Branch, Chunk, Home, Limits, Text
from coolhead_worker.engine.features import layers_of
from coolhead_worker.engine.layout import Base, lay_out, prefix_chunk
from coolhead_worker.engine.llama import LlamaModel
from coolhead_worker.engine.llama_context import LlamaContext
from coolhead_worker.engine.tap import Tap
from coolhead_worker.models import DemoModels

pytestmark = pytest.mark.model

CELLS = 1024
PREFIX = np.arange(100, 116, dtype=np.int32)
OTHER = np.arange(300, 316, dtype=np.int32)
STEM = np.array([7, 8], dtype=np.int32)


@pytest.fixture(scope="module")
def model(demo_models: DemoModels) -> Iterator[LlamaModel]:
    model = LlamaModel(demo_models.fast.path)
    yield model
    model.close()


@pytest.fixture
def abort() -> Abort:
    return Abort()


@pytest.fixture
def context(model: LlamaModel, abort: Abort) -> Iterator[LlamaContext]:
    tap = Tap(layers_of(model.n_layer), model.n_embd)
    context = LlamaContext(model, n_ctx=CELLS, n_ubatch=512, threads=1, abort=abort, tap=tap)
    yield context
    context.close()


def joined(*parts: np.ndarray) -> np.ndarray:
    return np.concatenate(parts).astype(np.int32)


def chunk_of(count: int, *, sequence: int = 0) -> Chunk:
    """A call of one state with one branch of two tokens."""
    return branched(Branch(STEM, (1,)), count, sequence)


def branched(branch: Branch, count: int = 10, sequence: int = 0) -> Chunk:
    """A call of one state with this branch."""
    state = np.arange(200, 200 + count, dtype=np.int32)
    text = Text(Home(sequence, len(PREFIX)), state, (), (branch,))
    (chunk,) = lay_out([text], Limits(4 * CELLS, 200, 512, 4 * CELLS), Base(pads=0))
    return chunk


def logits(context: LlamaContext, chunk: Chunk) -> np.ndarray:
    """The row of a call, copied, and the call taken out again."""
    row = context.decode(chunk).rows[0][0].copy()
    context.release(chunk)
    return row


@contextmanager
def until_done(act: Callable[[], object]) -> Iterator[list[int]]:
    """Does something again and again in another thread while the block runs; counts how often."""
    done, stop = [], threading.Event()

    def repeat() -> None:
        while not stop.wait(0.001):
            act()
            done.append(1)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join()


def test_a_row_builds_on_its_home_and_a_released_call_leaves_nothing(context: LlamaContext) -> None:
    context.decode(prefix_chunk(PREFIX, 0, 0))
    context.decode(prefix_chunk(OTHER, 1, 0))
    first, other = (logits(context, chunk_of(10, sequence=at)) for at in (0, 1))
    assert np.array_equal(logits(context, chunk_of(10)), first)
    assert not np.array_equal(first, other)
    assert first.shape == (49152,)


def test_a_leaf_reads_like_the_same_tokens_in_one_piece(context: LlamaContext) -> None:
    context.decode(prefix_chunk(PREFIX, 0, 0))
    leaf, other = np.array([30, 31], np.int32), np.array([40], np.int32)
    forked, inline = (
        branched(Branch(STEM, (1,), (other, leaf))),
        branched(Branch(joined(STEM, leaf), (1, 2, 3))),
    )
    said = [[row.copy() for row in context.decode(forked).rows[0]]]
    context.release(forked)
    said.append(context.decode(inline).rows[0])
    for one, same in ((0, 0), (2, 1), (3, 2)):
        assert np.abs(said[0][one] - said[1][same]).max() < 0.5  # other places in memory, so not bit-equal
    assert np.abs(said[0][1] - said[1][1]).max() > 1.0  # the other leaf says something else


def test_calls_and_their_tokens_are_counted_padding_excluded(context: LlamaContext) -> None:
    context.decode(prefix_chunk(PREFIX, 0, 0))
    logits(context, chunk_of(10))
    assert (context.decodes, context.tokens) == (2, len(PREFIX) + 10 + 2)


@pytest.mark.parametrize(("count", "reason"), [(CELLS - 24, "no room"), (CELLS, "cells")])
def test_a_call_that_finds_no_room_is_told_from_other_failures(
    context: LlamaContext, count: int, reason: str
) -> None:
    context.decode(prefix_chunk(PREFIX, 0, 0))
    with pytest.raises(NoRoom, match=reason):
        context.decode(chunk_of(count))
    context.clear()
    context.decode(prefix_chunk(PREFIX, 0, 0))
    logits(context, chunk_of(10))


def test_an_error_of_llama_cpp_is_typed_and_one_line(
    context: LlamaContext, capfd: pytest.CaptureFixture[str]
) -> None:
    context.decode(prefix_chunk(PREFIX, 0, 0))
    chunk = chunk_of(16)
    chunk.tokens[3] = 10**6
    with pytest.raises(DecodeFailed, match="invalid batch") as caught:
        context.decode(chunk)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_logits_that_are_no_numbers_are_refused(
    context: LlamaContext, monkeypatch: pytest.MonkeyPatch, number: float
) -> None:
    row = np.zeros(49152, dtype=np.float32)
    row[40000] = number
    pointer = row.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    monkeypatch.setattr(llama_cpp, "llama_get_logits_ith", lambda native, at: pointer)
    context.decode(prefix_chunk(PREFIX, 0, 0))
    with pytest.raises(NotFinite, match="damaged"):
        context.decode(chunk_of(4))


def test_a_row_without_logits_is_an_error(context: LlamaContext) -> None:
    context.decode(prefix_chunk(PREFIX, 0, 0))
    chunk = chunk_of(14)
    chunk.outputs[:] = 0
    with pytest.raises(DecodeFailed, match="no logits"):
        context.decode(chunk)


def test_a_deadline_aborts_a_call_and_the_next_call_is_as_ever(context: LlamaContext) -> None:
    context.decode(prefix_chunk(PREFIX, 0, 0))
    before = logits(context, chunk_of(16))
    with pytest.raises(DecodeTimeout, match=r"0\.02 s"), context.deadline(0.02):
        context.decode(chunk_of(900))
    context.clear()
    with context.deadline(60.0):
        context.decode(prefix_chunk(PREFIX, 0, 0))
        after = logits(context, chunk_of(16))
    assert np.array_equal(before, after)


def test_an_interrupt_aborts_a_call_and_the_next_call_is_as_ever(context: LlamaContext, abort: Abort) -> None:
    context.decode(prefix_chunk(PREFIX, 0, 0))
    before = logits(context, chunk_of(16))
    with until_done(abort.interrupt):
        with pytest.raises(DecodeInterrupted, match="unsafe"), context.deadline(60.0):
            context.decode(chunk_of(900))
        context.clear()
    with context.deadline(60.0):
        context.decode(prefix_chunk(PREFIX, 0, 0))
        after = logits(context, chunk_of(16))
    assert np.array_equal(before, after)


def test_a_failure_in_time_keeps_its_own_name(context: LlamaContext) -> None:
    with pytest.raises(DecodeFailed, match="mine"), context.deadline(60.0):
        raise DecodeFailed("mine")


def test_other_threads_run_during_a_call(context: LlamaContext) -> None:
    context.decode(prefix_chunk(PREFIX, 0, 0))
    with until_done(lambda: None) as beats:
        before = len(beats)
        context.decode(chunk_of(120))
        during = len(beats) - before
    assert during >= 3


def test_a_forked_process_is_refused_before_it_hangs(
    context: LlamaContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: -1)
    for act in (context.clear, lambda: context.decode(prefix_chunk(PREFIX, 0, 0))):
        with pytest.raises(DecodeFailed, match="forked"):
            act()


def test_closing_twice_is_closing_once(context: LlamaContext) -> None:
    context.close()
    context.close()
