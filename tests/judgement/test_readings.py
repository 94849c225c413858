"""One engine call a batch, each state once, and a cache that never lies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from coolhead.errors import DecodeFailed
from coolhead_worker.engine.fake import FakeEngine
from coolhead_worker.engine.protocol import PinnedSet, Shown
from coolhead_worker.judgement.readings import BATCH, Wanted, read_states
from tests.judgement.synthetic import QUEUE, REFUND, URGENCY

QUESTIONS = {"queue": QUEUE, "refund": REFUND}
SET = {**QUESTIONS, "urgency": URGENCY}


def read(engine, states, cache=None, questions=QUESTIONS, pinned=None):
    progress: list[int] = []
    said = read_states(
        engine, states, Wanted(questions, pinned), cache=cache, timeout_s=5, read=progress.append
    )
    return said, progress


def same(a, b) -> bool:
    return (
        np.array_equal(a.features, b.features)
        and a.mass == b.mass
        and a.logits.keys() == b.logits.keys()
        and all(np.array_equal(a.logits[key], b.logits[key]) for key in a.logits)
    )


def test_text_and_trunk_ride_in_one_call_a_batch():
    engine = FakeEngine()
    states = [f"s {i}" for i in range(2 * BATCH + 1)]
    said, progress = read(engine, [*states, states[0]])
    assert [len(call) for call in engine.calls] == [BATCH, BATCH, 1]
    assert all(item.trunk and set(item.questions) == set(QUESTIONS) for call in engine.calls for item in call)
    assert all(item.pinned is None and not item.orders for call in engine.calls for item in call)
    assert list(said) == states
    assert progress == [0, BATCH, 2 * BATCH, 2 * BATCH + 1]


def test_a_reading_is_what_the_engine_said():
    engine = FakeEngine(mass=0.4)
    reading = read(engine, ["a"])[0]["a"]
    (said,) = FakeEngine(mass=0.4).evaluate(engine.calls[0], 1)
    assert np.array_equal(reading.features, said.features)
    assert np.array_equal(reading.logits[QUEUE.fingerprint], said.readouts["queue"].logits)
    assert reading.mass[REFUND.fingerprint] == 0.4


def test_pinned_questions_are_read_with_their_whole_task_before_the_state():
    engine = FakeEngine()
    read(engine, ["a"], pinned=PinnedSet(SET))
    ((item,),) = engine.calls
    assert item.trunk
    assert list(item.questions) == list(QUESTIONS)
    assert list(item.pinned.questions) == list(SET)


def test_without_questions_the_trunk_is_read_alone():
    engine = FakeEngine()
    said, _ = read(engine, ["a"], questions={}, pinned=PinnedSet(SET))
    ((item,),) = engine.calls
    assert (item.trunk, item.questions, item.pinned) == (True, {}, None)
    assert said["a"].logits == {}
    assert said["a"].features.shape == (16,)


def test_a_state_that_is_too_long_is_none_alone(tmp_path):
    engine = FakeEngine(max_state_tokens=2)
    said, _ = read(engine, ["a b c", "a b"], tmp_path)
    assert said["a b c"] is None
    assert said["a b"] is not None


def test_the_second_reading_comes_from_the_cache_bit_for_bit(tmp_path):
    first, _ = read(FakeEngine(), ["a", "b"], tmp_path)
    engine = FakeEngine()
    second, progress = read(engine, ["a", "b", "c"], tmp_path)
    assert [item.state for call in engine.calls for item in call] == ["c"]
    assert progress == [2, 3]
    assert all(same(first[state], second[state]) for state in "ab")


@pytest.mark.parametrize(
    "other",
    [FakeEngine("another"), FakeEngine(plan="fake-v2"), FakeEngine(feature_count=5)],
    ids=["model", "plan", "feature ids"],
)
def test_the_cache_is_for_one_model_plan_and_choice_of_features(tmp_path, other):
    read(FakeEngine(), ["a"], tmp_path)
    said, _ = read(other, ["a"], tmp_path)
    assert len(other.calls) == 1
    assert same(said["a"], read(other, ["a"])[0]["a"])


def test_a_cache_of_the_trunk_alone_is_for_one_plan_of_the_trunk(tmp_path):
    for plan in ("fake-v1", "fake-v2"):
        engine = FakeEngine(plan=plan)
        for _ in range(2):
            read(engine, ["a"], tmp_path, {})
        assert len(engine.calls) == 1


OTHER_READINGS = [
    ("fewer questions", {"queue": QUEUE}, None),
    ("the trunk alone", {}, None),
    ("another order", dict(reversed(QUESTIONS.items())), None),
    ("pinned", QUESTIONS, PinnedSet(QUESTIONS)),
    ("pinned in a larger task", QUESTIONS, PinnedSet(SET)),
    ("pinned in another order", QUESTIONS, PinnedSet(dict(reversed(SET.items())))),
    ("pinned with an example", QUESTIONS, PinnedSet(QUESTIONS, (Shown("hi", {}),))),
]


@pytest.mark.parametrize(
    ("name", "questions", "pinned"), OTHER_READINGS, ids=[row[0] for row in OTHER_READINGS]
)
def test_the_cache_is_for_one_plan_and_set_of_questions(tmp_path, name, questions, pinned):
    engine = FakeEngine()
    for _ in range(2):
        read(engine, ["a"], tmp_path)
        read(engine, ["a"], tmp_path, questions, pinned)
    assert len(engine.calls) == 2  # each its own, and each from the cache the second time


@pytest.mark.parametrize("damage", [lambda raw: raw[: len(raw) // 2], lambda raw: b"", lambda raw: b"text"])
def test_a_damaged_cache_file_is_read_anew(tmp_path, damage):
    first, _ = read(FakeEngine(), ["a"], tmp_path)
    (path,) = tmp_path.glob("*/*.npz")
    path.write_bytes(damage(path.read_bytes()))
    engine = FakeEngine()
    second, _ = read(engine, ["a"], tmp_path)
    assert len(engine.calls) == 1
    assert same(first["a"], second["a"])
    assert same(first["a"], read(FakeEngine(), ["a"], tmp_path)[0]["a"])


def test_an_engine_without_features_fails_by_name():
    class Bare(FakeEngine):
        def evaluate(self, items, timeout_s):
            return super().evaluate([replace(item, trunk=False) for item in items], timeout_s)

    with pytest.raises(DecodeFailed, match="no features"):
        read(Bare(), ["a"])
