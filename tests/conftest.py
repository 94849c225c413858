"""Fixtures of the whole suite: a real embedded Valkey, and a clean environment."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from coolhead.embedded import EmbeddedServer
from coolhead.errors import QueueError


@dataclass(frozen=True)
class Valkey:
    """A real server on a unix socket, for the whole test session."""

    url: str

    def client(self) -> redis.Redis:
        """A fresh connection; the database is emptied when the test's fixture is made."""
        return redis.Redis.from_url(self.url)


def missing(reason: str) -> None:
    """A missing part skips on a laptop and fails in CI."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[Valkey]:
    # A unix socket path has about 100 bytes; pytest's own tmp paths can be longer.
    with tempfile.TemporaryDirectory(prefix="chv") as folder:
        try:
            server = EmbeddedServer.start(Path(folder))
        except QueueError as error:
            missing(f"no embedded Valkey: {error}")
        try:
            yield Valkey(server.url)
        finally:
            server.stop()


@pytest.fixture
def valkey(valkey_server: Valkey) -> Iterator[Valkey]:
    connection = valkey_server.client()
    connection.flushall()
    yield valkey_server
    connection.close()


@pytest.fixture(autouse=True, scope="session")
def interruptible() -> None:
    """A suite that was started in the background ignores Ctrl-C, and so would all its children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The product's own variables never leak into a test."""
    for name in list(os.environ):
        if name.startswith("COOLHEAD_") and not name.startswith("COOLHEAD_TEST_"):
            monkeypatch.delenv(name)
