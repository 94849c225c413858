"""`benchmarks/engine.py`: one JSON object with every key, whatever peers could be had."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import engine
import pytest
from peers import Missing, Peer

from coolhead_worker.bench.measuring import Measured, Rounds
from coolhead_worker.bench.session import ISOLATED, PINNED, TRUNK_1, TRUNK_10, Figures, Told
from coolhead_worker.bench.variants import grouped
from coolhead_worker.engine.protocol import PlanKind
from tests.bench.tiny_model import tiny_at

ASKED_FOR = {
    "overhead_vs_bare_decode", "json_generation_vs_pinned", "json_generation_vs_trunk",
    "trunk_10_questions_vs_1", "isolated_vs_typed_gguf",
}  # fmt: skip
COSTS = {
    PINNED.name: 0.52, "bare pinned 3q x1": 0.5, ISOLATED.name: 1.1, "bare isolated 3q x1": 1.0,
    TRUNK_1.name: 0.4, TRUNK_10.name: 0.42, "bare trunk 1q x1": 0.5, "json 3q": 1.3, "json 10q": 4.2,
    "json 3q questions first": 1.04, engine.BESIDE[PlanKind.ISOLATED, 60].name: 0.9,
    engine.BESIDE[PlanKind.ISOLATED, 600].name: 3.6, engine.BESIDE[PlanKind.PINNED, 60].name: 0.6,
    engine.BESIDE[PlanKind.PINNED, 600].name: 3.0,
    engine.peer_name("typed-gguf", 60): 1.2, engine.peer_name("typed-gguf", 600): 4.0,
}  # fmt: skip


def figures(costs: Mapping[str, float]) -> Figures:
    measured = {
        name: Measured(name, 1, [cost] * 3, [cost] * 3, [100.0] * 3, [0.0] * 3)
        for name, cost in costs.items()
    }
    cases = [PINNED, ISOLATED, TRUNK_1, TRUNK_10, *engine.BESIDE.values()]
    return Figures(Told("a model", "0" * 64, {}, 0.1, 1.0), measured, cases)


def test_the_summary_has_the_ratios_that_were_asked_for() -> None:
    said = engine.summary(figures(COSTS), {"llama-server": "left out"})
    assert said.keys() >= ASKED_FOR
    assert said["overhead_vs_bare_decode"] == 0.04
    assert said["overhead_isolated_vs_bare_decode"] == 0.1
    assert said["overhead_trunk_vs_bare_decode"] == -0.2
    assert said["json_generation_vs_pinned"] == 2.5
    assert said["json_generation_questions_first_vs_pinned"] == 2.0
    assert said["json_generation_vs_trunk"] == 10.0
    assert said["trunk_10_questions_vs_1"] == 1.05
    assert (said["isolated_vs_typed_gguf_60"], said["isolated_vs_typed_gguf_600"]) == (0.75, 0.9)
    assert said["isolated_vs_typed_gguf"] == 0.9  # the worse of both
    assert (said["pinned_vs_typed_gguf_60"], said["pinned_vs_typed_gguf"]) == (0.5, 0.75)
    assert said["quartiles"]["isolated_vs_typed_gguf"] == [0.9, 0.9]
    assert "isolated_vs_llama_server" not in said["quartiles"]


def test_what_was_not_measured_is_null_and_its_reason_is_told() -> None:
    said = engine.summary(figures(COSTS), {"llama-server": "left out"})
    keys = {key for key in said if "llama_server" in key}
    assert keys == {
        f"{plan}_vs_llama_server{end}" for plan in ("isolated", "pinned") for end in ("", "_60", "_600")
    }
    assert {said[key] for key in keys} == {None}
    assert said["missing"] == {"llama-server": "left out"}


def test_one_length_alone_makes_no_ratio_over_both() -> None:
    costs = {name: cost for name, cost in COSTS.items() if name != engine.peer_name("typed-gguf", 600)}
    said = engine.summary(figures(costs), {})
    assert (said["isolated_vs_typed_gguf_60"], said["isolated_vs_typed_gguf"]) == (0.75, None)


def test_every_variant_is_measured_in_one_group_with_the_peers_but_other_pinned_sets() -> None:
    first, *others = grouped([*engine.CORE, *engine.BESIDE.values(), *engine.MORE])
    assert {*engine.CORE, *engine.BESIDE.values()} <= set(first)
    assert {case.kind for group in others for case in group} == {PlanKind.PINNED, PlanKind.ISOLATED}


def test_a_peer_is_asked_the_same_questions_about_texts_that_the_engine_has_not_read() -> None:
    seen: list[tuple[str, list[str]]] = []

    def ask(state: str, questions: Mapping[str, Any]) -> dict[str, Any]:
        seen.append((state, list(questions)))
        return {}

    variant = engine.peer_variant(Peer("p", "p 1.0", ask, lambda: 42.0), 600)
    for number in range(3):
        variant.prepare(number)()
    case = engine.BESIDE[PlanKind.ISOLATED, 600]
    ours = {state for number in range(100) for state in case.states(number)}
    assert variant.name == "p 3q 600 tokens"
    assert variant.watch is not None
    assert variant.watch.cpu() == 42.0
    assert len({state for state, _ in seen} | ours) == 103
    assert {len(state.split()) for state, _ in seen} == {case.words}
    assert all(names == ["injection", "queue", "urgency"] for _, names in seen)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_at(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def shortest(monkeypatch: pytest.MonkeyPatch) -> None:
    """One round of everything."""
    monkeypatch.setattr(engine, "QUICK", Rounds(1, 1, 0.0))


def peer_that_works(name: str, broken: bool = False) -> Peer:
    def ask(state: str, questions: Mapping[str, Any]) -> dict[str, Any]:
        if broken:
            raise Missing(f"{name} refuses")
        math.factorial(9000)
        return {}

    return Peer(name, f"{name} 1.0", ask, time.process_time)


@pytest.mark.model
@pytest.mark.usefixtures("shortest")
def test_a_quick_run_prints_one_json_object_with_every_key(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engine, "start_typed_gguf", lambda *_: peer_that_works("typed-gguf"))
    monkeypatch.setattr(engine, "start_server", lambda *_: peer_that_works("llama-server", broken=True))
    assert engine.main(["--quick", "--json", "--model", str(tiny)]) == 0
    caught = capsys.readouterr()
    said = json.loads(caught.out.splitlines()[-1])
    assert caught.out.count("\n") == 1
    numbers = {key for key, value in said.items() if isinstance(value, float)}
    assert numbers >= ASKED_FOR | {"isolated_vs_typed_gguf_60", "isolated_vs_typed_gguf_600"}
    assert said["isolated_vs_llama_server"] is None
    assert said["missing"] == {"llama-server": "llama-server refuses"}
    assert said["peers"] == {"typed-gguf": "typed-gguf 1.0"}
    assert (said["quick"], said["threads"], said["model"]["rounds"]) == (True, 1, 1)
    assert {row["name"] for row in said["model"]["variants"]} >= set(COSTS)
    assert all(low <= said[key] <= high for key, (low, high) in said["quartiles"].items())
    for key in ASKED_FOR:
        assert f"{key}: " in caught.err
    assert "llama-server: llama-server refuses" in caught.err


def test_peers_that_are_left_out_are_not_started(tmp_path: Path) -> None:
    options = engine._options(["--no-peers"])
    with ExitStack() as stack:
        found, missing = engine._peers(options, tmp_path, stack)
    assert (found, set(missing)) == ({}, {"typed-gguf", "llama-server"})


def test_a_missing_model_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert engine.main(["--no-peers", "--model", str(tmp_path / "no.gguf")]) == 1
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("warming up")]
    assert len(said) == 1
    assert said[0].startswith("benchmarks/engine.py: ")


def test_ctrl_c_ends_with_130(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> Figures:
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "_measured", interrupted)
    assert engine.main(["--no-peers", "--model", str(tmp_path / "any.gguf")]) == 130
