"""What goes wrong with Redis is a typed error of one line, without a password, and nothing is half done."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from redis import exceptions

from coolhead.client import DecisionQueue
from coolhead.connection import connect, explained, place_of
from coolhead.embedded import EmbeddedServer
from coolhead.errors import QueueDenied, QueueError, QueueFull, QueueUnreachable, WaitTimeout
from coolhead.fleet import Node
from tests.client.settler import write_node, write_success
from tests.client.test_layout import QUESTIONS, own_decision
from tests.client.test_waiting import blocked, in_thread, soon
from tests.conftest import Valkey

SECRET = "hunter2"

#: All that a producer's user needs; keys `~rq:* ~coolhead:*`.
PRODUCER = """
    +ping +hello +select +client|setinfo +client|setname +eval +evalsha +time +llen +exists +hget +hset
    +hmget +hgetall +expire +zadd +rpush +sadd +hincrby +ltrim +xread +lpos +lindex +zcard +zrevrange
""".split()  # noqa: SIM905  # one a line would be a page


@pytest.fixture
def connection(valkey: Valkey) -> Iterator[redis.Redis]:
    with valkey.client() as client:
        yield client


@pytest.fixture
def user(valkey: Valkey, connection: redis.Redis) -> Iterator[Callable[..., str]]:
    """Make a real ACL user and give its URL."""

    def make(*rules: str, password: str = SECRET) -> str:
        connection.execute_command(
            "ACL", "SETUSER", "app", "reset", "on", f">{SECRET}", "~rq:*", "~coolhead:*", "-@all", *rules
        )
        return valkey.url.replace("unix://", f"unix://app:{password}@")

    yield make
    connection.execute_command("ACL", "DELUSER", "app")


def refused(url: str, kind: type[QueueError]) -> str:
    """The text of the error that a submit raises."""
    with DecisionQueue.from_url(url) as queue, pytest.raises(kind) as caught:
        queue.submit("hello", questions=QUESTIONS)
    text = str(caught.value)
    assert type(caught.value) is kind
    assert len(text.splitlines()) == 1
    assert SECRET not in text
    assert caught.value.__suppress_context__  # what Redis said is not printed below it
    return text


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_no_server_is_said_with_its_place() -> None:
    port = closed_port()
    text = refused(f"redis://app:{SECRET}@127.0.0.1:{port}/3", QueueUnreachable)
    assert f"redis://127.0.0.1:{port}/3 (Connection refused)" in text


def test_no_socket_is_said_with_its_place() -> None:
    text = refused(f"unix://app:{SECRET}@/nowhere/valkey.sock", QueueUnreachable)
    assert "unix:///nowhere/valkey.sock (No such file or directory)" in text


def test_a_server_that_never_answers_is_unreachable() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        client = connect(f"redis://127.0.0.1:{deaf.getsockname()[1]}", socket_timeout_s=0.05)
        with client, pytest.raises(QueueUnreachable, match="it took too long"):
            DecisionQueue(client).submit("hello", questions=QUESTIONS)


def test_waiting_without_a_server_ends_at_the_timeout() -> None:
    queue = DecisionQueue.from_url(f"redis://127.0.0.1:{closed_port()}")
    with queue, pytest.raises(QueueUnreachable, match="Connection refused"):
        queue.wait("j", 0.2)


URLS = [
    ("http://x", "not a Redis URL"),
    (f"{SECRET}", "not a Redis URL"),
    ("", "not a Redis URL"),
    (f"redis://app:{SECRET}@host:port", "does not parse"),
    (f"redis://app:a/{SECRET}@host:6379", "percent-encode"),
    (f"redis://app:a#{SECRET}@host:6379", "percent-encode"),
    (f"redis://:1?{SECRET}@host:6379", "percent-encode"),
    (f"redis://app:{SECRET}@host:99999", "does not parse"),
    (f"redis://host/x?socket_timeout={SECRET}", "does not parse"),
]


@pytest.mark.parametrize(("url", "said"), URLS)
def test_a_url_that_is_none_is_refused_without_repeating_it(url: str, said: str) -> None:
    with pytest.raises(QueueUnreachable, match=said) as caught:
        DecisionQueue.from_url(url)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://app:pw@queue.example:7000/2", "redis://queue.example:7000/2"),
        ("rediss://:p%40w@queue.example", "rediss://queue.example:6379/0"),
        ("unix://app:pw@/run/q.sock?db=1", "unix:///run/q.sock"),
    ],
)
def test_the_place_of_a_connection_has_no_password(url: str, place: str) -> None:
    with connect(url) as client:
        assert place_of(client) == place


@pytest.mark.server
def test_a_wrong_password_is_denied(user: Callable[..., str]) -> None:
    text = refused(user(*PRODUCER, password="wrong-" + SECRET), QueueDenied)
    assert "user or password" in text


@pytest.mark.server
def test_no_password_where_one_is_needed_is_denied(valkey: Valkey, connection: redis.Redis) -> None:
    connection.execute_command("ACL", "SETUSER", "default", "resetpass", f">{SECRET}")
    try:
        assert "user or password" in refused(valkey.url, QueueDenied)
    finally:
        connection.execute_command("ACL", "SETUSER", "default", "nopass")


@pytest.mark.server
def test_a_user_with_exactly_the_producers_rights_can_do_everything(
    user: Callable[..., str], connection: redis.Redis
) -> None:
    connection.script_flush()
    write_node(connection, Node("studio-3", "paused", reason="thermal serious (scripted)"))
    with DecisionQueue.from_url(user(*PRODUCER)) as queue:
        ticket = queue.submit("hello", questions=QUESTIONS, deadline_s=60)
        assert queue.status(ticket).place == 1
        assert queue.fleet().nodes[0].name == "studio-3"
        with pytest.raises(WaitTimeout, match="studio-3 paused"):
            queue.wait(ticket, 0.05)
        write_success(connection, ticket.id, own_decision(ticket.id))
        assert queue.wait(ticket).job_id == ticket.id


@pytest.mark.server
@pytest.mark.parametrize("missing", ["+evalsha", "+hset", "+rpush", "+zadd", "+sadd", "+ltrim", "+time"])
def test_a_user_without_one_right_is_denied_and_nothing_is_queued(
    user: Callable[..., str], connection: redis.Redis, missing: str
) -> None:
    url = user(*(rule for rule in PRODUCER if rule != missing))
    DecisionQueue(connection).submit("teach the script", questions=QUESTIONS)
    connection.flushdb()
    assert missing.removeprefix("+") in refused(url, QueueDenied).lower()
    assert connection.keys("*") == []


@pytest.mark.server
def test_a_user_without_our_keys_is_denied_and_nothing_is_queued(
    user: Callable[..., str], connection: redis.Redis
) -> None:
    url = user(*PRODUCER)
    connection.execute_command("ACL", "SETUSER", "app", "resetkeys", "~rq:*")
    refused(url, QueueDenied)
    assert connection.keys("*") == []


@pytest.mark.server
def test_a_user_who_may_not_read_answers_is_denied_at_once(
    user: Callable[..., str], connection: redis.Redis
) -> None:
    with DecisionQueue.from_url(user(*(rule for rule in PRODUCER if rule != "+xread"))) as queue:
        ticket = queue.submit("hello", questions=QUESTIONS)
        with pytest.raises(QueueDenied, match="xread"):
            queue.wait(ticket, 60)


@pytest.mark.server
def test_a_user_who_may_not_see_the_nodes_still_gets_a_timeout(user: Callable[..., str]) -> None:
    with DecisionQueue.from_url(user(*(rule for rule in PRODUCER if rule != "+zrevrange"))) as queue:
        ticket = queue.submit("hello", questions=QUESTIONS)
        with pytest.raises(WaitTimeout, match=r"^no answer within 0\.05 s$"):
            queue.wait(ticket, 0.05)


@pytest.mark.server
def test_out_of_memory_is_full_and_nothing_is_queued(valkey: Valkey, connection: redis.Redis) -> None:
    connection.config_set("maxmemory", 1)
    try:
        assert "out of memory" in refused(valkey.url, QueueFull)
    finally:
        connection.config_set("maxmemory", 0)
    assert connection.keys("*") == []


@pytest.mark.server
@pytest.mark.process
def test_a_wait_survives_a_server_that_is_killed_and_comes_back() -> None:
    with tempfile.TemporaryDirectory(prefix="cho") as folder:
        first = EmbeddedServer.start(Path(folder))
        with DecisionQueue.from_url(first.url) as queue, redis.Redis.from_url(first.url) as connection:
            ticket = queue.submit("hello", questions=QUESTIONS)
            thread, said = in_thread(lambda: queue.wait(ticket, 30))
            soon(blocked(connection))
            os.kill(first.pid, signal.SIGKILL)
            soon(lambda: not first.running())
            assert threading.active_count() > 1  # the wait goes on
            with EmbeddedServer.start(Path(folder)):
                soon(blocked(connection))
                write_success(connection, ticket.id, own_decision(ticket.id))
                thread.join(10)
        assert said[0].job_id == ticket.id


KINDS = [
    (exceptions.ConnectionError("Error 111 connecting to h:1. Connection refused."), QueueUnreachable),
    (exceptions.TimeoutError("Timeout reading from socket"), QueueUnreachable),
    (exceptions.BusyLoadingError("Redis is loading the dataset in memory"), QueueUnreachable),
    (exceptions.ReadOnlyError("You can't write against a read only replica."), QueueUnreachable),
    (exceptions.ResponseError("UNBLOCKED force unblock from blocking operation"), QueueUnreachable),
    (exceptions.ResponseError("MISCONF Errors writing to the AOF file"), QueueUnreachable),
    (ConnectionResetError(104, "Connection reset by peer"), QueueUnreachable),
    (exceptions.AuthenticationError("invalid username-password pair"), QueueDenied),
    (exceptions.AuthorizationError("no"), QueueDenied),
    (exceptions.NoPermissionError("User a has no permissions to run the 'get' command"), QueueDenied),
    (exceptions.ResponseError("ACL failure in script: User a has no permissions"), QueueDenied),
    (exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), QueueFull),
    (exceptions.ResponseError("WRONGTYPE Operation against a key"), QueueError),
    (exceptions.DataError("Invalid input of type: 'set'"), QueueError),
]


@pytest.mark.parametrize(("raised", "kind"), KINDS, ids=lambda value: str(value)[:24])
def test_what_a_redis_client_raises_has_one_kind(raised: Exception, kind: type[QueueError]) -> None:
    error = explained(raised, "redis://h:1/0")
    assert type(error) is kind
    assert "redis://h:1/0" in str(error)


def test_arguments_that_redis_repeats_are_not_in_the_text() -> None:
    said = "unknown command 'FOO', with args beginning with: 'my private ticket'"
    assert "private" not in str(explained(exceptions.ResponseError(said)))
