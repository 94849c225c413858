"""`Watch` without a server: its talk is answered by hand, on a clock that is moved by hand."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ConnectionError as LostConnection
from redis.exceptions import NoPermissionError

from coolhead.client import job_id_of
from coolhead.conversation import Call, Pause
from coolhead.enqueue import Ticket
from coolhead.errors import JobFailed, JobNotFound
from coolhead.policy import Lane
from coolhead.results import Answer
from coolhead.waiting import LOOK_EVERY_S, Watch


class Server:
    """Answers the steps of a `Watch` by a script; moves the clock by what a step would take."""

    def __init__(self, *replies: Any) -> None:
        self.now = 0.0
        self.pauses: list[float] = []
        self.asked: list[tuple[Any, ...]] = []
        self._replies = list(replies)

    def clock(self) -> float:
        return self.now

    def watch(self, *job_ids: str, timeout_s: float | None = 10.0, just_queued: bool = False) -> Watch:
        return Watch(job_ids, timeout_s=timeout_s, block_s=3.0, clock=self.clock, just_queued=just_queued)

    def run(self, watch: Watch) -> list[tuple[str, Answer]]:
        talk = watch.next()
        try:
            step = next(talk)
            while True:
                reply = self._reply(step)
                step = talk.throw(reply) if isinstance(reply, Exception) else talk.send(reply)
        except StopIteration as end:
            return end.value

    def _reply(self, step: Call | Pause) -> Any:
        if isinstance(step, Pause):
            self.pauses.append(step.seconds)
            self.now += step.seconds
            return None
        self.asked.append(step.commands[0])
        reply = self._replies.pop(0)
        if reply is NOTHING:
            command = step.commands[0]
            if command[1] == "BLOCK":
                self.now += command[2] / 1000
            return [[], *[QUEUED] * (len(step.commands) - 1)]
        return reply


NOTHING = object()
QUEUED = [b"queued", None, None, None]
GONE = [None, None, None, None]


def entry(job_id: str, **fields: Any) -> list[Any]:
    said = {key.encode(): str(value).encode() for key, value in fields.items()}
    return [[f"rq:results:{job_id}".encode(), [(b"1-0", said)]]]


def test_a_job_that_is_deleted_while_it_is_waited_for_is_reported() -> None:
    server = Server(NOTHING, NOTHING, NOTHING, [[], GONE])
    ((job_id, answer),) = server.run(server.watch("j", timeout_s=None))
    assert (job_id, type(answer)) == ("j", JobNotFound)
    assert server.now == pytest.approx(LOOK_EVERY_S)


def test_a_job_just_queued_is_not_looked_at_first() -> None:
    server = Server([entry("j", type=3)], [[entry("j", type=3)[0]], [b"failed", None, None, None]])
    server.run(server.watch("j", just_queued=True))
    assert server.asked[0][:2] == ("XREAD", "BLOCK")
    assert server.asked[1][:2] == ("XREAD", "STREAMS")  # a failure is looked at before it is believed


def test_an_outage_is_borne_with_growing_pauses() -> None:
    lost = LostConnection("gone")
    server = Server(NOTHING, *[lost] * 6, [entry("j", type=3), [b"failed", None, None, None]])
    ((_, answer),) = server.run(server.watch("j"))
    assert isinstance(answer, JobFailed)
    # Pauses double from 0.05 s up to 1 s, each with a jitter that takes off up to half.
    limits = [0.05, 0.1, 0.2, 0.4, 0.8, 1.0]
    assert len(server.pauses) == 6
    assert all(limit / 2 <= pause <= limit for pause, limit in zip(server.pauses, limits, strict=True))


def test_an_outage_longer_than_the_timeout_is_raised() -> None:
    server = Server(*[LostConnection("gone")] * 100)
    with pytest.raises(LostConnection):
        server.run(server.watch("j", timeout_s=2.0))
    assert server.now == pytest.approx(2.0)


def test_a_refusal_is_raised_at_once() -> None:
    server = Server([NoPermissionError("User p has no permissions to run the 'xread' command")])
    with pytest.raises(NoPermissionError):
        server.run(server.watch("j"))
    assert server.now == 0.0


def test_a_timeout_of_zero_looks_once_and_does_not_block() -> None:
    denied = NoPermissionError("no")
    server = Server(NOTHING, [denied] * 4)
    ((_, answer),) = server.run(server.watch("j", timeout_s=0))
    assert str(answer) == "no answer within 0 s"  # the user may not see why
    assert server.now == 0.0
    assert [command[0] for command in server.asked] == ["XREAD", "TIME"]
    assert "BLOCK" not in server.asked[0]


def test_tickets_and_ids_mean_the_same() -> None:
    assert job_id_of(Ticket("j", Lane.BULK)) == job_id_of("j") == "j"
