"""The envelope: there and back, what the id depends on, and what is refused."""

from __future__ import annotations

import json
import math
import os
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coolhead.errors import (
    ContractError,
    FunctionRefused,
    InvalidJob,
    InvalidPolicy,
    InvalidQuestion,
    InvalidState,
    UnknownVersion,
)
from coolhead.job import (
    FUNCTION,
    MAX_ENVELOPE_BYTES,
    MAX_STATE_BYTES,
    Job,
    check_state,
    decide,
    queue_name,
)
from coolhead.policy import Lane
from tests.contract.strategies import content, jobs

QUESTIONS = {"q": {"type": "noul", "instructions": "Yes?"}}


def make(state: Any = "hello", **more: Any) -> Job:
    return Job.make(state, **{"questions": QUESTIONS, **more})


@given(jobs())
def test_a_job_survives_its_envelope(job: Job) -> None:
    again = Job.decode(job.encode())
    assert again == job
    assert again.encode() == job.encode()
    assert again.digest == job.digest


@given(jobs())
def test_the_envelope_is_what_rq_reads(job: Job) -> None:
    function, instance, arguments, named = json.loads(zlib.decompress(job.encode()))
    assert (function, instance, named) == (FUNCTION, None, {})
    assert arguments[0]["v"] == 1


@given(jobs())
def test_an_id_that_is_not_given_is_the_digest(job: Job) -> None:
    fresh = Job.make(job.state, questions=job.questions, task=job.task, policy=job.policy, lane=job.lane)
    assert fresh.id == job.digest
    assert len(fresh.id) == 32


CHANGED = [
    ("the state", make("hello!")),
    ("text into a list", make(["hello"])),
    ("a question's text", make(questions={"q": {"type": "noul", "instructions": "No?"}})),
    ("a question's id", make(questions={"r": QUESTIONS["q"]})),
    ("a task's name", make(task="support")),
    ("a policy", make(policy={"thresholds": {"verdict_at": 0.5}})),
]


@pytest.mark.parametrize("changed", [row[1] for row in CHANGED], ids=[row[0] for row in CHANGED])
def test_the_id_changes_with_what_is_asked(changed: Job) -> None:
    assert changed.id != make().id


@pytest.mark.parametrize("more", [{"lane": "bulk"}, {"deadline_s": 5.0}, {"questions": QUESTIONS}])
def test_the_id_does_not_change_with_how_it_is_asked(more: dict[str, Any]) -> None:
    assert make(**more).id == make().id


def test_text_and_its_bytes_are_the_same_job() -> None:
    assert make("grüße").id == make("grüße".encode()).id


def test_the_digest_ignores_a_given_id() -> None:
    assert make(job_id="a").digest == make(job_id="b").digest == make().digest


@given(content)
def test_a_state_of_text_object_or_list_is_kept(state: Any) -> None:
    assert check_state(state) == state


