"""Reading a result stream: by the field `outcome`, in every form a Redis client gives it."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from coolhead.answers import Decision, Outcome
from coolhead.errors import (
    CoolheadError,
    JobExpired,
    JobFailed,
    JobQuarantined,
    JobRejected,
    UnknownVersion,
)
from coolhead.results import ended_by_entry, ended_by_hash, entries_of
from tests.client.test_layout import own_decision

SHAPES = {
    "RESP2": [[b"rq:results:j", [(b"1-0", {b"type": b"2", b"outcome": b"expired"})]]],
    "RESP2, new form": {b"rq:results:j": [(b"1-0", {b"type": b"2", b"outcome": b"expired"})]},
    "RESP3": {b"rq:results:j": [[(b"1-0", {b"type": b"2", b"outcome": b"expired"})]]},
    "decoded": [["rq:results:j", [("1-0", {"type": "2", "outcome": "expired"})]]],
    "flat fields": [[b"rq:results:j", [(b"1-0", [b"type", b"2", b"outcome", b"expired"])]]],
}


@pytest.mark.parametrize("reply", SHAPES.values(), ids=SHAPES.keys())
def test_every_form_of_the_reply_is_read(reply: Any) -> None:
    assert list(entries_of(reply)) == [("j", [("1-0", {"type": "2", "outcome": "expired"})])]


@pytest.mark.parametrize("reply", [None, [], {}])
def test_a_read_that_found_nothing_has_no_entries(reply: Any) -> None:
    assert list(entries_of(reply)) == []


def success(value: bytes) -> dict[str, str]:
    return {"type": "1", "return_value": value.decode("latin-1"), "outcome": "succeeded"}


def test_a_success_is_its_decision() -> None:
    wire = own_decision("j")
    answer = ended_by_entry("j", success(base64.b64encode(json.dumps(wire).encode())))
    assert isinstance(answer, Decision)
    assert answer.wire() == wire


UNREADABLE = {
    "version 2": base64.b64encode(json.dumps({**own_decision("j"), "x_version": 2}).encode()),
    "a field we do not know": base64.b64encode(json.dumps({**own_decision("j"), "more": 1}).encode()),
    "not JSON": base64.b64encode(b"\x80\x04pickle"),
    "not base64": b"!!!",
    "null": base64.b64encode(b"null"),
    "nothing": b"",
    "deeply nested": base64.b64encode(b"[" * 100_000),
}


@pytest.mark.parametrize("value", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_an_answer_that_cannot_be_read_is_an_error(value: bytes) -> None:
    assert type(ended_by_entry("j", success(value))) is UnknownVersion


def test_a_try_that_will_be_repeated_is_no_end() -> None:
    assert ended_by_entry("j", {"type": "4", "outcome": "transient", "error_code": "DecodeFailed"}) is None


KINDS = [
    ("rejected", JobRejected),
    ("permanent", JobFailed),
    ("transient", JobFailed),
    ("unavailable", JobFailed),
    ("expired", JobExpired),
    ("quarantined", JobQuarantined),
    ("something new", JobFailed),
]


@pytest.mark.parametrize(("outcome", "kind"), KINDS)
@pytest.mark.parametrize("misleading", ["expired", "quarantined", "", "two\nlines"])
def test_the_outcome_alone_makes_the_kind(outcome: str, kind: type[CoolheadError], misleading: str) -> None:
    answer = ended_by_entry("j", {"type": "2", "outcome": outcome, "error_code": "Code", "error": misleading})
    assert type(answer) is kind
    assert "[Code]" in str(answer)
    assert len(str(answer).splitlines()) == 1


def test_every_outcome_that_can_fail_is_in_the_table() -> None:
    assert {outcome.value for outcome in Outcome} - {name for name, _ in KINDS} == {"succeeded"}


def test_a_failure_without_an_outcome_was_not_written_by_us() -> None:
    for kind in ("2", "3", "5"):
        answer = ended_by_entry("j", {"type": kind, "exc_string": "eJwDAAAAAAE="})
        assert type(answer) is JobFailed
        assert "another kind of worker" in str(answer)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("canceled", "was canceled by hand"),
        ("stopped", "was stopped by hand"),
        ("failed", "permanent [X]: y"),
        ("queued", None),
        ("started", None),
        ("finished", None),
    ],
)
def test_a_hash_speaks_when_its_stream_is_silent(status: str, said: str | None) -> None:
    answer = ended_by_hash("j", status, {"outcome": "permanent", "error_code": "X", "error": "y"})
    assert (str(answer) if answer else None) == (f"job j {said}" if said else None)
