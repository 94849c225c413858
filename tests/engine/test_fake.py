"""The fake engine keeps the promises of the real one."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from coolhead.errors import DecodeFailed, DecodeTimeout, StateTooLong
from coolhead.questions import Choice, Noul
from coolhead_worker.engine.fake import FakeEngine
from coolhead_worker.engine.protocol import Engine, EvalItem, Evaluation

SPAM = Noul(instructions="Spam?")
COLOUR = Choice(criteria=["red", "green", "blue"])


def one(engine: Engine, item: EvalItem) -> Evaluation:
    result = engine.evaluate([item], 1.0)[0]
    assert isinstance(result, Evaluation)
    return result


def test_the_same_text_gives_the_same_numbers_whatever_rides_along() -> None:
    alone = one(FakeEngine(), EvalItem("hello", {"a": SPAM}, trunk=True))
    among = one(FakeEngine(), EvalItem("hello", {"b": COLOUR, "z": SPAM}, trunk=True))
    assert np.array_equal(alone.readouts["a"].logits, among.readouts["z"].logits)
    assert np.array_equal(alone.features, among.features)


def test_numbers_have_the_shapes_of_the_contract() -> None:
    result = one(FakeEngine(feature_count=7), EvalItem("hello there", {"c": COLOUR}, trunk=True))
    assert result.readouts["c"].logits.shape == (3,)
    assert np.exp(result.readouts["c"].logits).sum() == pytest.approx(1.0)
    assert result.features is not None
    assert result.features.shape == (7,)
    assert result.tokens == 2


def test_another_state_question_or_model_gives_other_numbers() -> None:
    seen = {
        tuple(one(FakeEngine(name), EvalItem(state, {"q": question}, trunk=False)).readouts["q"].logits)
        for name, state, question in [
            ("fake", "a", SPAM),
            ("fake", "b", SPAM),
            ("other", "a", SPAM),
            ("fake", "a", Noul(instructions="Ham?")),
        ]
    }
    assert len(seen) == 4


def test_an_answer_by_hand_is_given_back_as_log_probabilities() -> None:
    engine = FakeEngine(answer=lambda state, question: [0.0, 0.0] if state == "even" else None, mass=0.5)
    readout = one(engine, EvalItem("even", {"q": SPAM}, trunk=False)).readouts["q"]
    assert np.exp(readout.logits).tolist() == pytest.approx([0.5, 0.5])
    assert readout.mass == 0.5


def test_a_failure_comes_at_its_call_and_only_there() -> None:
    engine = FakeEngine(effects={2: DecodeFailed("boom")})
    item = EvalItem("hello", {"q": SPAM}, trunk=False)
    one(engine, item)
    with pytest.raises(DecodeFailed, match="boom"):
        one(engine, item)
    one(engine, item)
    assert len(engine.calls) == 3


def test_a_blocked_call_goes_on_when_let_and_times_out_when_not() -> None:
    let = threading.Event()
    engine = FakeEngine(effects={1: let, 2: threading.Event()})
    let.set()
    one(engine, EvalItem("hello", {}, trunk=True))
    with pytest.raises(DecodeTimeout):
        engine.evaluate([EvalItem("hello", {}, trunk=True)], 0.01)


def test_a_long_state_is_refused_alone() -> None:
    engine = FakeEngine(max_state_tokens=3)
    long, short = engine.evaluate(
        [EvalItem("a b c d", {}, trunk=True), EvalItem("a b c", {}, trunk=True)], 1.0
    )
    assert isinstance(long, StateTooLong)
    assert isinstance(short, Evaluation)


def test_a_closed_engine_refuses() -> None:
    engine = FakeEngine()
    engine.close()
    with pytest.raises(DecodeFailed):
        engine.evaluate([], 1.0)
