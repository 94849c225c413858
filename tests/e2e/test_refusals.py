"""A worker that can't work says why in one line and takes nothing."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Workers

pytestmark = [pytest.mark.process, pytest.mark.model, pytest.mark.server]


def truncated(workers: Workers) -> dict[str, str]:
    path = workers.folder / "cut.gguf"
    path.write_bytes(workers.models.fast.path.read_bytes()[:1_000_000])
    return {"fast": str(path)}


def flipped(workers: Workers) -> dict[str, str]:
    data = bytearray(workers.models.fast.path.read_bytes())
    pin = hashlib.sha256(data).hexdigest()
    data[-1000] ^= 1
    path = workers.folder / "flipped.gguf"
    path.write_bytes(data)
    return {"fast": str(path), "fast_sha256": pin}


def bad_task(workers: Workers) -> dict[str, str]:
    folder = workers.folder / "tasks"
    folder.mkdir()
    (folder / "bad.toml").write_text(
        'name = "bad"\n[questions.q]\ntype = "choice"\ncriteria = ["only one"]\n'
    )
    return {"tasks": str(folder)}


def other_fit(workers: Workers) -> dict[str, str]:
    return {"fit": str(workers.folder)}


def busy_port(_workers: Workers) -> dict[str, str]:
    taken = socket.create_server(("127.0.0.1", 0))
    _open.append(taken)
    return {"metrics_port": str(taken.getsockname()[1])}


_open: list[socket.socket] = []


@pytest.fixture(autouse=True)
def close_ports():
    yield
    while _open:
        _open.pop().close()


@pytest.mark.parametrize(
    ("change", "says", "code"),
    [
        (lambda _: {"fast": "/nowhere/model.gguf"}, "no such file", 1),
        (lambda _: {"fast_sha256": "0" * 64}, "sha256", 1),
        (truncated, "cut", 1),
        (flipped, "sha256", 1),
        (lambda _: {"redis_url": "redis://127.0.0.1:1/0"}, "no answer from Redis", 1),
        (lambda _: {"redis_url": "http://x"}, "not a Redis URL", 1),
        (lambda _: {"mode": "reckless"}, "mode", 2),
        (lambda _: {"threads": "0"}, "threads", 2),
        (lambda _: {"fast": ""}, "no fast model", 2),
        (lambda _: {"config": "/nowhere.toml"}, "no settings file", 2),
        (bad_task, "bad.toml", 2),
        (lambda _: {"tasks": "/nowhere"}, "no task file", 2),
        (lambda _: {"sensor_script": "/nowhere"}, "no sensor script", 2),
        (other_fit, "fit.json", 3),
        (busy_port, "port", 1),
    ],
)
def test_a_worker_that_cannot_work_says_why_in_one_line(
    workers: Workers, change: Callable[[Workers], dict[str, str]], says: str, code: int
) -> None:
    got, said = workers.refused(**change(workers))
    last = said.strip().splitlines()[-1]
    assert (got, "Traceback" in said) == (code, False), said
    assert says.lower() in last.lower(), said
    assert last.startswith("coolhead-worker: ")


def test_a_user_without_permission_is_told_so(workers: Workers, valkey) -> None:
    connection = valkey.client()
    connection.execute_command("ACL", "SETUSER", "nobody", "on", ">pw", "~*", "-@all", "+ping")
    path = Path(valkey.url.removeprefix("unix://"))
    code, said = workers.refused(redis_url=f"unix://nobody:pw@{path}")
    connection.execute_command("ACL", "DELUSER", "nobody")
    connection.close()
    assert code == 1
    assert "refused" in said
    assert "pw" not in said.replace("/", " ").split()
