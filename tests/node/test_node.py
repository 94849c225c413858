"""The loop: gate, claim, gate again, one call, settle."""

from __future__ import annotations

import threading

import pytest
from rq.job import Job as RqJob
from rq.serializers import JSONSerializer

from coolhead.errors import (
    DecodeFailed,
    FunctionRefused,
    JobFailed,
    ModelCorrupt,
    StateTooLong,
    UnknownVersion,
    WaitTimeout,
)
from coolhead.job import FUNCTION
from coolhead_worker.admission.conditions import Conditions, Thermal

from .conftest import NODE, REFUND, Rig

pytestmark = pytest.mark.server


def ask(rig: Rig, text: str = "I want my money back", **wanted):
    return rig.queue.submit(text, questions=REFUND, **wanted)


def test_a_job_is_answered_with_probabilities_tier_node_and_timings(running: Rig) -> None:
    decision = running.queue.wait(ask(running), timeout_s=10)
    answer = decision.answers["refund"]
    assert sum(answer.probabilities.values()) == pytest.approx(1.0, abs=1e-9)
    assert (decision.node, answer.tier.value, answer.status.value) == (NODE, "fast", "uncalibrated")
    assert decision.timing.wait_s >= 0
    assert decision.timing.fast_s >= 0
    assert (decision.attempts, decision.defers) == (1, 0)


def test_stock_rq_reads_the_answer(running: Rig) -> None:
    ticket = ask(running)
    decision = running.queue.wait(ticket, timeout_s=10)
    job = RqJob.fetch(ticket.id, running.connection, serializer=JSONSerializer)
    assert job.return_value() == decision.wire()
    assert job.get_status().value == "finished"


@pytest.mark.parametrize("level", [Thermal.SERIOUS, Thermal.CRITICAL])
def test_a_hot_node_takes_nothing_and_the_waiting_client_is_told_why(running: Rig, level: Thermal) -> None:
    running.sensor.become(level)
    closed = threading.Event()

    def look() -> None:
        while not running.queue.fleet().nodes or not running.queue.fleet().nodes[0].reason:
            closed.wait(0.02)
        closed.set()

    look()
    ticket = ask(running)
    with pytest.raises(WaitTimeout, match=f"thermal {level.value}"):
        running.queue.wait(ticket, timeout_s=0.5)
    assert running.front() == [ticket.id]
    running.sensor.become(Thermal.NOMINAL)
    assert running.queue.wait(ticket, timeout_s=10).job_id == ticket.id


def test_a_job_taken_just_before_the_machine_got_hot_goes_back_to_the_front_uncounted(rig: Rig) -> None:
    first, second, third = (ask(rig, f"ticket {n}") for n in range(3))
    rig.desk.after_claim = lambda: rig.sensor.become(Thermal.SERIOUS)  # type: ignore[attr-defined]
    assert rig.node.step() == 3
    assert rig.front() == [first.id, second.id, third.id]
    assert rig.engine.calls == []
    job = rig.job(first.id)
    assert (job["attempts"], job["deliveries"], job["defers"]) == ("0", "0", "1")
    assert "thermal serious" in job["defer_reason"]
    assert (
        rig.metric("coolhead_job_requeues_total", lane="interactive", reason="thermal", phase="after_acquire")
        == 3
    )


def test_a_node_that_put_a_job_back_rests_before_it_takes_again(rig: Rig) -> None:
    ask(rig)
    rig.desk.after_claim = lambda: rig.sensor.become(Thermal.SERIOUS)  # type: ignore[attr-defined]
    rig.node.step()
    rig.sensor.become(Thermal.NOMINAL)
    assert rig.node.step() == 0  # rests, although the gate is open
    assert len(rig.front()) == 1


def test_low_power_mode_closes_every_lane(rig: Rig) -> None:
    ask(rig)
    ask(rig, "bulk", lane="bulk")
    rig.sensor.become(Conditions(thermal=Thermal.NOMINAL, thermal_source="fake", low_power=True, read_at=0.0))
    assert rig.node.step() == 0
    assert len(rig.front()) == len(rig.front("bulk")) == 1


def test_interactive_jobs_come_before_bulk_jobs(rig: Rig) -> None:
    ask(rig, "bulk", lane="bulk")
    ask(rig, "person")
    rig.node.step()
    assert [item.state for item in rig.engine.calls[0]] == ["person", "bulk"]


def test_one_call_answers_a_whole_batch(rig: Rig) -> None:
    for n in range(4):
        ask(rig, f"ticket {n}")
    assert rig.node.step() == 4
    assert len(rig.engine.calls) == 1


