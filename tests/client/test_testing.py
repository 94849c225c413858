"""The fake queue: what only it does. All else is in `test_queue`."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from coolhead.client import AsyncDecisionQueue, DecisionQueue
from coolhead.errors import WaitTimeout
from coolhead.fleet import Node
from coolhead.testing import AsyncFakeDecisionQueue, FakeDecisionQueue

QUESTIONS = {
    "refund": {"type": "noul", "instructions": "Money back?"},
    "queue": {"type": "choice", "criteria": ["billing", "other", "none"]},
}


def test_without_a_script_every_option_is_equally_likely() -> None:
    answers = FakeDecisionQueue().decide("hello", questions=QUESTIONS).answers
    assert answers["refund"].probabilities == {"yes": 0.5, "no": 0.5}
    assert answers["queue"].probabilities == pytest.approx({"billing": 1 / 3, "other": 1 / 3, "none": 1 / 3})


@pytest.mark.parametrize(
    "said",
    [{"queue": [0.1, 0.7, 0.2]}, {"queue": [1, 7, 2]}, {"queue": {"billing": 1, "other": 7, "none": 2}}],
)
def test_probabilities_may_be_given_by_order_or_by_name_and_are_normalised(said: Any) -> None:
    fake = FakeDecisionQueue(lambda _job: said)
    answer = fake.decide("hello", questions=QUESTIONS).answers["queue"]
    assert answer.probabilities == pytest.approx({"billing": 0.1, "other": 0.7, "none": 0.2})


def test_a_script_that_does_not_fit_its_question_fails_the_test_that_wrote_it() -> None:
    with pytest.raises(TypeError, match="noul only"):
        FakeDecisionQueue(lambda _job: {"queue": 0.5}).decide("hello", questions=QUESTIONS)
    with pytest.raises(ValueError, match="2 probabilities for 3 labels"):
        FakeDecisionQueue(lambda _job: {"queue": [0.5, 0.5]}).decide("hello", questions=QUESTIONS)


def test_the_nodes_to_be_seen_are_set_by_hand() -> None:
    fake = FakeDecisionQueue(lambda _job: None)
    fake.nodes = (Node("mini", "draining"),)
    with pytest.raises(WaitTimeout, match="node mini draining"):
        fake.decide("hello", questions=QUESTIONS, timeout_s=100)


def test_what_was_submitted_can_be_looked_at() -> None:
    fake = FakeDecisionQueue()
    fake.submit("a", questions=QUESTIONS, lane="bulk")
    fake.submit("a", questions=QUESTIONS, lane="bulk")
    assert [(job.state, job.lane.value) for job in fake.submitted] == [("a", "bulk")]


def test_the_asyncio_fake_is_moved_through_its_blocking_one() -> None:
    assert AsyncFakeDecisionQueue().fake.submitted == []


METHODS = ("submit", "submit_many", "wait", "decide", "as_completed", "wait_many", "status", "fleet", "close")


@pytest.mark.parametrize("method", METHODS)
def test_all_four_queues_take_the_same_arguments(method: str) -> None:
    kinds = (DecisionQueue, AsyncDecisionQueue, FakeDecisionQueue, AsyncFakeDecisionQueue)
    arguments = {str(list(inspect.signature(getattr(kind, method)).parameters.values())) for kind in kinds}
    assert len(arguments) == 1
    for kind in (DecisionQueue, AsyncDecisionQueue):
        public = {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if name[0] != "_"}
        assert public == set(METHODS)
