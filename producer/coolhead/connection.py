"""The way to Redis: opening a connection, and saying in one line what went wrong on it.

Guarantee: whatever a Redis client raises becomes one `QueueError` by its kind; its text names the
server and what to do, and never holds a password.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ExponentialBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ConnectionError,  # the name the Redis client uses
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    TimeoutError,
)
from redis.retry import Retry

from coolhead.errors import QueueDenied, QueueError, QueueFull, QueueUnreachable, one_line

SOCKET_TIMEOUT_S = 10.0
DEFAULT_URL = "redis://127.0.0.1:6379/0"

_SCHEMES = ("redis://", "rediss://", "unix://")
# Answers of a server that is alive and will serve again: it loads, or it has just lost its rank.
_PASSING = re.compile(r"UNBLOCKED|LOADING|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|READONLY|MISCONF|NOREPLICAS")
_DENIED_IN_SCRIPT = "ACL failure in script"


def connect(url: str, *, name: str = "coolhead", socket_timeout_s: float = SOCKET_TIMEOUT_S) -> redis.Redis:
    """A Redis client; nothing is sent yet.

    Args:
        url: `redis://`, `rediss://` or `unix://`.
        name: shown by the server's CLIENT LIST.
        socket_timeout_s: seconds without a byte after which a connection is given up.

    Raises:
        QueueUnreachable: the URL is not one; the text does not repeat it.
    """
    retry = Retry(ExponentialBackoff(cap=0.2, base=0.05), 2)
    with _readable(url):
        return redis.Redis.from_url(url, retry=retry, **_options(name, socket_timeout_s))


def connect_async(
    url: str, *, name: str = "coolhead", socket_timeout_s: float = SOCKET_TIMEOUT_S
) -> redis.asyncio.Redis:
    """The same for asyncio."""
    retry = AsyncRetry(ExponentialBackoff(cap=0.2, base=0.05), 2)
    with _readable(url):
        return redis.asyncio.Redis.from_url(url, retry=retry, **_options(name, socket_timeout_s))


def _options(name: str, socket_timeout_s: float) -> dict[str, Any]:
    return {"client_name": name, "socket_timeout": socket_timeout_s, "socket_connect_timeout": 5.0}


@contextlib.contextmanager
def _readable(url: str) -> Iterator[None]:
    """Refuse what is no URL, and what would be read as one with part of the password elsewhere."""
    if not url.startswith(_SCHEMES):
        raise QueueUnreachable(f"this is not a Redis URL: it begins with {', '.join(_SCHEMES)}")
    rest = url.partition("://")[2]
    if not url.startswith("unix://") and "@" in rest and "@" not in re.split(r"[/?#]", rest)[0]:
        raise QueueUnreachable("the Redis URL has '/', '?' or '#' in its password: percent-encode it")
    try:
        if not url.startswith("unix://"):
            _ = urlsplit(url).port  # raises for a port that is no number
        yield
    except ValueError:
        raise QueueUnreachable("the Redis URL does not parse: scheme://user:password@host:port/db") from None


def place_of(connection: redis.Redis | redis.asyncio.Redis) -> str:
    """Where a client connects to, as a URL without user and password."""
    options: Mapping[str, Any] = connection.connection_pool.connection_kwargs
    if options.get("path"):
        return f"unix://{options['path']}"
    scheme = "rediss" if "SSL" in connection.connection_pool.connection_class.__name__ else "redis"
    return (
        f"{scheme}://{options.get('host', 'localhost')}:{options.get('port', 6379)}/{options.get('db') or 0}"
    )


def explained(error: BaseException, place: str = "") -> QueueError:
    """The `QueueError` for what a Redis client raised.

    Args:
        error: a `redis.RedisError`, or an `OSError` of the socket below it.
        place: where the client connects to, as `place_of` gives it.

    Returns:
        QueueDenied: user, password or ACL.
        QueueFull: out of memory.
        QueueUnreachable: no answer, or an answer that another try may change.
        QueueError: anything else; trying again does not help.
    """
    where = f"Redis at {place}" if place else "Redis"
    said = one_line(str(error))
    if isinstance(error, AuthenticationError):
        return QueueDenied(f"{where} wants another user or password")
    if isinstance(error, NoPermissionError | AuthorizationError) or said.startswith(_DENIED_IN_SCRIPT):
        return QueueDenied(f"{where} refused: {_brief(said)}; check this user's ACL")
    if isinstance(error, OutOfMemoryError):
        return QueueFull(f"{where} is out of memory: slow down and try again")
    if isinstance(error, BusyLoadingError | ReadOnlyError) or _PASSING.match(said):
        return QueueUnreachable(f"{where} can't serve now: {_brief(said)}")
    if isinstance(error, TimeoutError | ConnectionError | OSError):
        return QueueUnreachable(f"no answer from {where} ({_cause(error)}): check the URL and that it runs")
    return QueueError(f"{where} answered in an unexpected way: {type(error).__name__}: {_brief(said)}")


def _brief(said: str) -> str:
    """What the server said, without the arguments that some of its answers repeat."""
    return re.split(r", with args beginning with| script: ", said)[0][:160].rstrip(" .")


def _cause(error: BaseException) -> str:
    """The socket's own words for a lost connection."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror:
            return one_line(seen.strerror)
        seen = seen.__cause__ or seen.__context__
    return "it took too long" if isinstance(error, TimeoutError) else "the connection was lost"
