"""The flag is up from the deadline, or the interrupt, to the end of the block, and at no other time."""

from __future__ import annotations

import ctypes
import threading
import time

from coolhead_worker.engine.abort import Abort


def asked(abort: Abort) -> bool:
    """What native code would be told."""
    ask = ctypes.cast(abort.function, ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p))
    return ask(abort.address)


def wait_until_raised(abort: Abort, seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while not asked(abort) and time.monotonic() < deadline:
        threading.Event().wait(0.001)
    return asked(abort)


def test_the_flag_is_down_before_the_deadline() -> None:
    abort = Abort()
    with abort.after(60.0) as passed:
        assert not asked(abort)
        assert not passed()


def test_the_flag_goes_up_at_the_deadline_and_down_at_the_end() -> None:
    abort = Abort()
    with abort.after(0.01) as passed:
        assert wait_until_raised(abort)
        assert passed()
    assert not asked(abort)


def test_a_deadline_that_is_over_stops_at_once() -> None:
    abort = Abort()
    with abort.after(-1.0):
        assert wait_until_raised(abort)


def test_no_timer_outlives_its_block() -> None:
    abort, before = Abort(), threading.active_count()
    for _ in range(50):
        with abort.after(0.0005):
            pass
        assert not asked(abort)
    assert threading.active_count() == before


def test_an_interrupt_raises_the_flag_at_once_and_says_that_it_was_one() -> None:
    abort = Abort()
    with abort.after(60.0) as passed:
        abort.interrupt()
        assert asked(abort)
        assert passed()
        assert abort.interrupted
    assert not asked(abort)
    assert not abort.interrupted


def test_a_passed_deadline_is_no_interrupt() -> None:
    abort = Abort()
    with abort.after(0.0):
        assert wait_until_raised(abort)
        assert not abort.interrupted


def test_an_interrupt_between_two_blocks_does_nothing() -> None:
    abort = Abort()
    abort.interrupt()
    assert not asked(abort)
    with abort.after(60.0) as passed:
        assert not passed()
        assert not abort.interrupted


def test_an_interrupt_comes_from_any_thread_and_ends_with_its_block() -> None:
    abort = Abort()
    with abort.after(60.0):
        threading.Timer(0.01, abort.interrupt).start()
        assert wait_until_raised(abort)
    with abort.after(60.0):
        assert not asked(abort)


def test_a_storm_of_interrupts_never_leaves_the_flag_up() -> None:
    abort, stop = Abort(), threading.Event()

    def storm() -> None:
        while not stop.is_set():
            abort.interrupt()

    thread = threading.Thread(target=storm)
    thread.start()
    try:
        for _ in range(200):
            with abort.after(60.0):
                pass
            assert not asked(abort)
    finally:
        stop.set()
        thread.join()
