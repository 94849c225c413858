"""The loop: gate, claim, gate again, one call, settle."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from rq.job import Job as RqJob
from rq.serializers import JSONSerializer

from coolhead.errors import (
    DecodeFailed,
    FunctionRefused,
    JobFailed,
    ModelCorrupt,
    NotFinite,
    StateTooLong,
    UnknownVersion,
    WaitTimeout,
)
from coolhead.job import FUNCTION
from coolhead.policy import Tier
from coolhead_worker.admission.conditions import Conditions, Memory, Thermal
from coolhead_worker.engine.fake import FakeEngine

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


def once(ready: Callable[[], object], act: Callable[[], object]) -> threading.Thread:
    """Do something, in another thread, as soon as something is so."""

    def wait() -> None:
        pause = threading.Event()
        while not ready():
            pause.wait(0.002)
        act()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def work_until(rig: Rig, done: Callable[[], bool], turns: int = 200) -> None:
    """Turn the loop until something is so."""
    for _ in range(turns):
        if done():
            return
        rig.node.step()
    raise AssertionError("it did not happen")


@pytest.mark.parametrize(
    ("hot", "kind", "says"),
    [
        (Conditions(Thermal.SERIOUS, "fake"), "thermal", "thermal serious (fake) during the call"),
        (Conditions(Thermal.CRITICAL, "fake"), "thermal", "thermal critical (fake) during the call"),
        (
            Conditions(Thermal.NOMINAL, "fake", low_power=True, low_power_source="fake"),
            "low_power_mode",
            "low power mode on (fake) during the call",
        ),
    ],
)
def test_a_call_during_which_the_machine_gets_unsafe_is_stopped_and_its_jobs_go_to_the_front_uncounted(
    rig: Rig, hot: Conditions, kind: str, says: str
) -> None:
    first, second = ask(rig, "ticket 1"), ask(rig, "ticket 2")
    rig.engine.effects = {1: threading.Event()}  # waits for its time limit, or to be stopped
    heat = once(lambda: rig.engine.calls, lambda: rig.sensor.become(hot))
    assert rig.node.step() == 2
    heat.join()
    assert rig.front() == [first.id, second.id]
    job = rig.job(first.id)
    assert (job["attempts"], job["deliveries"], job["defers"]) == ("0", "0", "1")
    assert job["defer_reason"] == says
    requeued = {"lane": "interactive", "phase": "during_call"}
    assert rig.metric("coolhead_job_requeues_total", reason=kind, **requeued) == 2
    assert rig.metric("coolhead_jobs_total", lane="interactive", outcome="handed_back") == 2
    assert rig.metric("coolhead_jobs_total", lane="interactive", outcome="unavailable") == 0
    assert rig.metric("coolhead_errors_total", kind="interrupted") == 0
    assert rig.node.step() == 0  # waits outside
    rig.sensor.become(Thermal.NOMINAL)
    work_until(rig, lambda: not rig.front())
    assert rig.queue.wait(first, timeout_s=5).attempts == 1


@pytest.mark.parametrize("lanes", [("interactive",), ("interactive", "bulk")])
def test_a_call_for_somebody_who_waits_goes_on_when_only_bulk_closes(
    rig: Rig, lanes: tuple[str, ...]
) -> None:
    tickets = [ask(rig, f"ticket for {lane}", lane=lane) for lane in lanes]
    release = threading.Event()
    rig.engine.effects = {1: release}
    short = Conditions(Thermal.NOMINAL, "fake", memory=Memory.CRITICAL, memory_source="fake")
    once(lambda: rig.engine.calls, lambda: rig.sensor.become(short))
    looks = {"phase": "during_call", "result": "unsafe"}
    once(lambda: rig.metric("coolhead_node_safety_checks_total", **looks) >= 2, release.set)
    rig.node.step()
    assert [rig.queue.wait(ticket, timeout_s=5).attempts for ticket in tickets] == [1] * len(lanes)


def test_a_bulk_call_is_stopped_when_memory_gets_critical(rig: Rig) -> None:
    ticket = ask(rig, lane="bulk")
    rig.engine.effects = {1: threading.Event()}
    short = Conditions(Thermal.NOMINAL, "fake", memory=Memory.CRITICAL, memory_source="fake")
    once(lambda: rig.engine.calls, lambda: rig.sensor.become(short))
    rig.node.step()
    assert rig.front("bulk") == [ticket.id]
    assert rig.job(ticket.id)["attempts"] == "0"
    assert rig.metric("coolhead_job_requeues_total", lane="bulk", reason="memory", phase="during_call") == 1


def test_heat_between_the_two_calls_of_a_batch_stops_the_second(cascade: Rig) -> None:
    ticket = ask(cascade)
    deep = cascade.tiers[Tier.DEEP]
    deep.unload()
    blocked = FakeEngine("deep", effects={1: threading.Event()})
    deep._load = lambda: blocked
    deep.load()
    once(lambda: blocked.calls, lambda: cascade.sensor.become(Thermal.CRITICAL))
    cascade.node.step()
    assert len(cascade.engine.calls) == 1
    assert cascade.front() == [ticket.id]
    assert cascade.job(ticket.id)["defer_reason"] == "thermal critical (fake) during the call"


def test_without_memory_the_deep_tier_is_away_the_fast_one_answers_and_says_so(cascade: Rig) -> None:
    deep = cascade.tiers[Tier.DEEP]
    short = Conditions(Thermal.NOMINAL, "fake", memory=Memory.CRITICAL, memory_source="fake")
    cascade.sensor.become(short)
    ticket, bulk = ask(cascade), ask(cascade, "no hurry", lane="bulk")
    work_until(cascade, lambda: not cascade.front())
    answer = cascade.queue.wait(ticket, timeout_s=5).answers["refund"]
    assert (answer.tier.value, answer.deep_unavailable) == ("fast", True)
    assert cascade.front("bulk") == [bulk.id]  # bulk waits for better times
    assert not deep.loaded
    status = cascade.node._status
    assert "deep model unloaded: memory pressure critical (fake)" in status.reason
    assert cascade.metric("coolhead_model_unloads_total", tier="deep", reason="memory") == 1
    cascade.sensor.become(Conditions(Thermal.NOMINAL, "fake", memory=Memory.NORMAL))
    work_until(cascade, lambda: deep.loaded)
    assert cascade.metric("coolhead_model_cold_starts_total", tier="deep", reason="memory") == 1
    again = ask(cascade, "and once more")
    work_until(cascade, lambda: not cascade.front() and not cascade.front("bulk"))
    assert cascade.queue.wait(again, timeout_s=5).answers["refund"].tier.value == "deep"
    assert cascade.node._status.reason == ""


def test_a_model_is_not_loaded_while_the_gate_is_closed_for_heat(cascade: Rig) -> None:
    deep = cascade.tiers[Tier.DEEP]
    cascade.sensor.become(Conditions(Thermal.NOMINAL, "fake", memory=Memory.CRITICAL))
    cascade.node.step()
    cascade.sensor.become(Conditions(Thermal.SERIOUS, "fake", memory=Memory.NORMAL))
    for _ in range(8):  # 0.05 s each at least; the hold-down is 0.2 s
        cascade.node.step()
    assert not deep.loaded
    cascade.sensor.become(Conditions(Thermal.NOMINAL, "fake", memory=Memory.NORMAL))
    cascade.node.step()
    assert deep.loaded


def test_numbers_that_are_not_finite_cost_an_attempt_when_the_model_is_sound(rig: Rig) -> None:
    ticket = ask(rig)
    rig.engine.effects = {1: NotFinite("logits are not finite")}
    rig.node.step()
    assert rig.job(ticket.id)["attempts"] == "1"
    assert rig.metric("coolhead_errors_total", kind="not_finite") == 1
    assert rig.metric("coolhead_model_self_checks_total", tier="fast", result="structural") == 1
    work_until(rig, lambda: rig.job(ticket.id)["status"] == "finished")
    assert rig.broken == []


def test_a_fast_model_that_fails_its_self_check_ends_the_node_and_its_jobs_are_uncounted(rig: Rig) -> None:
    first, second = ask(rig, "ticket 1"), ask(rig, "ticket 2")
    rig.engine.effects = {1: NotFinite("logits are not finite"), 2: NotFinite("logits are not finite")}
    with pytest.raises(ModelCorrupt, match=r"the fast model fake is damaged: logits are not finite"):
        rig.node.run()
    assert rig.front() == [first.id, second.id]
    job = rig.job(first.id)
    assert (job["attempts"], job["defers"]) == ("0", "1")
    assert "damaged" in job["defer_reason"]
    assert len(rig.broken) == 1  # /readyz says it
    assert rig.metric("coolhead_jobs_total", lane="interactive", outcome="unavailable") == 2
    assert [node.is_up for node in rig.queue.fleet().nodes] == [False]


def test_a_deep_model_that_fails_its_self_check_is_given_up_and_tried_again(cascade: Rig) -> None:
    deep = cascade.tiers[Tier.DEEP]
    bad = NotFinite("logits are not finite")
    engines = [FakeEngine("deep", effects={1: bad, 2: bad}), FakeEngine("deep")]
    deep.unload()
    deep._load = lambda: engines.pop(0)
    deep.load()
    ticket = ask(cascade)
    cascade.node.step()
    assert cascade.queue.wait(ticket, timeout_s=5).answers["refund"].tier.value == "fast"
    cascade.node.step()
    assert not deep.loaded
    assert "failed its self-check" in cascade.node._status.reason
    assert cascade.metric("coolhead_model_unloads_total", tier="deep", reason="damage") == 1
    work_until(cascade, lambda: deep.loaded)
    assert cascade.metric("coolhead_model_cold_starts_total", tier="deep", reason="damage") == 1
    assert cascade.broken == []


def test_a_missing_fast_tier_gives_jobs_back_without_a_traceback(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    ticket = ask(rig)
    rig.tiers[Tier.FAST].unload()
    rig.node.step()
    assert rig.front() == [ticket.id]
    assert rig.job(ticket.id)["attempts"] == "0"
    assert "unexpected" not in caplog.text


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
