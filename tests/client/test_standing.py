"""Why a job waits, in one line; and the fleet that the line is made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from coolhead.client import DecisionQueue
from coolhead.fleet import Fleet, Node
from coolhead.policy import Lane
from coolhead.standing import PLACES_COUNTED, Standing, why_waiting
from tests.client.settler import write_node
from tests.client.test_layout import QUESTIONS
from tests.conftest import Valkey

HOT = Node("studio-3", "paused", reason="thermal serious (scripted)")
WARM = Node("mini-1", "idle", reason="thermal fair (sysfs)", lanes=("interactive",))
OPEN = Node("mini-2", "busy", lanes=("interactive", "bulk"))
LOADING = Node("mini-3", "starting")
LEAVING = Node("mini-4", "draining", lanes=("interactive", "bulk"))
GONE = Node("old", "gone", seen_at=960.0)
LONG_GONE = Node("older", "gone", seen_at=100.0)


def job(status: str = "queued", lane: Lane = Lane.BULK, **more: Any) -> Standing:
    return Standing("j", status, lane, more.pop("place", None), waited_s=3.0, **more)


WHY = [
    (job(), [], "queued; no node is up"),
    (job(), [LONG_GONE, GONE], "queued; no node is up (node old was last seen 40 s ago)"),
    (job(), [HOT, GONE], "queued; node studio-3 paused: thermal serious (scripted)"),
    (job(), [WARM], "queued; node mini-1 closed for bulk: thermal fair (sysfs)"),
    (job(lane=Lane.INTERACTIVE), [WARM, HOT], "queued; node mini-1 at work"),
    (job(place=7), [OPEN, HOT], "queued (place 7); node mini-2 at work"),
    (job(place=7), [OPEN, OPEN, OPEN], "queued (place 7); node mini-2 and 2 more at work"),
    (job(), [LOADING], "queued; node mini-3 starting"),
    (job(), [LEAVING], "queued; node mini-4 draining"),
    (job(), [HOT, LOADING], "queued; node studio-3 paused: thermal serious (scripted); node mini-3 starting"),
    (job(), [LOADING] * 5, "queued; " + "node mini-3 starting; " * 3 + "and 2 more nodes"),
    (job(defers=2), [OPEN], "queued; node mini-2 at work; put back 2 times"),
    (job("started", node="mini-2"), [OPEN], "running on node mini-2"),
    (job("started"), [], "running"),
    (
        job("scheduled", attempts=1, error_code="DecodeFailed"),
        [OPEN],
        "waits for try 2 after DecodeFailed; node mini-2 at work",
    ),
    (job("finished"), [OPEN], "finished"),
]


@pytest.mark.parametrize(("standing", "nodes", "line"), WHY, ids=[row[2][:40] for row in WHY])
def test_one_line_says_why_a_job_waits(standing: Standing, nodes: list[Node], line: str) -> None:
    assert why_waiting(standing, Fleet(1000.0, tuple(nodes), ())) == line


@pytest.mark.parametrize(
    ("node", "interactive", "bulk"),
    [
        (OPEN, True, True),
        (WARM, True, False),
        (HOT, False, False),
        (LOADING, False, False),
        (LEAVING, False, False),
        (GONE, False, False),
    ],
    ids=lambda value: value.name if isinstance(value, Node) else "",
)
def test_a_node_takes_what_its_open_lanes_say(node: Node, interactive: bool, bulk: bool) -> None:
    assert (node.takes("interactive"), node.takes("bulk"), node.takes(None)) == (interactive, bulk, False)


@pytest.fixture
def connection(valkey: Valkey) -> Iterator[redis.Redis]:
    with valkey.client() as client:
        yield client


@pytest.fixture
def queue(valkey: Valkey) -> Iterator[DecisionQueue]:
    with DecisionQueue.from_url(valkey.url) as queue:
        yield queue


@pytest.mark.server
def test_nodes_are_read_as_they_show_themselves(queue: DecisionQueue, connection: redis.Redis) -> None:
    for node in (HOT, WARM, OPEN, GONE):
        write_node(connection, node)
    found = {node.name: node for node in queue.fleet().nodes}
    assert list(found) == sorted(found)
    for node in (HOT, WARM, OPEN, GONE):
        assert (found[node.name].state, found[node.name].reason) == (node.state, node.reason)
        assert found[node.name].lanes == node.lanes
    assert found["old"].seen_at == 960.0


@pytest.mark.server
def test_a_node_hash_with_odd_values_does_no_harm(queue: DecisionQueue, connection: redis.Redis) -> None:
    write_node(connection, OPEN)
    connection.hset("coolhead:node:mini-2", mapping={"since": "soon", "lanes": ",", "new field": "x"})
    (node,) = queue.fleet().nodes
    assert (node.since, node.lanes) == (0.0, ())


@pytest.mark.server
def test_depths_are_read_without_cleaning_anything(queue: DecisionQueue, connection: redis.Redis) -> None:
    queue.submit_many([{"state": f"s{n}", "questions": QUESTIONS, "lane": "bulk"} for n in range(3)])
    long_past = {"a": 1.0, "b": 2.0}
    for name in ("wip", "scheduled", "finished", "failed", "quarantine"):
        connection.zadd(f"rq:{name}:coolhead-bulk", long_past)
    for _ in range(2):
        bulk = queue.fleet().lanes[1]
        counts = (bulk.queued, bulk.running, bulk.delayed, bulk.finished, bulk.failed, bulk.quarantined)
        assert counts == (3, 2, 2, 2, 2, 2)


@pytest.mark.server
def test_reading_the_fleet_asks_only_for_lengths(queue: DecisionQueue, connection: redis.Redis) -> None:
    queue.submit_many([{"state": f"s{n}", "questions": QUESTIONS} for n in range(50)])
    write_node(connection, OPEN)
    connection.config_resetstat()
    queue.fleet()
    asked = {name.removeprefix("cmdstat_") for name in connection.info("commandstats")}
    allowed = {"time", "zrevrange", "llen", "zcard", "hget", "lindex", "hgetall"}
    assert asked - {"config|resetstat", "info", "hello", "client|setinfo", "client|setname"} == allowed


@pytest.mark.server
def test_the_age_of_a_lane_is_that_of_the_job_in_front(queue: DecisionQueue, connection: redis.Redis) -> None:
    ticket = queue.submit("first", questions=QUESTIONS)
    queue.submit("second", questions=QUESTIONS)
    seconds, _ = connection.time()
    connection.hset(f"rq:job:{ticket.id}", "first_enqueued", seconds - 100)
    assert queue.fleet().lanes[0].oldest_s == pytest.approx(100, abs=10)


@pytest.mark.server
def test_a_status_has_all_that_a_worker_wrote(queue: DecisionQueue, connection: redis.Redis) -> None:
    ticket = queue.submit("hello", questions=QUESTIONS)
    said = {
        "status": "failed", "deliveries": 2, "attempts": 1, "defers": 3, "defer_reason": "thermal serious",
        "node": "mini-2", "outcome": "permanent", "error_code": "StateTooLong", "error": "too long",
    }  # fmt: skip
    connection.hset(f"rq:job:{ticket.id}", mapping=said)
    wire = queue.status(ticket).wire()
    assert {key: wire[key] for key in said} == said


@pytest.mark.server
def test_a_place_far_back_is_not_looked_for(queue: DecisionQueue, connection: redis.Redis) -> None:
    connection.rpush("rq:queue:coolhead-interactive", *(f"x{n}" for n in range(PLACES_COUNTED)))
    ticket = queue.submit("hello", questions=QUESTIONS)
    standing = queue.status(ticket)
    assert (standing.status, standing.place) == ("queued", None)
