"""Real worker processes on real models and a real Valkey."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import platformdirs
import pytest

from coolhead.client import DecisionQueue
from coolhead.errors import NodeError
from coolhead_worker.models import DemoModels, prepare
from tests.conftest import Valkey, missing

ROOT = Path(__file__).resolve().parents[2]
WORKER = Path(sys.executable).with_name("coolhead-worker")


@pytest.fixture(scope="session")
def models() -> DemoModels:
    """The two demo models, fetched once into the user's cache."""
    try:
        return prepare(platformdirs.user_cache_path("coolhead") / "models", lambda _step, _share: None)
    except NodeError as error:
        missing(f"no demo models: {error}")


@dataclass
class Workers:
    """Starts `coolhead-worker run` and cleans up."""

    url: str
    folder: Path
    models: DemoModels
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def script(self) -> Path:
        """The file that stands in for the sensors."""
        return self.folder / "sensor"

    def arguments(self, **changed: str) -> list[str]:
        """Flags of a healthy worker, with some changed; an empty value leaves a flag out."""
        flags = {
            "redis-url": self.url,
            "fast": str(self.models.fast.path),
            "tasks": str(ROOT / "examples/tasks"),
            "lock-file": str(self.folder / "node.lock"),
            "metrics-port": "0",
            "node": "studio-1",
            "threads": "1",
            "sensor-script": str(self.script),
        } | {name.replace("_", "-"): value for name, value in changed.items()}
        return [part for name, value in flags.items() if value for part in (f"--{name}", value)]

    def start(self, **changed: str) -> subprocess.Popen[str]:
        """A worker process; its log is a pipe that a thread empties."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("COOLHEAD_")}
        process = subprocess.Popen(
            [str(WORKER), "run", *self.arguments(**changed)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=self.folder,
        )  # fmt: skip
        self.started.append(process)
        return process

    def refused(self, **changed: str) -> tuple[int, str]:
        """Exit code and stderr of a worker that must not start."""
        process = self.start(**changed)
        out, err = process.communicate(timeout=60)
        assert out == ""
        return process.returncode, err

    def up(self, queue: DecisionQueue, **changed: str) -> subprocess.Popen[str]:
        """A worker that shows itself in the queue."""
        process = self.start(**changed)
        threading.Thread(target=process.stderr.read, daemon=True).start()  # type: ignore[union-attr]
        pause = threading.Event()
        while not any(node.is_up for node in queue.fleet().nodes):
            assert process.poll() is None, "the worker ended"
            pause.wait(0.05)
        return process


@pytest.fixture
def workers(valkey: Valkey, models: DemoModels, tmp_path: Path) -> Iterator[Workers]:
    (tmp_path / "sensor").write_text("nominal")
    group = Workers(valkey.url, tmp_path, models)
    yield group
    for process in group.started:
        if process.poll() is None:
            process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()


@pytest.fixture
def queue(valkey: Valkey) -> Iterator[DecisionQueue]:
    with DecisionQueue.from_url(valkey.url) as opened:
        yield opened
