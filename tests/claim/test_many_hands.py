"""Three desks and every interleaving: a simple model against the real server."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from coolhead.answers import Outcome
from coolhead.job import queue_name
from coolhead.policy import Lane
from coolhead_worker.claim.desk import ClaimDesk
from coolhead_worker.claim.settlement import (
    Failed,
    Released,
    Retried,
    Settled,
    Settlement,
    Succeeded,
)
from tests.claim.jobs import answers, end_lease, field, places, put, waiting
from tests.claim.model import MAX_DELIVERIES, WAITING, Hold, Model

BOTH = (Lane.INTERACTIVE, Lane.BULK)
VERBS = ["succeed", "fail", "release", "retry", "retry later"]


class ManyHands(RuleBasedStateMachine):
    """Every rule acts on the server and on the model; invariants compare the two."""

    connection: redis.Redis

    def __init__(self) -> None:
        super().__init__()
        self.connection.flushdb()
        self.desks = [
            ClaimDesk(
                self.connection, worker=f"mac-{n}-1", node=f"mac-{n}",
                max_deliveries=MAX_DELIVERIES, reap_every_s=0.0,
            )
            for n in range(3)
        ]  # fmt: skip
        self.model = Model()
        self.clock = itertools.count(1)

    # -- the rules

    @rule(lane=st.sampled_from(BOTH), count=st.integers(1, 6))
    def enqueue(self, lane: Lane, count: int) -> None:
        names = [f"job-{len(self.model.jobs) + n}" for n in range(count)]
        put(self.connection, *names, lane=lane, deadline_s=1000)
        self.model.enqueue(lane, names)

    @rule(desk=st.integers(0, 2), lanes=st.sampled_from([BOTH, BOTH[:1], BOTH[1:], BOTH[::-1]]),
          limit=st.integers(1, 5))  # fmt: skip
    def claim(self, desk: int, lanes: tuple[Lane, ...], limit: int) -> None:
        expected, expired = self.model.claim(lanes, limit)
        claims = self.desks[desk].claim(lanes, limit)
        assert [claimed.job_id for claimed in claims.claimed] == expected
        assert [lane for lane, _ in claims.expired] == expired
        for claimed in claims.claimed:
            known = self.model.hold(self.desks[desk], claimed)
            told = (claimed.deliveries, claimed.attempts, claimed.defers)
            assert told == (known.deliveries, known.attempts, known.defers)

    @precondition(lambda self: self.model.holds)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        mine = self._hands_full(data)
        chosen = mine[: data.draw(st.integers(1, len(mine)))]
        verbs = data.draw(st.lists(st.sampled_from(VERBS), min_size=len(chosen), max_size=len(chosen)))
        self._settle(chosen, verbs)

    @precondition(lambda self: self.model.holds)
    @rule(data=st.data(), verb=st.sampled_from(["release", "retry"]))
    def put_everything_back(self, data: st.DataObject, verb: str) -> None:
        """The machine has become hot, or its model call has failed."""
        mine = self._hands_full(data)
        self._settle(mine, [verb] * len(mine))

    def _hands_full(self, data: st.DataObject) -> list[Hold]:
        """All that one desk holds, in any order."""
        desk = data.draw(st.sampled_from([hold.desk for hold in self.model.holds]))
        return data.draw(st.permutations([hold for hold in self.model.holds if hold.desk is desk]))

    def _settle(self, chosen: list[Hold], verbs: list[str]) -> None:
        settlements = [self._settlement(hold, verb) for hold, verb in zip(chosen, verbs, strict=True)]
        assert chosen[0].desk.settle(settlements) == [Settled.SETTLED] * len(chosen)
        self.model.settle(chosen, verbs)

    def _settlement(self, hold: Hold, verb: str) -> Settlement:
        claimed = hold.claimed
        made: dict[str, Settlement] = {
            "succeed": Succeeded(claimed, {"by": claimed.execution_id}),
            "fail": Failed(claimed, Outcome.REJECTED, "JobRejected", "no"),
            "release": Released(claimed, "hot"),
            "retry": Retried(claimed, 0.0, "DecodeFailed", "rc"),
            "retry later": Retried(claimed, 1000.0, "DecodeFailed", "rc"),
        }
        hold.settled.append(made[verb])
        return made[verb]

    @precondition(lambda self: self.model.past)
    @rule(data=st.data())
    def settle_once_more(self, data: st.DataObject) -> None:
        """A dead or slow desk sends what it had sent, or had not sent; nothing may change."""
        hold = data.draw(st.sampled_from(self.model.past))
        settlement = hold.settled[0] if hold.settled else self._settlement(hold, "succeed")
        written = self.model.jobs[hold.claimed.job_id].settled_by == hold.claimed.execution_id
        assert hold.desk.settle([settlement]) == [Settled.SETTLED if written else Settled.LOST]

    @rule(desk=st.integers(0, 2), limit=st.integers(1, 5), deaths=st.integers(1, 3))
    def crash_with_every_batch(self, desk: int, limit: int, deaths: int) -> None:
        """A poison job at the front: batch after batch ends its worker."""
        for _ in range(deaths):
            self.claim(desk, BOTH, limit)
            self._die(self.desks[desk])
            self.reap((desk + 1) % 3)

    @precondition(lambda self: self.model.holds)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """One desk dies with everything it holds."""
        self._die(data.draw(st.sampled_from([hold.desk for hold in self.model.holds])))

    def _die(self, desk: ClaimDesk) -> None:
        for hold in self.model.holds:
            if hold.desk is desk:
                end_lease(self.connection, hold.claimed)
                hold.over = True

    @precondition(lambda self: self.model.holds)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        desk = data.draw(st.sampled_from(self.desks))
        held = [hold for hold in self.model.holds if hold.desk is desk]
        ghosts = [hold for hold in self.model.past if hold.desk is desk]
        lost = desk.renew([hold.claimed for hold in held + ghosts])
        assert lost == {hold.claimed.execution_id for hold in ghosts}
        for hold in held:
            hold.over = False

    @precondition(lambda self: self.model.scheduled)
    @rule()
    def let_retries_fall_due(self) -> None:
        for name in self.model.scheduled:
            key = f"rq:scheduled:{queue_name(self.model.jobs[name].lane)}"
            self.connection.zadd(key, {name: float(next(self.clock))}, xx=True)
            self.model.jobs[name].due = True

    @precondition(lambda self: any(known.place in WAITING for known in self.model.jobs.values()))
    @rule(data=st.data())
    def let_a_deadline_pass(self, data: st.DataObject) -> None:
        names = [name for name, known in self.model.jobs.items() if known.place in WAITING]
        name = data.draw(st.sampled_from(names))
        self.model.jobs[name].late = True
        self.connection.hset(f"rq:job:{name}", "deadline_at", "1.0")
        self.connection.zadd(f"rq:deadline:{queue_name(self.model.jobs[name].lane)}", {name: 1.0}, xx=True)

    @rule(desk=st.integers(0, 2))
    def reap(self, desk: int) -> None:
        expected = self.model.reap()
        reaped = self.desks[desk].reap()
        told = (reaped.expired, reaped.promoted, reaped.recovered, reaped.quarantined)
        assert told == expected

    # -- what must hold after every step

    @invariant()
    def every_queue_has_its_jobs_in_order(self) -> None:
        assert {lane: waiting(self.connection, lane) for lane in Lane} == self.model.queues

    @invariant()
    def every_job_is_in_exactly_one_place(self) -> None:
        for name, known in self.model.jobs.items():
            assert places(self.connection, name, known.lane) == [known.place], name

    @invariant()
    def a_job_has_one_answer_exactly_when_it_succeeded(self) -> None:
        for name, known in self.model.jobs.items():
            expected = [{"by": known.settled_by}] if known.place == "finished" else []
            assert answers(self.connection, name) == expected

    @invariant()
    def deadlines_are_watched_exactly_while_jobs_wait(self) -> None:
        for lane in Lane:
            watched = {
                name.decode() for name in self.connection.zrange(f"rq:deadline:{queue_name(lane)}", 0, -1)
            }
            here = {n: known for n, known in self.model.jobs.items() if known.lane is lane}
            assert watched == {n for n, known in here.items() if known.place in WAITING}

    def teardown(self) -> None:
        """Whatever happened, every job can still be brought to an end."""
        for hold in self.model.holds:
            end_lease(self.connection, hold.claimed)
        for name in self.model.scheduled:
            key = f"rq:scheduled:{queue_name(self.model.jobs[name].lane)}"
            self.connection.zadd(key, {name: 1.0}, xx=True)
        desk = self.desks[0]
        for _ in range(len(self.model.jobs) + 1):
            desk.reap()
            batch = desk.claim(BOTH, 5).claimed
            desk.settle([Succeeded(claimed, {"by": claimed.execution_id}) for claimed in batch])
        for name, known in self.model.jobs.items():
            assert places(self.connection, name, known.lane) in (["finished"], ["failed"]), name
            succeeded = field(self.connection, name, "outcome") == "succeeded"
            assert len(answers(self.connection, name)) == succeeded
        assert self.connection.keys("rq:lease:*") == self.connection.keys("rq:execution*") == []


@pytest.mark.server
@pytest.mark.timeout(400)  # a failure is shrunk for up to five minutes before it is shown
def test_no_interleaving_loses_doubles_or_reorders_a_job(valkey: Any) -> None:
    machine = type("Machine", (ManyHands,), {"connection": valkey.client()})
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine,
        settings=settings(
            max_examples=80,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
    machine.connection.close()