def test_a_failed_call_is_tried_again_and_then_given_up(running: Rig) -> None:
    running.engine.effects = {1: DecodeFailed("the device was lost"), 2: DecodeFailed("the device was lost")}
    with pytest.raises(JobFailed, match=r"DecodeFailed.*2 tries"):
        running.queue.wait(ask(running), timeout_s=20)


def test_a_call_that_fails_once_costs_an_attempt_and_no_answer(running: Rig) -> None:
    running.engine.effects = {1: DecodeFailed("the device was lost")}
    decision = running.queue.wait(ask(running), timeout_s=20)
    assert decision.attempts == 2


def test_a_fault_of_ours_is_tried_again_and_never_loses_the_job(running: Rig) -> None:
    running.engine.effects = {1: KeyError("a bug")}
    assert running.queue.wait(ask(running), timeout_s=20).attempts == 2


def test_a_node_that_cannot_work_gives_the_job_back_uncounted(rig: Rig) -> None:
    ticket = ask(rig)
    rig.engine.effects = {1: ModelCorrupt("the model is gone")}
    rig.node.step()
    job = rig.job(ticket.id)
    assert rig.front() == [ticket.id]
    assert (job["attempts"], job["defers"], job["defer_reason"]) == ("0", "1", "the model is gone")


def test_an_over_long_state_fails_alone_and_is_never_retried(running: Rig) -> None:
    running.engine.max_state_tokens = 3
    long, short = ask(running, "one two three four"), ask(running, "fine")
    with pytest.raises(JobFailed, match=StateTooLong.__name__):
        running.queue.wait(long, timeout_s=10)
    assert running.queue.wait(short, timeout_s=10)
    assert running.job(long.id)["outcome"] == "permanent"


def test_an_unknown_task_is_a_typed_failure(running: Rig) -> None:
    ticket = running.queue.submit("x", task="nobody-knows")
    with pytest.raises(JobFailed, match="UnknownTask"):
        running.queue.wait(ticket, timeout_s=10)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b'["os.system",null,["true"],{}]', FunctionRefused.__name__),
        (f'["{FUNCTION}",null,[{{"v":99}}],{{}}]'.encode(), UnknownVersion.__name__),
        (b"\x80\x04pickle", "InvalidJob"),
    ],
)
def test_foreign_jobs_on_our_queue_are_refused_and_never_run(running: Rig, data: bytes, code: str) -> None:
    ticket = ask(running, f"to be spoilt {code}")
    running.queue.wait(ticket, timeout_s=10)
    connection = running.connection
    connection.hset(
        "rq:job:foreign", mapping={"status": "queued", "data": data, "origin": "coolhead-interactive"}
    )
    connection.rpush("rq:queue:coolhead-interactive", "foreign")
    with pytest.raises(JobFailed, match=code):
        running.queue.wait("foreign", timeout_s=10)


def test_a_passed_deadline_ends_the_job_with_the_reason_it_waited(running: Rig) -> None:
    running.sensor.become(Thermal.SERIOUS)
    ticket = ask(running, deadline_s=0.2)
    with pytest.raises(Exception, match="past its deadline"):
        running.queue.wait(ticket, timeout_s=10)
    assert running.job(ticket.id)["outcome"] == "expired"


def test_stopping_finishes_the_batch_in_hand(rig: Rig) -> None:
    ticket = ask(rig)
    release = threading.Event()
    rig.engine.effects = {1: release}
    thread = threading.Thread(target=rig.node.run)
    thread.start()
    while not rig.engine.calls:
        release.wait(0.01)
    rig.node.stop()
    release.set()
    thread.join(10)
    assert not thread.is_alive()
    assert rig.queue.wait(ticket, timeout_s=1)
    assert [node.is_up for node in rig.queue.fleet().nodes] == [False]


def test_metrics_count_what_happened(running: Rig) -> None:
    running.queue.wait(ask(running), timeout_s=10)
    running.node.stop()
    seen = threading.Event()
    for _ in range(200):
        if running.metric("coolhead_jobs_total", lane="interactive", outcome="succeeded") == 1:
            seen.set()
            break
        seen.wait(0.02)
    assert seen.is_set()
    assert running.metric("coolhead_inference_duration_seconds_count", tier="fast") == 1
    assert running.metric("coolhead_job_queue_wait_seconds_count", lane="interactive") == 1


def test_an_outage_of_redis_is_waited_out(running: Rig) -> None:
    running.connection.client_kill_filter(_type="normal", skipme=True)
    assert running.queue.wait(ask(running), timeout_s=10)
