"""A whole bench on a tiny model: real calls of llama.cpp, and figures that fit together.

No time is asserted anywhere: only what was run, how often, and over how many tokens.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from coolhead.errors import DecodeFailed, ModelMissing, StateTooLong
from coolhead_worker.bench.baseline import Bare, JsonGeneration, Shape
from coolhead_worker.bench.measuring import Done, Rounds, Variant
from coolhead_worker.bench.session import ISOLATED, PINNED, TRUNK_1, TRUNK_10, Figures, bench_model
from coolhead_worker.bench.table import overhead
from coolhead_worker.bench.twins import bare_variants
from coolhead_worker.bench.variants import Case, engine_variant
from coolhead_worker.bench.workload import asked, ticket
from coolhead_worker.engine.llama_engine import LlamaEngine
from coolhead_worker.engine.modelfile import ModelFile
from coolhead_worker.engine.protocol import PlanKind

pytestmark = pytest.mark.model

CASES = [PINNED, ISOLATED, TRUNK_1, TRUNK_10, Case(PlanKind.PINNED, 1), Case(PlanKind.TRUNK, 3, 2)]


@dataclass
class Run:
    figures: Figures
    heard: list[tuple[int, str]]


@pytest.fixture(scope="module")
def run(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    heard: list[tuple[int, str]] = []
    figures = bench_model(
        ModelFile(tiny_model, None, "tiny"), 1, CASES, Rounds(1, 1, 0.0), lambda *said: heard.append(said),
        often=[PINNED], beside=[Variant("a guest", lambda number: lambda: _worked(number))],
        cache=tmp_path_factory.mktemp("cache"),
    )  # fmt: skip
    return Run(figures, heard)


def _worked(number: int) -> Done:
    np.linalg.svd(np.random.default_rng(number).normal(size=(60, 60)))
    return Done()


@pytest.fixture(scope="module")
def engine(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaEngine]:
    file = ModelFile(tiny_model, None, "tiny")
    with closing(LlamaEngine(file, threads=1, cache=tmp_path_factory.mktemp("cache"))) as made:
        yield made


@pytest.fixture(scope="module")
def bare(engine: LlamaEngine) -> Iterator[Bare]:
    with closing(Bare(engine, 1)) as made:
        yield made


def test_every_case_its_twin_the_generations_and_guests_are_measured(run: Run) -> None:
    assert set(run.figures.measured) == {case.name for case in CASES} | {
        "bare pinned 3q x1", "bare isolated 3q x1", "bare trunk 1q x1", "bare pinned 1q x1",
        "json 3q", "json 10q", "json 3q questions first", "a guest",
    }  # fmt: skip
    assert run.figures.rounds == 1
    assert {len(one.cpu) for one in run.figures.measured.values()} == {1}


def test_what_is_compared_closely_runs_three_times_a_round_and_so_does_its_twin(run: Run) -> None:
    names = [name for number, name in run.heard if number == 1]
    assert (names.count(PINNED.name), names.count("bare pinned 3q x1"), names.count(ISOLATED.name)) == (
        3,
        3,
        1,
    )


def test_a_bare_twin_reads_exactly_the_tokens_of_its_case(run: Run) -> None:
    for case in (PINNED, ISOLATED, TRUNK_1, Case(PlanKind.PINNED, 1)):
        there = run.figures.measured
        assert there[f"bare {case.name}"].new == there[case.name].new, case.name


def test_the_trunk_reads_as_much_for_ten_questions_as_for_one(run: Run) -> None:
    there = run.figures.measured
    assert there[TRUNK_10.name].tokens == pytest.approx(there[TRUNK_1.name].tokens, abs=8)
    assert there[PINNED.name].tokens < there[ISOLATED.name].tokens


def test_the_ratios_are_those_of_the_pairs_that_were_measured(run: Run) -> None:
    there = run.figures.measured
    assert set(run.figures.ratios) == {
        "overhead_pinned", "overhead_isolated", "overhead_trunk", "json_generation_vs_pinned",
        "json_generation_questions_first_vs_pinned", "json_generation_vs_trunk", "trunk_10_questions_vs_1",
    }  # fmt: skip
    shares = np.array(there["json 10q"].cpu) / np.array(there[TRUNK_10.name].cpu)
    assert run.figures.ratios["json_generation_vs_trunk"].value == pytest.approx(np.median(shares))
    assert run.figures.ratios["overhead_pinned"] == overhead(there, PINNED)


def test_the_figures_as_data_tell_the_model_the_plans_and_every_variant(run: Run) -> None:
    said = json.loads(json.dumps(run.figures.wire()))
    assert said["name"] == "tiny"
    assert len(said["sha256"]) == 64
    assert set(said["plans"]) == {"isolated", "pinned", "trunk"}
    assert all(plan.startswith(f"{kind}-") for kind, plan in said["plans"].items())
    assert {row["name"] for row in said["variants"]} == set(run.figures.measured)
    assert all(one["q25"] <= one["median"] <= one["q75"] for one in said["ratios"].values())
    assert 0 <= said["valid"] <= 1


def test_a_bare_call_and_the_engine_have_the_same_shape(engine: LlamaEngine, bare: Bare) -> None:
    (state,) = PINNED.states(1)
    shape = bare.shape(PINNED.item(state))
    before = engine.tokens
    engine.evaluate([PINNED.item(state)], 60.0)
    assert shape.new == engine.tokens - before
    assert shape.rows >= 3  # a row a question
    assert shape.prefix > bare.length(" ".join(question.instructions for question in asked(3).values()))
    assert bare.shape(TRUNK_1.item(state)).rows == 0


def test_bare_calls_leave_nothing_behind(bare: Bare) -> None:
    call = bare.prepared(Shape(prefix=30, new=100, rows=4))
    assert [call() for _ in range(60)] == [Done(100)] * 60  # more than the context has cells for


def test_bare_calls_without_room_say_so(bare: Bare) -> None:
    with pytest.raises(DecodeFailed):
        bare.prepared(Shape(prefix=10, new=4090, rows=1))


def test_an_engine_is_the_same_after_it_was_watched(engine: LlamaEngine, bare: Bare) -> None:
    item = ISOLATED.item("a state")
    (before,) = engine.evaluate([item], 60.0)
    bare.shape(item)
    (after,) = engine.evaluate([item], 60.0)
    assert not isinstance(before, StateTooLong)
    assert not isinstance(after, StateTooLong)
    for name, readout in before.readouts.items():
        assert (readout.logits == after.readouts[name].logits).all()


def test_a_state_that_is_too_long_has_no_shape(bare: Bare) -> None:
    with pytest.raises(StateTooLong):
        bare.shape(TRUNK_1.item("far too long " * 4000))


def test_twins_follow_the_length_of_the_state_in_every_run(engine: LlamaEngine, bare: Bare) -> None:
    (twin,) = bare_variants(bare, [PINNED])
    ours = engine_variant(engine, PINNED, lambda: engine.tokens)
    ours.prepare(0)()  # the prefix is read once
    for number in range(1, 8):
        assert twin.prepare(number)() == ours.prepare(number)()


@pytest.mark.parametrize("questions_first", [False, True])
def test_generation_counts_its_tokens_and_the_texts_that_answer(
    tiny_model: Path, questions_first: bool
) -> None:
    with closing(JsonGeneration(tiny_model, 1)) as generation:
        text = ticket(random.Random(0))
        done = generation.prepared(text, asked(1), questions_first=questions_first)()
        again = generation.prepared(text, asked(1), questions_first=questions_first)()
    assert done == again  # greedy
    assert done.new > 100
    assert 0 < done.generated <= 40
    assert generation.runs == 2
    assert generation.valid in (0, 2)


def test_a_bench_of_a_missing_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing):
        bench_model(
            ModelFile(tmp_path / "no.gguf", None, ""), 1, [PINNED], Rounds(1, 1, 0), lambda *_: None,
            cache=tmp_path,
        )  # fmt: skip
