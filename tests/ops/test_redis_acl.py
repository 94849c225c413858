"""The users of the example ACL file, on a real server."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from redis.exceptions import NoPermissionError
from rq import Queue, SimpleWorker
from rq.job import Job

from coolhead.answers import Outcome
from coolhead.client import DecisionQueue
from coolhead.conversation import hold
from coolhead.errors import WaitTimeout
from coolhead.fleet import read_fleet
from coolhead.job import queue_name
from coolhead.policy import Lane
from coolhead_worker.claim.desk import ClaimDesk
from coolhead_worker.claim.presence import NodeStatus, Presence, worker_name
from coolhead_worker.claim.settlement import Failed, Released, Retried, Settled, Succeeded
from tests.conftest import Valkey
from tests.ops.conftest import OPS, ROOT

USERS = OPS / "redis" / "users.acl.example"
ROLES = ("producer", "worker", "monitor")
PASSWORD = "only-for-this-test"

Login = Callable[[str], "redis.Redis"]


def rules_of(user: str) -> list[str]:
    """The words of a user's line, with a password of ours."""
    line = next(line for line in USERS.read_text().splitlines() if line.startswith(f"user {user} "))
    return re.sub(r">CHANGE-ME-\w+", f">{PASSWORD}", line).split(" ", 2)[2].split(" ")


def commands_of(user: str) -> set[str]:
    return {word[1:] for word in rules_of(user) if word.startswith("+")}


@pytest.fixture
def login(valkey: Valkey) -> Iterator[Login]:
    """Connections as a user of the example file, on the real server."""
    admin = valkey.client()
    opened: list[redis.Redis] = []
    for role in ROLES:
        admin.execute_command("ACL", "SETUSER", role, "reset", *_whole_words(rules_of(role)))

    def connect(role: str) -> redis.Redis:
        client = redis.Redis.from_url(valkey.url, username=role, password=PASSWORD)
        opened.append(client)
        return client

    yield connect
    for client in opened:
        client.close()
    admin.execute_command("ACL", "DELUSER", *ROLES)
    admin.close()


def _whole_words(words: list[str]) -> list[str]:
    """A selector in brackets is one word to SETUSER."""
    return re.findall(r"\([^)]*\)|\S+", " ".join(words))


FORBIDDEN: dict[str, list[tuple[str, ...]]] = {
    "everybody": [
        ("FLUSHALL",),
        ("FLUSHDB",),
        ("KEYS", "*"),
        ("CONFIG", "GET", "*"),
        ("CONFIG", "SET", "maxmemory", "1"),
        ("SHUTDOWN",),
        ("ACL", "LIST"),
        ("SCAN", "0"),
        ("MONITOR",),
        ("SAVE",),
        ("SCRIPT", "FLUSH"),
        ("CLIENT", "KILL", "ID", "1"),
        ("REPLICAOF", "NO", "ONE"),
        ("SET", "other:key", "x"),
    ],
    "producer": [
        ("LPOP", "rq:queue:x"),
        ("BLPOP", "rq:queue:x", "1"),
        ("DEL", "rq:job:x"),
        ("LRANGE", "rq:queue:x", "0", "-1"),
        ("HDEL", "rq:job:x", "a"),
        ("XADD", "rq:results:x", "*", "a", "b"),
        ("SREM", "rq:workers", "x"),
    ],
    "worker": [
        ("HGETALL", "other:key"),
        ("EVAL", "return redis.call('FLUSHALL')", "0"),
        ("RENAME", "rq:a", "rq:b"),
    ],
    "monitor": [
        ("HSET", "rq:job:x", "a", "b"),
        ("HGETALL", "rq:job:x"),
        ("XREAD", "STREAMS", "rq:results:x", "0"),
        ("ZADD", "coolhead:nodes", "1", "x"),
        ("RPUSH", "coolhead:wake", "1"),
        ("EVAL", "return 1", "0"),
        ("HMGET", "rq:job:x", "data"),
        ("DEL", "rq:queue:x"),
    ],
}


@pytest.mark.server
@pytest.mark.parametrize("role", ROLES)
def test_a_role_is_refused_what_it_does_not_need(login: Login, role: str) -> None:
    client = login(role)
    for command in (*FORBIDDEN["everybody"], *FORBIDDEN[role]):
        with pytest.raises(
            (NoPermissionError, redis.ResponseError), match=r"(?i)no permissions|NOPERM|ACL failure"
        ):
            client.execute_command(*command)


@pytest.fixture
def refusals(valkey: Valkey) -> Iterator[Callable[[], object]]:
    """What the server has refused since the beginning of the test."""
    admin = valkey.client()
    admin.execute_command("ACL", "LOG", "RESET")
    yield lambda: admin.execute_command("ACL", "LOG")
    admin.close()


STATUS = NodeStatus(
    state="idle",
    reason="",
    lanes=tuple(Lane),
    thermal="nominal",
    source="x",
    models="",
    metrics="",
    since=0.0,
)
QUESTIONS = {"refund": {"type": "noul", "instructions": "money back?"}}