STATES = [
    ("", "empty"),
    (" \t\n", "empty"),
    ({}, "empty"),
    ([], "empty"),
    (b"", "empty"),
    (None, "NoneType"),
    (7, "int"),
    (True, "bool"),
    ("a\0b", "NUL"),
    (b"a\0b", "NUL"),
    ({"a\0": 1}, "NUL"),
    ({"a": [{"b": "\0"}]}, "NUL"),
    (b"caf\xe9", "byte 3"),
    ("\ud800", "surrogate"),
    ({"a": "\udfff"}, "surrogate"),
    ({"a": math.nan}, "not JSON"),
    ([math.inf], "not JSON"),
    ({"a": object()}, "not JSON"),
    ({"a": {1, 2}}, "not JSON"),
    ("x" * (MAX_STATE_BYTES - 1), "bytes; at most"),  # with its two quotes one byte over
    ("é" * (MAX_STATE_BYTES // 2), "bytes; at most"),
]


@pytest.mark.parametrize(("state", "said"), STATES, ids=[f"{n}: {row[1]}" for n, row in enumerate(STATES)])
def test_a_state_that_cannot_be_used_is_refused_in_one_line(state: Any, said: str) -> None:
    with pytest.raises(InvalidState, match=said) as caught:
        check_state(state)
    assert len(str(caught.value)) < 200


def test_the_largest_state_is_taken() -> None:
    state = "x" * (MAX_STATE_BYTES - 2)
    assert Job.decode(make(state).encode()).state == state


@pytest.mark.parametrize(
    "state", ["What does \\u0000 mean?", {"log": "\\u0000"}, "<|im_start|>system", "a\x01b"]
)
def test_odd_but_honest_text_is_taken(state: Any) -> None:
    assert Job.decode(make(state).encode()).state == state


def test_a_state_that_nests_too_deep_is_refused() -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidState):
        make(deep)


MADE = [
    ({"questions": None}, InvalidJob, "task"),
    ({"questions": {}}, InvalidQuestion, "1..64"),
    ({"policy": {"thresholds": {"verdict_at": 9}}}, InvalidPolicy, "verdict_at"),
    ({"lane": "express"}, InvalidJob, "interactive, bulk"),
    ({"lane": ""}, InvalidJob, "lane"),
    ({"deadline_s": 0}, InvalidJob, "deadline_s"),
    ({"deadline_s": -1.0}, InvalidJob, "deadline_s"),
    ({"deadline_s": math.nan}, InvalidJob, "deadline_s"),
    ({"deadline_s": math.inf}, InvalidJob, "deadline_s"),
    ({"deadline_s": "soon"}, InvalidJob, "deadline_s"),
    ({"job_id": ""}, InvalidJob, "1..128"),
    ({"job_id": "a:b"}, InvalidJob, "1..128"),
    ({"job_id": "a\n"}, InvalidJob, "1..128"),
    ({"job_id": "x" * 129}, InvalidJob, "1..128"),
    ({"task": 7}, InvalidJob, "task"),
]


@pytest.mark.parametrize(("more", "kind", "said"), MADE, ids=lambda value: str(value)[:40])
def test_a_job_out_of_range_is_refused(more: dict[str, Any], kind: type[ContractError], said: str) -> None:
    with pytest.raises(kind, match=said):
        make(**more)


def sealed(body: Any, function: str = FUNCTION, instance: Any = None, named: Any = None) -> bytes:
    """An envelope by hand."""
    return zlib.compress(json.dumps([function, instance, body, named or {}]).encode())


def body(**changes: Any) -> list[dict[str, Any]]:
    (plain,) = json.loads(zlib.decompress(make().encode()))[2]
    return [{key: value for key, value in {**plain, **changes}.items() if value is not ...}]


def test_an_envelope_by_hand_is_read() -> None:
    assert Job.decode(sealed(body())) == make()
    assert Job.decode(zlib.decompress(sealed(body()))) == make()  # RQ reads uncompressed data too


@pytest.mark.parametrize("version", [0, 2, "1", None, ..., 1.5, [1]], ids=str)
def test_an_envelope_of_another_version_is_refused(version: Any) -> None:
    with pytest.raises(UnknownVersion, match="upgrade"):
        Job.decode(sealed(body(v=version)))


@pytest.mark.parametrize("function", ["os.system", "coolhead.job.Job", "", "coolhead.job.decide ", None])
def test_a_foreign_function_is_refused(function: Any) -> None:
    with pytest.raises(FunctionRefused):
        Job.decode(sealed(body(), function))


def test_a_method_of_an_instance_is_refused() -> None:
    with pytest.raises(FunctionRefused):
        Job.decode(sealed(body(), instance={"x": 1}))


def test_a_small_bomb_is_not_unpacked() -> None:
    bomb = zlib.compress(b"[" + b" " * (MAX_ENVELOPE_BYTES * 8) + b"]", 9)
    assert len(bomb) < MAX_STATE_BYTES
    with pytest.raises(InvalidJob, match="larger than"):
        Job.decode(bomb)


BROKEN = [
    ("no bytes", b""),
    ("random bytes", os.urandom(64)),
    ("pickle", b"\x80\x04\x95\x10\x00\x00\x00"),
    ("cut off", make().encode()[:40]),
    ("not a call", zlib.compress(b"{}")),
    ("a number", zlib.compress(b"7")),
    ("three parts", zlib.compress(b'["coolhead.job.decide", null, []]')),
    ("deeply nested", zlib.compress(b"[" * 200_000)),
    ("no argument", sealed([])),
    ("two arguments", sealed(body() * 2)),
    ("text for an envelope", sealed(["x"])),
    ("named arguments", sealed(body(), named={"x": 1})),
    ("unknown field", sealed(body(colour="red"))),
    ("no state", sealed(body(state=...))),
    ("no lane", sealed(body(lane=...))),
    ("unknown lane", sealed(body(lane="express"))),
    ("bad questions", sealed(body(questions={"q": {"type": "box"}}))),
    ("bad policy", sealed(body(policy={"colour": "red"}))),
    ("NUL in the state", sealed(body(state="\0"))),
    ("an id with a colon", sealed(body(id="a:b"))),
    ("an id that is a number", sealed(body(id=7))),
]


@pytest.mark.parametrize("data", [row[1] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_an_envelope_that_is_none_is_a_contract_error(data: bytes) -> None:
    with pytest.raises(ContractError) as caught:
        Job.decode(data)
    assert len(str(caught.value).splitlines()) == 1


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_by_type(data: bytes) -> None:
    with pytest.raises(ContractError):
        Job.decode(data)
    with pytest.raises(ContractError):
        Job.decode(zlib.compress(data))


def test_what_is_made_can_be_decoded_whatever_its_size() -> None:
    long = {f"q{n}": {"type": "noul", "instructions": "x" * 100_000} for n in range(64)}
    try:
        job = make(questions=long)
    except ContractError:
        return
    assert Job.decode(job.encode()) == job


def test_an_id_that_is_no_text_is_refused_by_type() -> None:
    with pytest.raises(InvalidJob):
        make(job_id=7)


def test_the_function_itself_only_refuses() -> None:
    with pytest.raises(FunctionRefused, match="coolhead-worker"):
        decide({})


def test_queues_are_named_after_their_lanes() -> None:
    assert [queue_name(lane) for lane in Lane] == ["coolhead-interactive", "coolhead-bulk"]
