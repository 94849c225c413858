"""The sleep that can be cut short."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from coolhead_worker.admission.waker import Waker, drain

#: Far longer than any test may take: a wait that ends was ended.
LONG_S = 60.0


@pytest.fixture
def waker() -> Iterator[Waker]:
    made = Waker()
    yield made
    made.close()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for fd in ends:
        os.close(fd)


def test_a_wait_that_nobody_ends_ends_at_its_timeout(waker: Waker) -> None:
    started = time.monotonic()
    assert waker.wait(0.02) is False
    assert time.monotonic() - started >= 0.019


@pytest.mark.parametrize("timeout_s", [0.0, -1.0])
def test_no_time_left_is_no_sleep(waker: Waker, timeout_s: float) -> None:
    assert waker.wait(timeout_s) is False


def test_a_wake_from_a_thread_ends_the_sleep(waker: Waker, sleeper) -> None:
    sleeping = sleeper(lambda: waker.wait(LONG_S))
    waker.wake()
    assert sleeping.ended()
    assert sleeping.result is True


def test_a_wake_before_the_sleep_is_not_lost(waker: Waker) -> None:
    waker.wake()
    assert waker.wait(LONG_S) is True


def test_many_wakes_are_one(waker: Waker) -> None:
    # More than a pipe holds: the caller must not block either.
    for _ in range(100_000):
        waker.wake()
    assert waker.wait(LONG_S) is True
    assert waker.wait(0.0) is False


def test_a_wake_from_a_signal_handler_ends_the_sleep(waker: Waker) -> None:
    before = signal.signal(signal.SIGALRM, lambda *_: waker.wake())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        assert waker.wait(LONG_S) is True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_readable_descriptor_ends_the_sleep_and_keeps_its_bytes(waker: Waker, pipe) -> None:
    os.write(pipe[1], b"post")
    assert waker.wait(LONG_S, [pipe[0]]) is True
    os.set_blocking(pipe[0], False)
    assert drain(pipe[0]) == b"post"
    assert drain(pipe[0]) == b""


def test_a_write_during_the_sleep_ends_it(waker: Waker, pipe, sleeper) -> None:
    sleeping = sleeper(lambda: waker.wait(LONG_S, [pipe[0]]))
    os.write(pipe[1], b"x")
    assert sleeping.ended()
    assert sleeping.result is True


def test_waking_after_the_end_is_harmless() -> None:
    waker = Waker()
    waker.close()
    waker.close()
    waker.wake()
