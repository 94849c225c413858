"""A conversation with Redis without a socket: what to send, and what the replies mean.

Guarantee: everything the client does is written once, as a `Talk`; the two shells that carry a
talk out, one blocking and one for asyncio, decide nothing, and every error of the Redis client
that a talk does not handle leaves them as a `QueueError`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import redis
import redis.asyncio

from coolhead.connection import explained, place_of
from coolhead.errors import CoolheadError

T = TypeVar("T")
Command = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """Commands for one round trip; answered with one reply each, an error standing for its reply."""

    commands: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class Pause:
    """Seconds to wait; answered with None."""

    seconds: float


Talk = Generator[Call | Pause, Any, T]
"""Yields steps, takes their replies, returns a value. A lost connection is raised inside it."""


@dataclass(frozen=True, slots=True)
class _End(Generic[T]):
    value: T


def ask(*commands: Command) -> Talk[list[Any]]:
    """One round trip; errors come as replies."""
    replies: list[Any] = yield Call(commands)
    return replies


def ask_strictly(*commands: Command) -> Talk[list[Any]]:
    """One round trip; the first error among the replies is raised."""
    replies = yield from ask(*commands)
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies


def text(value: bytes | str | None) -> str:
    """A reply as text, whether or not the connection decodes; "" for none."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""


def number(value: bytes | str | float | None, default: float = 0.0) -> float:
    """A reply as a number; the default for none, or for what is no number."""
    try:
        return float(text(value) if isinstance(value, bytes) else value or default)
    except ValueError:
        return default


def hold(connection: redis.Redis, talk: Talk[T]) -> T:
    """Carry a talk out on a blocking connection.

    Raises:
        QueueError: an error of the Redis client that the talk did not handle.
        CoolheadError: what the talk itself raises.
    """
    place = place_of(connection)
    turn = _go_on(talk, place)
    while not isinstance(turn, _End):
        turn = _go_on(talk, place, _do(connection, turn))
    return turn.value


async def hold_async(connection: redis.asyncio.Redis, talk: Talk[T]) -> T:
    """The same on an asyncio connection."""
    place = place_of(connection)
    turn = _go_on(talk, place)
    while not isinstance(turn, _End):
        turn = _go_on(talk, place, await _do_async(connection, turn))
    return turn.value


def _go_on(talk: Talk[T], place: str, reply: Any = None) -> Call | Pause | _End[T]:
    """Give the talk its reply, or the error in place of all replies, and take its next step."""
    try:
        return talk.throw(reply) if isinstance(reply, Exception) else talk.send(reply)
    except StopIteration as end:
        return _End(end.value)
    except CoolheadError:  # before OSError: a WaitTimeout is both
        raise
    except (redis.RedisError, OSError) as error:
        raise explained(error, place) from None


def _do(connection: redis.Redis, step: Call | Pause) -> Any:
    if isinstance(step, Pause):
        return time.sleep(step.seconds)
    try:
        with connection.pipeline(transaction=False) as pipe:
            for command in step.commands:
                pipe.execute_command(*command)  # type: ignore[no-untyped-call]  # untyped in redis-py
            return pipe.execute(raise_on_error=False)
    except (redis.RedisError, OSError) as error:
        return error


async def _do_async(connection: redis.asyncio.Redis, step: Call | Pause) -> Any:
    if isinstance(step, Pause):
        return await asyncio.sleep(step.seconds)
    try:
        async with connection.pipeline(transaction=False) as pipe:
            for command in step.commands:
                pipe.execute_command(*command)
            return await pipe.execute(raise_on_error=False)
    except (redis.RedisError, OSError) as error:
        return error
