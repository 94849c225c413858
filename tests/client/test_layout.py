"""What is written for a queued job: RQ's own layout, and ours beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any

import pytest
import redis
import rq.job
from rq.serializers import JSONSerializer

from coolhead.client import DecisionQueue
from coolhead.conversation import Call, Talk
from coolhead.enqueue import BYTES_PER_CALL, JOBS_PER_CALL, EnqueueRules, enqueue, job_of
from coolhead.errors import IdConflict, JobFailed
from coolhead.job import Job, queue_name
from coolhead.policy import Lane
from tests.client.settler import write_success
from tests.conftest import Valkey

pytestmark = pytest.mark.server

QUESTIONS = {"refund": {"type": "noul", "instructions": "Money back?"}}


@pytest.fixture
def connection(valkey: Valkey) -> Iterator[redis.Redis]:
    with valkey.client() as client:
        yield client


@pytest.fixture
def queue(valkey: Valkey) -> Iterator[DecisionQueue]:
    with DecisionQueue.from_url(valkey.url, EnqueueRules(result_ttl_s=60, failure_ttl_s=3600)) as queue:
        yield queue


def now(connection: redis.Redis) -> float:
    seconds, micros = connection.time()
    return seconds + micros / 1e6


def test_stock_rq_reads_a_queued_job(queue: DecisionQueue, connection: redis.Redis) -> None:
    before = datetime.fromtimestamp(now(connection), UTC) - timedelta(seconds=1)
    ticket = queue.submit("hello", questions=QUESTIONS, lane="bulk")
    job = rq.job.Job.fetch(ticket.id, connection=connection, serializer=JSONSerializer)
    assert job.get_status() == "queued"
    assert job.origin == "coolhead-bulk"
    assert job.func_name == "coolhead.job.decide"
    assert job.description == "coolhead inline"
    assert (job.timeout, job.result_ttl, job.failure_ttl) == (180, 60, 3600)
    assert before < job.created_at == job.enqueued_at < before + timedelta(seconds=60)
    assert job.args[0]["state"] == "hello"


def test_stock_rq_lists_the_queue_in_order(queue: DecisionQueue, connection: redis.Redis) -> None:
    tickets = queue.submit_many([{"state": f"s{n}", "questions": QUESTIONS} for n in range(5)])
    names = [found.name for found in rq.Queue.all(connection=connection)]
    assert names == ["coolhead-interactive"]
    stock = rq.Queue(names[0], connection=connection, serializer=JSONSerializer)
    assert stock.get_job_ids() == [ticket.id for ticket in tickets]
    assert stock.count == 5


def test_stock_rq_reads_the_answer(queue: DecisionQueue, connection: redis.Redis) -> None:
    ticket = queue.submit("hello", questions=QUESTIONS)
    write_success(connection, ticket.id, {"answers": 1})
    job = rq.job.Job.fetch(ticket.id, connection=connection, serializer=JSONSerializer)
    assert job.return_value() == {"answers": 1}


def test_a_stock_worker_on_our_queue_refuses_and_the_client_says_so(
    queue: DecisionQueue, connection: redis.Redis
) -> None:
    ticket = queue.submit("hello", questions=QUESTIONS)
    stock = rq.Queue("coolhead-interactive", connection=connection, serializer=JSONSerializer)
    rq.SimpleWorker([stock], connection=connection, serializer=JSONSerializer).work(
        burst=True, logging_level="CRITICAL"
    )
    with pytest.raises(JobFailed, match="another kind of worker"):
        queue.wait(ticket, 5)


def test_a_job_has_our_fields_too(queue: DecisionQueue, connection: redis.Redis) -> None:
    before = now(connection)
    job = job_of("hello", task="support", deadline_s=30)
    ticket = queue.submit("hello", task="support", deadline_s=30)
    raw = {key.decode(): value for key, value in connection.hgetall(f"rq:job:{ticket.id}").items()}
    first, deadline = float(raw["first_enqueued"]), float(raw["deadline_at"])
    assert before <= first <= now(connection)
    assert deadline == pytest.approx(first + 30, abs=1e-5)
    assert raw["digest"].decode() == job.digest
    assert Job.decode(raw["data"]) == job
    assert (raw["deliveries"], raw["attempts"], raw["defers"]) == (b"0", b"0", b"0")
    assert raw["description"] == b"coolhead support"
    assert connection.zscore("rq:deadline:coolhead-interactive", ticket.id) == pytest.approx(deadline)
    assert connection.ttl(f"rq:job:{ticket.id}") == -1


def test_a_job_without_a_deadline_is_in_no_deadline_set(
    queue: DecisionQueue, connection: redis.Redis
) -> None:
    ticket = queue.submit("hello", questions=QUESTIONS)
    assert not connection.exists("rq:deadline:coolhead-interactive")
    assert not connection.hexists(f"rq:job:{ticket.id}", "deadline_at")


@pytest.mark.parametrize(("count", "tokens"), [(1, 1), (3, 3), (100, 64)])
def test_a_push_wakes_as_many_nodes_as_there_are_jobs(
    queue: DecisionQueue, connection: redis.Redis, count: int, tokens: int
) -> None:
    queue.submit_many([{"state": f"s{n}", "questions": QUESTIONS} for n in range(count)])
    assert connection.llen("coolhead:wake") == tokens


def test_the_exact_count_of_a_lane_leaves_out_what_was_there(
    queue: DecisionQueue, connection: redis.Redis
) -> None:
    wanted = [{"state": f"s{n}", "questions": QUESTIONS} for n in range(4)]
    queue.submit_many([*wanted, *wanted, {**wanted[0], "lane": "bulk", "job_id": "b"}])
    queue.submit_many(wanted)
    assert connection.hgetall("coolhead:enqueued") == {b"interactive": b"4", b"bulk": b"1"}
    assert connection.llen("rq:queue:coolhead-interactive") == 4


@pytest.mark.parametrize("status", ["started", "finished", "failed", "scheduled", "canceled"])
def test_a_job_whose_hash_lives_is_never_queued_again(
    queue: DecisionQueue, connection: redis.Redis, status: str
) -> None:
    ticket = queue.submit("hello", questions=QUESTIONS)
    connection.lpop("rq:queue:coolhead-interactive")
    connection.hset(f"rq:job:{ticket.id}", "status", status)
    assert not queue.submit("hello", questions=QUESTIONS).new
    assert connection.llen("rq:queue:coolhead-interactive") == 0
    assert connection.hget(f"rq:job:{ticket.id}", "status") == status.encode()


def test_a_job_of_another_program_with_the_same_id_is_a_conflict(
    queue: DecisionQueue, connection: redis.Redis
) -> None:
    connection.hset("rq:job:mine", mapping={"status": "queued", "data": "x"})
    with pytest.raises(IdConflict):
        queue.submit("hello", questions=QUESTIONS, job_id="mine")
    assert connection.hgetall("rq:job:mine") == {b"status": b"queued", b"data": b"x"}


def test_an_answer_whose_job_was_deleted_is_not_given_to_the_next_of_that_id(
    queue: DecisionQueue, connection: redis.Redis
) -> None:
    ticket = queue.submit("hello", questions=QUESTIONS, job_id="j")
    write_success(connection, ticket.id, {"stale": True})
    connection.delete("rq:job:j")
    assert queue.submit("another text", questions=QUESTIONS, job_id="j").new
    assert not connection.exists("rq:results:j")


def test_a_server_that_forgot_the_script_is_taught_it_again(
    queue: DecisionQueue, connection: redis.Redis
) -> None:
    queue.submit("one", questions=QUESTIONS)
    connection.script_flush()
    wanted = [{"state": f"s{n}", "questions": QUESTIONS} for n in range(JOBS_PER_CALL * 2 + 1)]
    assert all(ticket.new for ticket in queue.submit_many(wanted))
    assert connection.llen("rq:queue:coolhead-interactive") == len(wanted) + 1


@pytest.mark.parametrize("options", [{"decode_responses": True}, {"protocol": 2}, {"protocol": 3}])
def test_a_connection_of_ones_own_works_whatever_its_settings(
    valkey: Valkey, connection: redis.Redis, options: dict[str, Any]
) -> None:
    with redis.Redis.from_url(valkey.url, **options) as own:
        queue = DecisionQueue(own)
        ticket = queue.submit("hello", questions=QUESTIONS)
        assert queue.status(ticket).place == 1
        assert queue.fleet().lanes[0].queued == 1
        decision = own_decision(ticket.id)
        write_success(connection, ticket.id, decision)
        assert queue.wait(ticket).wire() == decision
        queue.close()
        assert own.ping()  # not ours to close


def own_decision(job_id: str) -> dict[str, Any]:
    return {
        "model": "m",
        "answers": {},
        "usage": {"input_tokens": 1, "output_tokens": 0},
        "x_version": 1,
        "x_job_id": job_id,
        "x_task": None,
        "x_node": "n",
        "x_timing": {"wait_s": 0.0, "fast_s": 0.1, "deep_s": 0.0},
        "x_attempts": 1,
        "x_defers": 0,
    }


def calls_of(talk: Talk[Any]) -> list[Call]:
    """The round trips of an enqueue, every job answered with "new"."""
    calls = []
    step = next(talk)
    try:
        while True:
            assert isinstance(step, Call)
            calls.append(step)
            jobs = [(len(command) - 9) // 5 for command in step.commands]
            step = talk.send([[b"new"] * count for count in jobs])
    except StopIteration:
        return calls


def test_script_calls_are_bounded_in_jobs_and_bytes_and_keep_the_order() -> None:
    # Random text does not compress: four jobs of 900 kB stay below 4 MiB, five do not.
    big = ["".join(chr(0x4E00 + (n * k * k) % 20000) for k in range(300_000)) for n in range(1, 7)]
    jobs = [job_of(state, questions=QUESTIONS) for state in big]
    jobs += [
        job_of(f"s{n}", questions=QUESTIONS, lane=list(Lane)[n % 2]) for n in range(2 * JOBS_PER_CALL + 2)
    ]
    (trip,) = calls_of(enqueue(jobs, EnqueueRules()))
    ids = []
    for command in trip.commands:
        arguments = command[9:]
        assert len(arguments) // 5 <= JOBS_PER_CALL
        assert sum(map(len, arguments[4::5])) <= BYTES_PER_CALL
        ids += [(command[3], job_id) for job_id in arguments[::5]]
    wanted = [(f"rq:queue:{queue_name(lane)}", job.id) for lane in Lane for job in jobs if job.lane is lane]
    assert ids == wanted


@pytest.mark.parametrize(
    "seconds", [0, 86399, 951782400, 951868800, 1078012799, 1709164800, 4107542400, 1796091357, 253402300799]
)
def test_the_scripts_dates_are_those_of_python(connection: redis.Redis, seconds: int) -> None:
    script = files("coolhead").joinpath("enqueue.lua").read_text()
    function = re.search(r"local function utc\(.*?\nend\n", script, re.S)
    assert function
    said = connection.eval(
        function.group() + "return utc(tonumber(ARGV[1]), tonumber(ARGV[2]))", 0, seconds, 42
    )
    assert said.decode() == datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.000042Z")
