"""The Lua pieces against oracles, and scripts on servers that forget, forbid or are full."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import fakeredis
import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coolhead.answers import Outcome
from coolhead.policy import Lane
from coolhead_worker.claim.desk import ClaimDesk
from coolhead_worker.claim.presence import Presence
from coolhead_worker.claim.scripts import source
from coolhead_worker.claim.settlement import Failed, Released, Retried, Settled, Succeeded
from tests.claim.jobs import answers, end_lease, field, places, put, results, waiting
from tests.claim.test_presence import status

BOTH = (Lane.INTERACTIVE, Lane.BULK)
PRELUDE = source("renew").partition("-- Prolong")[0]
FAILURE = source("reap").partition("-- Bring back")[0]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

on_one_server = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.server
@on_one_server
@given(at=st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2200, 1, 1)))  # noqa: DTZ001  # made aware below
def test_dates_are_those_of_the_standard_library(at: datetime, connection: redis.Redis) -> None:
    since = at.replace(tzinfo=UTC) - EPOCH
    seconds, micros = since // timedelta(seconds=1), since.microseconds
    told = connection.eval(f"{PRELUDE} return utc(tonumber(ARGV[1]), tonumber(ARGV[2]))", 0, seconds, micros)
    assert told.decode() == at.strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")


@pytest.mark.server
@on_one_server
@given(text=st.binary(max_size=600) | st.sampled_from([b"", b"\xff" * 65535, b"ab" * 6000]))
def test_failure_texts_are_valid_zlib_and_base64(text: bytes, connection: redis.Redis) -> None:
    packed = connection.eval(f"{FAILURE} return base64(zlib_stored(ARGV[1]))", 0, text)
    assert zlib.decompress(base64.b64decode(packed, validate=True)) == text


@pytest.mark.server
def test_scripts_come_back_after_the_server_forgot_them(desk: ClaimDesk, connection: redis.Redis) -> None:
    put(connection, "a", "b")
    presence = Presence(connection, node="mac-1", worker="mac-1-0a1b", lanes=BOTH)
    connection.script_flush()
    a, b = desk.claim(BOTH, 2).claimed
    for _ in range(2):
        connection.script_flush()
        assert desk.renew([a, b]) == set()
        desk.reap()
        presence.enter(status())
    connection.script_flush()
    assert desk.settle([Succeeded(a, {}), Released(b, "hot")]) == [Settled.SETTLED] * 2
    assert waiting(connection) == ["b"]


@pytest.fixture
def full_server(connection: redis.Redis) -> Iterator[redis.Redis]:
    """A server whose limit of memory is lifted again when the test is over."""
    yield connection
    connection.config_set("maxmemory", "0")


@pytest.mark.server
def test_a_full_server_is_drained(desk: ClaimDesk, full_server: redis.Redis) -> None:
    put(full_server, "a", "b", "c", "d")
    full_server.config_set("maxmemory", "1")
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        full_server.rpush("rq:queue:coolhead-interactive", "more")
    a, b, c, d = desk.claim(BOTH, 4).claimed
    assert desk.renew([a, b, c, d]) == set()
    failed = Failed(b, Outcome.REJECTED, "JobRejected", "no")
    assert desk.settle([Succeeded(a, {"n": 1}), failed, Released(c, "hot")]) == [Settled.SETTLED] * 3
    full_server.config_set("maxmemory", "0")
    end_lease(full_server, d)
    full_server.config_set("maxmemory", "1")
    assert desk.reap().recovered == 1
    assert answers(full_server, "a") == [{"n": 1}]
    assert waiting(full_server) == ["d", "c"]


FORBIDDEN = ["hset", "zadd", "xadd", "zrem", "ltrim", "pexpire", "hincrby", "rpush", "lpush", "persist"]


@pytest.fixture
def restricted(connection: redis.Redis) -> Iterator[Callable[[str], redis.Redis]]:
    """A connection as a user who may do everything but one command."""
    opened: list[redis.Redis] = []

    def without(command: str) -> redis.Redis:
        connection.execute_command(
            "ACL", "SETUSER", "limited", "reset", "on", ">secret", "~*", "+@all", f"-{command}"
        )
        kwargs = dict(connection.connection_pool.connection_kwargs)
        opened.append(redis.Redis(unix_socket_path=kwargs["path"], username="limited", password="secret"))
        return opened[-1]

    yield without
    for limited in opened:
        limited.close()
    connection.execute_command("ACL", "DELUSER", "limited")


@pytest.mark.server
@pytest.mark.parametrize("command", FORBIDDEN)
def test_a_user_without_one_permission_loses_no_job(
    command: str, restricted: Callable[[str], redis.Redis], desk: ClaimDesk, connection: redis.Redis
) -> None:
    put(connection, "held", "waits", deadline_s=1000)
    (claimed,) = desk.claim(BOTH, 1).claimed
    end_lease(connection, claimed)
    limited = ClaimDesk(restricted(command), worker="mac-2-1", node="mac-2", reap_every_s=0.0)
    before = {key: connection.dump(key) for key in sorted(connection.keys())}
    for act in (
        lambda: limited.claim(BOTH, 5),
        lambda: limited.settle([Succeeded(claimed, {})]),
        lambda: limited.renew([claimed]),
        limited.reap,
    ):
        with pytest.raises(redis.exceptions.NoPermissionError, match=command.upper()):
            act()
    assert {key: connection.dump(key) for key in sorted(connection.keys())} == before


def test_the_same_scripts_run_in_process_on_a_fake_server() -> None:
    connection = fakeredis.FakeRedis()
    desk = ClaimDesk(connection, worker="mac-1-0a1b", node="mac-1", reap_every_s=0.0)
    put(connection, "good", "bad", "again", "back", "late", deadline_s=None)
    put(connection, "over", deadline_s=-1.0)
    good, bad, again, back, late = desk.claim(BOTH, 10).claimed
    settlements = [
        Succeeded(good, {"n": 1}),
        Failed(bad, Outcome.PERMANENT, "StateTooLong", "9000 tokens"),
        Retried(again, 0.0, "DecodeFailed", "rc"),
        Released(back, "hot"),
    ]
    assert desk.settle(settlements) == [Settled.SETTLED] * 4
    end_lease(connection, late)
    assert desk.reap().recovered == 1
    assert waiting(connection) == ["late", "back", "again"]
    assert answers(connection, "good") == [{"n": 1}]
    assert field(connection, "over", "outcome") == "expired"
    assert results(connection, "bad")[0]["error_code"] == "StateTooLong"
    assert places(connection, "over") == ["failed"]
    presence = Presence(connection, node="mac-1", worker="mac-1-0a1b", lanes=BOTH)
    presence.enter(status())
    assert presence.publish(status("busy"))
    presence.leave()
    assert connection.exists("coolhead:node:mac-1") == 0
