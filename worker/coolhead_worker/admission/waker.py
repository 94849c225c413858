"""Sleep that can be cut short, by another thread or by a signal handler.

Guarantee: a `wake()` is never lost. When it comes before the sleep, the next sleep ends at once; so
"look, then sleep" has no gap in which a wake-up could fall.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Sequence

_CHUNK = 4096


class Waker:
    """A pipe to oneself. One thread waits; any thread or signal handler wakes."""

    def __init__(self) -> None:
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        os.set_blocking(self._write_fd, False)
        self._closed = False

    def wake(self) -> None:
        """End the current sleep, or the next one; takes no lock, so a signal handler may call it."""
        if self._closed:
            return
        # A full pipe has a wake-up in it already.
        with contextlib.suppress(BlockingIOError):
            os.write(self._write_fd, b"\0")

    def wait(self, timeout_s: float, fds: Sequence[int] = ()) -> bool:
        """Sleep until `wake()`, until one of `fds` is readable, or for `timeout_s` seconds.

        Returns False at the timeout. `fds` are not read from: that is the caller's.
        """
        poll = select.poll()
        for fd in (self._read_fd, *fds):
            poll.register(fd, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(max(0.0, timeout_s) * 1000)}
        if self._read_fd in ready:
            drain(self._read_fd)
        return bool(ready)

    def close(self) -> None:
        """Give the pipe back; waking is harmless afterwards, waiting is not allowed."""
        if not self._closed:
            self._closed = True
            os.close(self._read_fd)
            os.close(self._write_fd)


def drain(fd: int) -> bytes:
    """All bytes that a non-blocking descriptor has now."""
    parts: list[bytes] = []
    with contextlib.suppress(BlockingIOError):
        while part := os.read(fd, _CHUNK):
            parts.append(part)
    return b"".join(parts)
