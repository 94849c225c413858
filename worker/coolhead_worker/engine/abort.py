"""Stops native code at a deadline or on demand, without any Python in its threads.

Guarantee: the flag is up from the deadline, or from `interrupt()`, to the end of the block and down at
any other time; a late timer or an interrupt between two blocks never stops the next call.

Native code asks a C function `bool (*)(void *)` whether to stop. `strlen` is such a function: of an
empty text it is 0, of a text of one character 1. So asking never waits for the GIL (a callback in
Python would, thousands of times a call), and a timer thread changes the answer by writing one byte.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Abort:
    """`function` and `address` for the native side; keep this object as long as it may ask."""

    def __init__(self) -> None:
        self._flag = ctypes.create_string_buffer(2)
        self.address = ctypes.cast(self._flag, ctypes.c_void_p)
        self.function = ctypes.CDLL(None).strlen
        self._lock = threading.Lock()
        self._inside = False
        self._interrupted = False

    @property
    def raised(self) -> bool:
        """What native code is told."""
        return self._flag.value != b""

    @property
    def interrupted(self) -> bool:
        """Whether it was `interrupt` that stopped the block that is running."""
        return self._interrupted

    def interrupt(self) -> None:
        """Raise the flag now; nothing when no block is running. For any thread."""
        with self._lock:
            if self._inside:
                self._interrupted = True
                self._raise()

    @contextmanager
    def after(self, seconds: float) -> Iterator[Callable[[], bool]]:
        """Raise the flag `seconds` from now unless the block ends before; yields "was it raised?"."""
        timer = threading.Timer(max(0.0, seconds), self._raise)
        timer.daemon = True
        with self._lock:
            self._inside = True
        timer.start()
        try:
            yield lambda: self.raised
        finally:
            timer.cancel()
            timer.join()
            with self._lock:
                self._inside = self._interrupted = False
                self._flag[0] = b"\0"

    def _raise(self) -> None:
        self._flag[0] = b"\1"
