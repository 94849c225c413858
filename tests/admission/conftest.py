"""Fixtures of the admission room."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from coolhead_worker.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1000.0)


class Sleeper:
    """A thread that is inside one blocking call."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.result: object = None
        self.took_s = 0.0
        self._call = call
        self._thread = threading.Thread(target=self._run)
        self._began = threading.Event()
        self._thread.start()
        assert self._began.wait(10)

    def _run(self) -> None:
        started = time.monotonic()
        self._began.set()
        self.result = self._call()
        self.took_s = time.monotonic() - started

    def ended(self) -> bool:
        """Whether the call came back, waiting for it for as long as a test may."""
        self._thread.join(10)
        return not self._thread.is_alive()


@pytest.fixture
def sleeper() -> Iterator[Callable[[Callable[[], object]], Sleeper]]:
    """Run a blocking call in a thread; the test must end it."""
    made: list[Sleeper] = []

    def start(call: Callable[[], object]) -> Sleeper:
        made.append(Sleeper(call))
        return made[-1]

    yield start
    assert all(one.ended() for one in made)
