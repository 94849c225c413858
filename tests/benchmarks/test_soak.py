"""Many decisions in one process: the load, the verdict, and five thousand of them in CI.

The model is a tiny one with a real vocabulary: each decision goes through the same code of coolhead and
llama.cpp as with a large one, and what a decision might leave behind weighs more beside it.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import soak
from hypothesis import given
from hypothesis import strategies as st
from soak import Sample, batches, steadiness

from coolhead.errors import DecodeFailed
from coolhead_worker.engine.fake import FakeEngine
from coolhead_worker.engine.protocol import EvalItem, Evaluation
from tests.bench.tiny_model import tiny_at

MIB = 2**20


def samples(
    rss: list[float], files: list[int] | None = None, threads: list[int] | None = None
) -> list[Sample]:
    count = len(rss)
    columns = zip(rss, files or [8] * count, threads or [2] * count, strict=True)
    return [Sample(100 * (at + 1), int(a * MIB), b, c) for at, (a, b, c) in enumerate(columns)]


@pytest.mark.parametrize(
    ("made", "faults"),
    [
        (samples([100.0] * 10), []),
        (samples([50, *[100.0] * 9]), []),  # warm-up
        (samples([100, 100, *[101.9] * 8]), []),
        (samples([100, 100, *[102.1] * 8]), ["resident memory rose by 2.1% (allowed: 2%)"]),
        (
            samples([100, 100, 103, *[100.0] * 7]),
            ["resident memory rose by 3.0% (allowed: 2%)"],
        ),  # the highest
        (samples([100.0] * 10, files=[8] * 9 + [9]), ["1 file descriptor(s) more"]),
        (samples([100.0] * 10, files=[7, 8] + [9] * 3 + [8] * 5), []),
        (samples([100.0] * 10, threads=[2] * 9 + [3]), []),  # a timer's thread at the last moment
        (samples([100.0] * 10, threads=[3, 2, 3, 2, 3, 3, 2, 3, 3, 3]), []),
        (samples([100.0] * 10, threads=list(range(2, 12))), ["4 thread(s) more"]),
        (
            samples([100.0 + at for at in range(10)], files=list(range(8, 18)), threads=list(range(2, 12))),
            ["resident memory", "8 file descriptor(s) more", "4 thread(s) more"],
        ),
    ],
)
def test_a_run_is_judged_by_what_it_held_after_the_warm_up(made: list[Sample], faults: list[str]) -> None:
    verdict = steadiness(made)
    assert len(verdict.faults) == len(faults)
    assert all(said.startswith(fault) for said, fault in zip(verdict.faults, faults, strict=True))
    assert verdict.decisions == 1000


@given(
    start=st.integers(10, 4000),
    growth=st.floats(0, 0.5),
    count=st.integers(10, 200),
    noise=st.randoms(use_true_random=False),
)
def test_steady_growth_is_found_exactly_when_it_is_more_than_allowed(
    start: int, growth: float, count: int, noise: random.Random
) -> None:
    made = [
        Sample(
            at + 1,
            round(start * MIB * (1 + growth * at / (count - 1))),
            8,
            2 + (noise.random() < 0.1) * (at > 0),
        )
        for at in range(count)
    ]
    verdict = steadiness(made)
    after = [sample.rss for sample in made if sample.decisions >= soak.WARM_UP * count]
    assert verdict.growth == pytest.approx(after[-1] / after[0] - 1)
    assert any("memory" in fault for fault in verdict.faults) == (verdict.growth > soak.ALLOWED)


@pytest.mark.parametrize("made", [[], samples([100.0])])
def test_too_few_samples_say_nothing(made: list[Sample]) -> None:
    with pytest.raises(ValueError, match="too few"):
        steadiness(made)


@given(count=st.integers(1, 500), seed=st.integers())
def test_batches_hold_as_many_items_as_wanted_and_are_the_same_for_the_same_seed(
    count: int, seed: int
) -> None:
    one, other = (list(batches(count, random.Random(seed))) for _ in "ab")
    assert one == other
    assert sum(map(len, one)) == count
    assert {len(batch) for batch in one} <= set(range(1, 17))


def test_the_mix_has_everything_in_it() -> None:
    kinds = Counter(kind for batch in batches(5000, random.Random(0)) for kind in map(kind_of, batch))
    assert set(kinds) == {"trunk", "long", "too long", "isolated", "pinned", "orders"}
    assert kinds["trunk"] > 4500
    assert min(kinds.values()) >= 10


def kind_of(item: EvalItem) -> str:
    if item.orders:
        return "orders"
    if item.pinned is not None:
        return "pinned"
    if not item.trunk:
        return "isolated"
    words = len(item.state.split())
    return "too long" if words > 2000 else "long" if words > 50 else "trunk"


def counted(done: int) -> Sample:
    return Sample(done, MIB, 8, 2)


def test_about_two_hundred_samples_are_taken_the_last_at_the_end() -> None:
    heard: list[int] = []
    made = soak.soak(FakeEngine(), 5000, counted, heard.append)
    done = [sample.decisions for sample in made]
    assert done == heard == sorted(set(done))
    assert done[-1] == 5000
    assert 100 < len(done) <= soak.SAMPLES + 2


def test_an_item_that_comes_back_without_its_features_ends_the_soak(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine()
    monkeypatch.setattr(engine, "evaluate", lambda items, _: [Evaluation({}, None, 1) for _ in items])
    with pytest.raises(ValueError, match="without all"):
        soak.soak(engine, 100, counted)


def test_a_call_that_failed_ends_the_soak() -> None:
    with pytest.raises(DecodeFailed):
        soak.soak(FakeEngine(effects={3: DecodeFailed("no")}), 1000, counted)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_at(tmp_path_factory.mktemp("tiny"))


@pytest.mark.model
def test_five_thousand_decisions_leave_memory_files_and_threads_where_they_were(tiny: Path) -> None:
    # In a process of its own: what other tests left behind would hide what decisions leave.
    command = [sys.executable, soak.__file__, "--count", "5000", "--json", "--model", str(tiny)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["faults"] == []
    assert done.returncode == 0
    assert said["decisions"] == 5000
    assert said["growth"] <= 0.02
    assert said["files"][0] == said["files"][1]
    assert set(said) == {
        "decisions", "rss_start", "rss_peak", "growth", "files", "threads", "faults", "model", "seconds",
        "machine",
    }  # fmt: skip
    assert "5000 decisions in" in done.stderr


@pytest.mark.model
def test_a_run_that_is_not_steady_says_so_and_has_exit_code_1(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(soak, "look_at_this_process", lambda done: Sample(done, MIB * (1000 + done), 8, 2))
    assert soak.main(["--count", "100", "--model", str(tiny)]) == 1
    assert "not steady: resident memory rose by" in capsys.readouterr().out


def test_a_missing_model_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert soak.main(["--model", str(tmp_path / "no.gguf")]) == 1
    err = capsys.readouterr().err
    assert err.startswith("benchmarks/soak.py: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("count", ["99", "-1", "many"])
def test_a_count_that_shows_nothing_is_wrong_usage(count: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        soak.main(["--count", count])
    assert caught.value.code == 2
    assert "--count" in capsys.readouterr().err


def test_a_sample_of_this_process_holds_what_it_holds() -> None:
    sample = soak.look_at_this_process(7)
    assert sample.decisions == 7
    assert sample.rss > MIB
    assert sample.files >= 3
    assert sample.threads >= 1
