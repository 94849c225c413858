"""One worker a node.

Guarantee: while a `NodeLock` is held no other process can take the same file; the lock ends with
its process, however that ends, so nothing stale can block a restart.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

from coolhead.errors import NodeBusy, NodeError


class NodeLock:
    """An advisory lock on a file that names its holder's pid."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None

    def acquire(self) -> None:
        """Take the lock at once or not at all.

        Raises:
            NodeBusy: another process holds it; the message names the pid.
            NodeError: the file can't be opened.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise NodeError(f"can't open the lock {self.path}: {error.strerror}") from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(fd, 32).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            raise NodeBusy(
                f"a worker already runs on this node (pid {holder}, lock {self.path}): stop it first"
            ) from None
        os.ftruncate(fd, 0)
        os.write(fd, str(os.getpid()).encode())
        self._fd = fd

    def release(self) -> None:
        """Give the lock back; the file stays, so that no two processes lock different files."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> NodeLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