@pytest.mark.server
def test_a_producer_can_queue_and_wait_and_learn_why_nothing_comes(
    login: Login, refusals: Callable[[], object]
) -> None:
    queue = DecisionQueue(login("producer"))
    ticket = queue.submit("hello", questions=QUESTIONS, deadline_s=60)
    assert ticket.new
    assert not queue.submit("hello", questions=QUESTIONS, deadline_s=60).new
    with pytest.raises(WaitTimeout):
        queue.wait(ticket, 0.05)
    assert refusals() == []


@pytest.mark.server
def test_the_monitor_can_read_the_fleet(valkey: Valkey, login: Login, refusals: Callable[[], object]) -> None:
    DecisionQueue(login("producer")).submit("hello", questions=QUESTIONS, lane="bulk")
    with valkey.client() as admin:
        admin.zadd("coolhead:nodes", {"mac-1": 1.0})
        admin.hset("coolhead:node:mac-1", "state", "idle")
    fleet = hold(login("monitor"), read_fleet())
    assert [(node.name, node.state) for node in fleet.nodes] == [("mac-1", "idle")]
    assert {lane.lane: lane.queued for lane in fleet.lanes} == {Lane.INTERACTIVE: 0, Lane.BULK: 1}
    assert refusals() == []


@pytest.mark.server
def test_a_worker_can_do_all_its_work(login: Login, refusals: Callable[[], object]) -> None:
    producer, connection = DecisionQueue(login("producer")), login("worker")
    for number in range(5):
        producer.submit(f"hello {number}", questions=QUESTIONS, lane="bulk", job_id=f"j{number}")
    name = worker_name("mac-1")
    presence = Presence(connection, node="mac-1", worker=name, lanes=tuple(Lane))
    presence.enter(STATUS)
    desk = ClaimDesk(connection, worker=name, node="mac-1")
    one, two, three, four, five = desk.claim(tuple(Lane), 8).claimed
    assert desk.renew([one, two, three, four, five]) == set()
    settled = desk.settle(
        [
            Succeeded(one, {}),
            Failed(two, Outcome.PERMANENT, "JobFailed", "no"),
            Retried(three, 5.0, "DecodeFailed", "again"),
            Retried(four, 0.0, "DecodeFailed", "again"),
            Released(five, "thermal serious (scripted)"),
        ]
    )
    assert settled == [Settled.SETTLED] * 5
    desk.reap()
    assert desk.wait(0.1)
    presence.publish(STATUS)
    presence.leave()
    assert refusals() == []


@pytest.mark.server
def test_stock_rq_works_as_producer_and_worker(login: Login, refusals: Callable[[], object]) -> None:
    queue = Queue("coolhead-bulk", connection=login("producer"), serializer="json")
    queue.enqueue("math.sqrt", 16.0, job_id="j1")
    queue.enqueue_many([Queue.prepare_data("math.sqrt", (9.0,), job_id="j2")])
    worker = SimpleWorker(
        [Queue("coolhead-bulk", connection=login("worker"), serializer="json")],
        connection=login("worker"),
        serializer="json",
    )
    assert worker.work(burst=True, logging_level="CRITICAL")
    answered = Job.fetch("j1", connection=login("producer"), serializer="json")
    assert answered.return_value() == 4.0
    assert refusals() == []


@pytest.mark.server
def test_the_monitor_may_look_at_every_registry_and_at_the_server(login: Login) -> None:
    monitor = login("monitor")
    for lane in Lane:
        for registry in ("wip", "lease", "scheduled", "deadline", "finished", "failed", "quarantine"):
            assert monitor.zcard(f"rq:{registry}:{queue_name(lane)}") == 0
    assert monitor.smembers("rq:workers") == set()
    assert monitor.hgetall("rq:worker:mac-1") == {}
    assert monitor.info("memory")["maxmemory_policy"] == "noeviction"


def _called(folder: Path) -> dict[str, set[str]]:
    """Commands that the Lua scripts of a folder call, by file."""
    return {
        path.name: {
            command.lower() for command in re.findall(r"redis\.call\('([A-Za-z]+)'", path.read_text())
        }
        for path in folder.rglob("*.lua")
    }


@pytest.mark.parametrize(
    ("role", "folder"), [("producer", "producer/coolhead"), ("worker", "worker/coolhead_worker/claim")]
)
def test_a_role_may_run_every_command_of_its_scripts(role: str, folder: str) -> None:
    scripts = _called(ROOT / folder)
    assert scripts
    missing_ones = {name: called - commands_of(role) for name, called in scripts.items()}
    assert {name: some for name, some in missing_ones.items() if some} == {}


@pytest.mark.parametrize("role", ["producer", "monitor"])
def test_the_client_side_sends_no_other_commands(role: str) -> None:
    files = (
        ["fleet.py"]
        if role == "monitor"
        else [path.name for path in (ROOT / "producer/coolhead").glob("*.py")]
    )
    for name in files:
        text = (ROOT / "producer" / "coolhead" / name).read_text()
        sent = {command.lower() for command in re.findall(r'\("([A-Z]{3,})"', text)} - {"block"}
        assert sent <= commands_of(role), name


def test_no_example_password_looks_like_a_real_one() -> None:
    passwords = re.findall(r">(\S+)", USERS.read_text())
    assert passwords == [f"CHANGE-ME-{role.upper()}" for role in ("admin", *ROLES)]
    assert "nopass" not in USERS.read_text()
    assert "user default off\n" in USERS.read_text()
