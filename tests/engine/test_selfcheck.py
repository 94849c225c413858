"""The exam of a loaded model: which golden counts, what is within tolerance, what a damaged file does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coolhead.errors import (
    DecodeFailed,
    DecodeTimeout,
    InvalidQuestion,
    InvalidSettings,
    ModelUnsupported,
    NotFinite,
)
from coolhead_worker.engine.fake import FakeEngine
from coolhead_worker.engine.goldens import SHIPPED, claim_of, exam_id, load_goldens, record
from coolhead_worker.engine.kernels import kernels_id
from coolhead_worker.engine.protocol import EvalItem, Evaluation, PlanKind, Readout
from coolhead_worker.engine.selfcheck import (
    QUESTIONS,
    STATES,
    TOLERANCE_OTHER,
    TOLERANCE_SAME,
    Golden,
    Numbers,
    Subject,
    check,
    fitting,
    held_against,
    observe,
)

PLAN = "isolated-v2.a16t4.ub512.fa0.f16.cpu-0.3.36.45d82a04.text"
METAL = PLAN.replace("cpu-0.3.36", "metal-0.3.40")
SUBJECT = Subject("aa" * 32, "llama / Small / 32", pinned=False, kernels="k1")


def golden(said: Numbers, **changed: object) -> Golden:
    logits = tuple(tuple(tuple(row.tolist()) for row in rows) for rows in said.logits)
    return replace(Golden(SUBJECT.sha256, SUBJECT.claim, PLAN, "k1", logits), **changed)  # type: ignore[arg-type]


SAID = observe(FakeEngine())
KNOWN = golden(SAID)


def moved(by: float) -> Numbers:
    """What was said, with one probability higher by so much and another one lower."""
    rows = [list(rows) for rows in SAID.logits]
    shares = np.exp(rows[1][0])
    shares = shares + np.array([by, -by]) if shares[0] < 0.5 else shares + np.array([-by, by])
    rows[1][0] = np.log(shares)
    return Numbers(tuple(map(tuple, rows)), SAID.masses)


@pytest.mark.parametrize(
    ("change", "subject", "plan", "tolerance"),
    [
        ({}, {}, PLAN, TOLERANCE_SAME),
        ({"kernels": "k2"}, {}, PLAN, TOLERANCE_OTHER),
        ({}, {}, METAL, TOLERANCE_OTHER),
        ({}, {}, PLAN.replace("45d82a04", "00000000"), None),  # other prompts
        ({}, {}, PLAN.replace("isolated-v2", "isolated-v3"), None),  # other layout
        ({}, {"sha256": "bb" * 32}, PLAN, TOLERANCE_SAME),  # by its claim: it may be damaged
        ({}, {"sha256": "bb" * 32, "pinned": True}, PLAN, None),  # it is what was asked for
        ({}, {"sha256": "bb" * 32, "claim": "llama / Other / 32"}, PLAN, None),
        ({"claim": ""}, {"sha256": "bb" * 32, "claim": ""}, PLAN, None),  # says nothing, so claims nothing
        ({"claim": "another"}, {"pinned": True}, PLAN, TOLERANCE_SAME),
    ],
)
def test_which_golden_counts_and_how_closely(
    change: dict[str, object], subject: dict[str, object], plan: str, tolerance: float | None
) -> None:
    found = fitting([replace(KNOWN, **change)], replace(SUBJECT, **subject), plan)  # type: ignore[arg-type]
    assert [limit for _, limit in found] == ([] if tolerance is None else [tolerance])


@pytest.mark.parametrize(
    ("by", "tolerance", "passes"),
    [
        (0.0, TOLERANCE_SAME, True),
        (0.0009, TOLERANCE_SAME, True),
        (0.0011, TOLERANCE_SAME, False),
        (0.039, TOLERANCE_OTHER, True),
        (0.041, TOLERANCE_OTHER, False),
    ],
)
def test_numbers_may_move_as_far_as_the_tolerance(by: float, tolerance: float, passes: bool) -> None:
    verdict = held_against(moved(by), [(KNOWN, tolerance)])
    assert (verdict.passed, verdict.golden) == (passes, True)
    assert verdict.moved == pytest.approx(by, abs=1e-9)
    assert bool(verdict.reason) == (not passes)


@given(st.floats(0.0, 0.4), st.sampled_from([TOLERANCE_SAME, TOLERANCE_OTHER]))
def test_one_golden_of_several_is_enough(by: float, tolerance: float) -> None:
    alone = held_against(moved(by), [(KNOWN, tolerance)])
    other = golden(moved(by))
    assert held_against(moved(by), [(KNOWN, tolerance), (other, TOLERANCE_SAME)]).passed
    assert alone.passed == (by <= tolerance) or abs(by - tolerance) < 1e-9


def test_a_golden_with_other_labels_never_passes() -> None:
    shorter = replace(KNOWN, logits=((KNOWN.logits[0][0],) * 3,) * 3)
    assert not held_against(SAID, [(shorter, TOLERANCE_OTHER)]).passed


class Odd(FakeEngine):
    """A fake whose readouts are spoilt by a function of call, state and readout."""

    def __init__(self, spoil, plan: str = PLAN.removesuffix(".text")) -> None:
        super().__init__(plan=plan)
        self.spoil = spoil

    def evaluate(self, items: list[EvalItem], timeout_s: float) -> list[Evaluation]:
        said = super().evaluate(items, timeout_s)
        return [
            replace(
                one,
                readouts={q: self.spoil(len(self.calls), at, r) for q, r in one.readouts.items()},
            )
            for at, one in enumerate(said)
        ]


def nan(_call: int, _at: int, readout: Readout) -> Readout:
    return replace(readout, logits=readout.logits * np.nan)


def unsure(_call: int, _at: int, readout: Readout) -> Readout:
    return replace(readout, logits=readout.logits - 1.0)


def heavy(_call: int, _at: int, readout: Readout) -> Readout:
    return replace(readout, mass=1.5)


def fickle(call: int, _at: int, readout: Readout) -> Readout:
    return (
        replace(readout, logits=np.log(np.full(len(readout.logits), 1 / len(readout.logits))))
        if call > 1
        else readout
    )


def deaf(_call: int, _at: int, readout: Readout) -> Readout:
    k = len(readout.logits)
    return replace(readout, logits=np.log(np.arange(1.0, k + 1) / (k * (k + 1) / 2)))


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (nan, "not finite"),
        (unsure, "sum to 1"),
        (heavy, "less than nothing or more than all"),
        (fickle, "second time"),
        (deaf, "whatever the text says"),
    ],
)
def test_a_model_without_golden_is_held_against_itself(spoil, says: str) -> None:
    verdict = check(Odd(spoil))
    assert (verdict.passed, verdict.golden) == (False, False)
    assert says in verdict.reason


def test_a_sound_model_without_golden_passes() -> None:
    assert check(Odd(lambda _call, _at, readout: readout)).passed


def test_a_gpu_may_move_a_little_from_call_to_call() -> None:
    def tremble(call: int, at: int, readout: Readout) -> Readout:
        if call == 1 or at:
            return readout
        shares = np.exp(readout.logits) + np.array([1e-5, -1e-5, *[0.0] * (len(readout.logits) - 2)])
        return replace(readout, logits=np.log(shares))

    assert check(Odd(tremble, METAL.removesuffix(".text"))).passed
    assert not check(Odd(tremble)).passed


def test_numbers_that_the_engine_refuses_are_a_failed_check_and_other_errors_are_none() -> None:
    verdict = check(FakeEngine(effects={1: NotFinite("logits are not finite")}))
    assert (verdict.passed, verdict.reason) == (False, "logits are not finite")
    with pytest.raises(DecodeTimeout):
        check(FakeEngine(effects={1: DecodeTimeout()}))
    with pytest.raises(DecodeFailed, match="does not fit"):
        check(FakeEngine(max_state_tokens=2))


class Picky(FakeEngine):
    """Refuses questions of some types."""

    def __init__(self, *refused: str) -> None:
        super().__init__()
        self.refused = set(refused)

    def evaluate(self, items: list[EvalItem], timeout_s: float) -> list[Evaluation]:
        if {question.type for item in items for question in item.questions.values()} & self.refused:
            raise InvalidQuestion("this model reads at most 2 levels")
        return super().evaluate(items, timeout_s)


def test_a_model_is_examined_without_the_questions_that_it_refuses(tmp_path: Path) -> None:
    engine, path = Picky("score"), tmp_path / "golden.json"
    assert [len(rows) for rows in observe(engine).logits] == [2, 2, 2]
    assert check(engine).passed
    record(engine, Subject(engine.digest), path)
    assert check(engine, load_goldens(path)).golden
    assert not check(Picky("choice"), load_goldens(path)).passed  # known numbers for other questions
    with pytest.raises(ModelUnsupported, match="every question"):
        check(Picky("score", "choice", "noul"))


def test_a_golden_check_is_one_call_and_one_against_itself_two() -> None:
    engine = FakeEngine()
    plan = engine.plan_id(PlanKind.ISOLATED)
    mine = replace(KNOWN, sha256=engine.digest, plan=plan)
    assert check(engine, [mine], Subject(engine.digest)).golden
    assert len(engine.calls) == 1
    assert not check(engine, [], Subject(engine.digest)).golden
    assert len(engine.calls) == 3


def test_what_is_recorded_is_what_a_check_expects(tmp_path: Path) -> None:
    engine, path = FakeEngine(), tmp_path / "golden.json"
    subject = Subject(engine.digest, "fake / Fake / 1", kernels="k1")
    record(engine, subject, path)
    verdict = check(engine, load_goldens(path), subject)
    assert (verdict.passed, verdict.golden) == (True, True)
    assert verdict.moved < 1e-5


def test_recording_keeps_others_and_replaces_its_own(tmp_path: Path) -> None:
    path = tmp_path / "golden.json"
    for name, kernels in (("a", "k1"), ("b", "k1"), ("a", "k2"), ("a", "k1")):
        engine = FakeEngine(name)
        record(engine, Subject(engine.digest, name, kernels=kernels), path)
    assert [(one.claim, one.kernels) for one in load_goldens(path)] == [("b", "k1"), ("a", "k2"), ("a", "k1")]


def test_recording_replaces_a_file_of_an_earlier_exam_and_refuses_what_is_no_golden_file(
    tmp_path: Path,
) -> None:
    path, engine = tmp_path / "golden.json", FakeEngine()
    path.write_text('{"exam": "00000000", "goldens": []}')
    record(engine, Subject(engine.digest), path)
    assert len(load_goldens(path)) == 1
    path.write_text("my notes")
    with pytest.raises(InvalidSettings):
        record(engine, Subject(engine.digest), path)
    assert path.read_text() == "my notes"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "No such file"),
        ("{", "record it again"),
        ('{"exam": "00000000", "goldens": []}', "another exam"),
        (json.dumps({"exam": "x", "goldens": [{"sha256": 1}]}), "record it again"),
    ],
)
def test_a_golden_file_that_is_none_is_refused_in_one_line(
    tmp_path: Path, text: str | None, says: str
) -> None:
    path = tmp_path / "golden.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidSettings, match=says) as caught:
        load_goldens(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("meta", "claim"),
    [
        (
            {"general.architecture": "llama", "general.name": "Small", "general.file_type": "32"},
            "llama / Small / 32 / 1000",
        ),
        ({"general.architecture": "llama", "general.name": "Small"}, ""),
        ({}, ""),
    ],
)
def test_a_model_claims_what_its_metadata_say(meta: dict[str, str], claim: str) -> None:
    assert claim_of(meta.get, 1000) == claim


def test_the_shipped_goldens_are_for_this_exam_and_name_no_machine() -> None:
    file = json.loads(SHIPPED.read_text())
    assert file["exam"] == exam_id()
    for one in load_goldens(SHIPPED):
        assert len(one.logits) == len(STATES)
        assert all(
            [len(row) for row in rows] == [len(question.labels) for question in QUESTIONS.values()]
            for rows in one.logits
        )


def test_kernels_have_a_name_that_stays() -> None:
    assert kernels_id() == kernels_id()
    assert len(kernels_id()) == 8


def test_the_exam_has_one_question_of_each_kind() -> None:
    assert sorted(question.type for question in QUESTIONS.values()) == ["choice", "noul", "score"]
