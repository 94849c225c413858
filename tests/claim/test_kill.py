"""Real workers, really killed."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from coolhead.policy import Lane
from coolhead_worker.claim.desk import ClaimDesk
from coolhead_worker.claim.settlement import Settled, Succeeded
from tests.claim.jobs import answers, field, places, put, until, waiting

pytestmark = [pytest.mark.server, pytest.mark.process]
BOTH = (Lane.INTERACTIVE, Lane.BULK)
Start = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def start(valkey: Any) -> Iterator[Start]:
    """Starts victims; none outlives the test."""
    started: list[subprocess.Popen[str]] = []
    numbers = itertools.count()

    def run(what: str) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            str(Path(__file__).with_name("victim.py")),
            valkey.url,
            f"v-{next(numbers)}",
        ]
        started.append(
            subprocess.Popen([*command, what], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        return started[-1]

    yield run
    for victim in started:
        kill(victim)
        for pipe in (victim.stdin, victim.stdout):
            if pipe is not None:
                pipe.close()


def kill(victim: subprocess.Popen[str]) -> None:
    victim.kill()
    victim.wait()


def test_a_killed_workers_batch_comes_back_in_order_after_its_lease(
    start: Start, desks: Callable[..., ClaimDesk], connection: redis.Redis
) -> None:
    put(connection, *"abcdef")
    victim = start("hold")
    assert victim.stdout is not None
    assert victim.stdout.readline().split() == list("abcd")
    kill(victim)
    assert [field(connection, job_id, "status") for job_id in "abcd"] == ["started"] * 4
    desk = desks()
    until(lambda: desk.reap().recovered)
    assert waiting(connection) == list("abcdef")
    batch = desk.claim(BOTH, 10).claimed
    assert [claimed.deliveries for claimed in batch] == [2, 2, 2, 2, 1, 1]
    assert set(desk.settle([Succeeded(claimed, {"by": "desk"}) for claimed in batch])) == {Settled.SETTLED}
    assert [answers(connection, job_id) for job_id in "abcdef"] == [[{"by": "desk"}]] * 6


def test_no_job_is_lost_or_answered_twice_while_workers_die(start: Start, connection: redis.Redis) -> None:
    names = [f"job-{n}" for n in range(600)]
    put(connection, *names[:300])
    put(connection, *names[300:], lane=Lane.BULK)

    def finished() -> int:
        return sum(connection.zcard(f"rq:finished:coolhead-{lane.value}") for lane in Lane)

    victims = [start("work"), start("work")]
    for death in range(4):
        goal = min(finished() + 15, 400)
        until(lambda goal=goal: finished() >= goal)
        kill(victims[death % 2])
        victims[death % 2] = start("work")
    until(lambda: finished() == 600, timeout_s=30.0)
    assert [len(answers(connection, job_id)) for job_id in names] == [1] * 600
    assert places(connection, names[0]) == places(connection, names[-1], Lane.BULK) == ["finished"]
    until(lambda: not connection.keys("rq:lease:*"))
    assert connection.keys("rq:wip:*") == connection.keys("rq:execution*") == []
