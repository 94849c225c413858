"""Loads the Lua files of this room.

Guarantee: what runs on the server is the text of the files in `lua/`, prelude first; a server that
has forgotten its scripts (restart, failover, SCRIPT FLUSH) gets them again within the same call.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Protocol

import redis

_PARTS = {
    "claim": ("prelude", "failure", "claim"),
    "settle": ("prelude", "failure", "settle"),
    "renew": ("prelude", "renew"),
    "reap": ("prelude", "failure", "reap"),
    "presence": ("prelude", "presence"),
}


class Script(Protocol):
    """A script on the server; one call is one round trip and one atomic step."""

    def __call__(self, keys: Any = ..., args: Any = ...) -> Any:
        """Run it.

        Raises:
            redis.RedisError: as the server or the connection gives it.
        """


def script(connection: redis.Redis, name: str) -> Script:
    """The script `name` for this connection; nothing is sent yet."""
    return connection.register_script(source(name))


def source(name: str) -> str:
    """The Lua text of a script, with the files it stands on in front."""
    folder = files(__package__).joinpath("lua")
    return "\n".join(folder.joinpath(f"{part}.lua").read_text("utf-8") for part in _PARTS[name])
