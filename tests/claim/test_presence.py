"""What others see of a node while it works, when it is killed and when it leaves."""

from __future__ import annotations

import signal

import pytest
import redis
from rq import SimpleWorker

from coolhead import __version__
from coolhead.job import queue_name
from coolhead.policy import Lane
from coolhead_worker.claim.desk import ClaimDesk
from coolhead_worker.claim.presence import NodeStatus, Presence, worker_name
from coolhead_worker.claim.settlement import Succeeded
from tests.claim.jobs import put, server_time

pytestmark = pytest.mark.server
BOTH = (Lane.INTERACTIVE, Lane.BULK)


def status(state: str = "idle", reason: str = "", lanes: tuple[Lane, ...] = BOTH) -> NodeStatus:
    return NodeStatus(state, reason, lanes, "nominal", "libnotify", "fast=smollm2@0123456789ab", "", 12.5)


def enter(connection: redis.Redis, node: str = "mac-1", **said: str) -> tuple[Presence, str]:
    name = worker_name(node)
    presence = Presence(connection, node=node, worker=name, lanes=BOTH)
    presence.enter(status(**said))
    return presence, name


def workers(connection: redis.Redis) -> list[str]:
    return sorted(worker.name for worker in SimpleWorker.all(connection=connection))


def test_rq_sees_the_worker_with_its_queues(connection: redis.Redis) -> None:
    _, name = enter(connection)
    (worker,) = SimpleWorker.all(connection=connection)
    assert (worker.name, worker.get_state(), worker.queue_names()) == (
        name,
        "idle",
        list(map(queue_name, BOTH)),
    )
    assert worker.birth_date is not None
    assert connection.smembers("rq:workers:coolhead-bulk") == {f"rq:worker:{name}".encode()}
    assert 80 < connection.ttl(f"rq:worker:{name}") <= 90


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ("starting", "started"),
        ("idle", "idle"),
        ("busy", "busy"),
        ("paused", "suspended"),
        ("draining", "busy"),
    ],
)
def test_a_state_is_shown_in_rqs_words(state: str, shown: str, connection: redis.Redis) -> None:
    enter(connection, state=state)
    (worker,) = SimpleWorker.all(connection=connection)
    assert worker.get_state() == shown


def test_the_nodes_hash_says_what_it_does_and_why(connection: redis.Redis) -> None:
    presence, name = enter(connection)
    assert presence.publish(status("paused", "thermal serious\n(scripted)", lanes=()))
    said = {key.decode(): value.decode() for key, value in connection.hgetall("coolhead:node:mac-1").items()}
    assert said == {
        "node": "mac-1", "worker": name, "state": "paused", "reason": "thermal serious (scripted)",
        "lanes": "", "thermal": "nominal", "source": "libnotify", "models": "fast=smollm2@0123456789ab",
        "version": __version__, "since": "12.500000", "metrics": "",
    }  # fmt: skip
    assert 10 < connection.ttl("coolhead:node:mac-1") <= 15
    presence.publish(status(lanes=(Lane.INTERACTIVE, Lane.BULK)))
    assert connection.hget("coolhead:node:mac-1", "lanes") == b"interactive,bulk"


def test_a_node_is_remembered_for_a_day(connection: redis.Redis) -> None:
    connection.zadd(
        "coolhead:nodes", {"old": server_time(connection) - 90_000, "new": server_time(connection)}
    )
    presence, _ = enter(connection)
    assert connection.zrange("coolhead:nodes", 0, -1) == [b"new", b"mac-1"]
    presence.leave()
    assert connection.zscore("coolhead:nodes", "mac-1") == pytest.approx(server_time(connection), abs=5)


def test_a_restart_replaces_what_a_killed_worker_left(connection: redis.Redis) -> None:
    _, killed = enter(connection)
    _, name = enter(connection)
    assert killed != name
    assert workers(connection) == [name]
    assert connection.exists(f"rq:worker:{killed}") == 0
    assert connection.scard("rq:workers:coolhead-bulk") == 1


def test_a_registration_without_a_worker_is_removed(connection: redis.Redis) -> None:
    _, killed = enter(connection)
    connection.delete(f"rq:worker:{killed}")
    _, name = enter(connection)
    assert connection.smembers("rq:workers") == {f"rq:worker:{name}".encode()}


def test_other_nodes_and_stock_workers_are_left_alone(connection: redis.Redis) -> None:
    _, neighbour = enter(connection, "mac-1-b")
    stock = SimpleWorker(["default"], connection=connection, name="mac-1-stock")
    stock.register_birth()
    _, name = enter(connection, "mac-1")
    assert workers(connection) == sorted([neighbour, "mac-1-stock", name])


def test_a_predecessor_that_was_only_asleep_neither_overwrites_nor_removes(connection: redis.Redis) -> None:
    asleep, _ = enter(connection)
    _, name = enter(connection)
    assert not asleep.publish(status("busy"))
    assert connection.hget("coolhead:node:mac-1", "state") == b"idle"
    asleep.leave()
    assert workers(connection) == [name]
    assert connection.hget("coolhead:node:mac-1", "worker") == name.encode()


def test_one_publish_restores_what_the_server_forgot(connection: redis.Redis) -> None:
    presence, name = enter(connection)
    connection.flushall()
    assert presence.publish(status())
    assert workers(connection) == [name]
    assert connection.exists("coolhead:node:mac-1") == 1


def test_a_leaving_worker_is_off_the_books(connection: redis.Redis) -> None:
    presence, _ = enter(connection)
    presence.leave()
    assert connection.keys() == [b"coolhead:nodes"]


def test_rq_shows_how_many_jobs_the_worker_ended(connection: redis.Redis) -> None:
    presence, name = enter(connection)
    desk = ClaimDesk(connection, worker=name, node="mac-1")
    put(connection, "a", "b")
    desk.settle([Succeeded(claimed, {}) for claimed in desk.claim(BOTH, 2).claimed])
    presence.publish(status())
    (worker,) = SimpleWorker.all(connection=connection)
    assert (worker.successful_job_count, worker.failed_job_count) == (2, 0)


def test_settling_does_not_bring_back_a_worker_that_has_left(connection: redis.Redis) -> None:
    presence, name = enter(connection)
    desk = ClaimDesk(connection, worker=name, node="mac-1")
    put(connection, "a")
    (claimed,) = desk.claim(BOTH, 1).claimed
    presence.leave()
    desk.settle([Succeeded(claimed, {})])
    assert connection.keys("rq:worker*") == []


def test_entering_installs_no_signal_handlers(connection: redis.Redis) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    presence, _ = enter(connection)
    presence.leave()
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_names_of_one_node_never_repeat() -> None:
    names = {worker_name("mac-1") for _ in range(1000)}
    assert len(names) == 1000
    assert all(name.startswith("mac-1-") for name in names)
