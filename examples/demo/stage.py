"""The demo's processes: an embedded Valkey and one real worker.

Guarantee: whatever ends the demo, nothing that it started is left running and its folder is gone;
a worker that is killed is started again, as launchd or systemd would do.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from coolhead.client import DecisionQueue
from coolhead.embedded import EmbeddedServer
from coolhead.errors import FitMismatch, NodeError

WORKER = Path(sys.executable).with_name("coolhead-worker")
READY_POLL_S = 0.1
READY_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
RESTART_PAUSE_S = 1.0  # a worker that can't live must not be started ten times a second


class Stage:
    """Start on entering, end on leaving."""

    def __init__(self) -> None:
        # Short and of its own: the path of a unix socket has a narrow limit.
        self.folder = Path(tempfile.mkdtemp(prefix="coolhead-"))
        self.restarts = 0
        self._arguments: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._closing = threading.Event()
        self._watcher: threading.Thread | None = None

    def __enter__(self) -> Stage:
        self._server = EmbeddedServer.start(self.folder / "valkey")
        self.queue = DecisionQueue.from_url(self._server.url)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._stop_worker()
        if self._watcher is not None:
            self._watcher.join()
        self.queue.close()
        self._server.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def log(self) -> Path:
        """What the worker says."""
        return self.folder / "worker.log"

    def start_worker(self, arguments: Sequence[str]) -> None:
        """Start the worker and return when it shows itself in the queue.

        Raises:
            FitMismatch: the fit was made for another model or plan.
            NodeError: it ended, with its last words, or did not show itself in time.
        """
        self._arguments = [
            str(WORKER),
            "run",
            "--redis-url",
            self._server.url,
            "--metrics-port",
            "0",
            *arguments,
        ]
        self._launch()
        self._await_ready()
        self._watcher = threading.Thread(target=self._watch, name="supervisor", daemon=True)
        self._watcher.start()

    def _launch(self) -> None:
        with self.log.open("ab") as out:
            # A session of its own: Ctrl-C must reach the demo first, which then stops the worker.
            self._process = subprocess.Popen(
                self._arguments, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        (self.folder / "worker.pid").write_text(str(self._process.pid))

    def _await_ready(self) -> None:
        assert self._process is not None
        waited = 0.0
        while not any(node.is_up for node in self.queue.fleet().nodes):
            if self._process.poll() is not None:
                self._raise_last_words(self._process.returncode)
            if waited > READY_TIMEOUT_S:
                raise NodeError(
                    f"the worker did not start within {READY_TIMEOUT_S:.0f} s: {self._last_words()}"
                )
            self._closing.wait(READY_POLL_S)
            waited += READY_POLL_S

    def _raise_last_words(self, code: int) -> None:
        if code == FitMismatch.exit_code:
            raise FitMismatch(self._last_words())
        raise NodeError(self._last_words() or f"the worker ended with {code}")

    def _last_words(self) -> str:
        lines = self.log.read_text("utf-8", "replace").strip().splitlines()
        return lines[-1].removeprefix("coolhead-worker: ") if lines else ""

    def _watch(self) -> None:
        while not self._closing.wait(READY_POLL_S):
            assert self._process is not None
            if self._process.poll() is not None and not self._closing.is_set():
                self.restarts += 1
                self._closing.wait(RESTART_PAUSE_S)
                self._launch()

    def _stop_worker(self) -> None:
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, 9)
            process.wait()
