"""`coolhead-worker bench` as a person meets it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from coolhead.errors import NodeBusy
from coolhead_worker.bench import command
from coolhead_worker.bench.measuring import Measured, Rounds
from coolhead_worker.bench.session import PINNED, TRUNK_1, TRUNK_10, Figures, Heard, Told
from coolhead_worker.bench.variants import Case, grid
from coolhead_worker.engine.modelfile import ModelFile
from coolhead_worker.lock import NodeLock
from coolhead_worker.settings import ModelSettings, Settings

WORKER = Path(sys.executable).with_name("coolhead-worker")
NAMES = {
    PINNED.name: 2.0, TRUNK_1.name: 1.0, TRUNK_10.name: 1.05, "bare pinned 3q x1": 1.9,
    "bare trunk 1q x1": 1.2, "json 3q": 6.0, "json 3q questions first": 5.0, "json 10q": 12.0,
}  # fmt: skip


def figures(file: ModelFile) -> Figures:
    measured = {
        name: Measured(name, 1, [cpu] * 2, [cpu] * 2, [9.0] * 2, [0.0] * 2) for name, cpu in NAMES.items()
    }
    told = Told(file.name, "0" * 64, {"trunk": "trunk-v1.x"}, 0.1, 0.5)
    return Figures(told, measured, [PINNED, TRUNK_1, TRUNK_10])


@pytest.fixture
def benched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, list[Case], Rounds]]:
    """What was measured, by a stand-in that takes no time."""
    seen: list[tuple[str, int, list[Case], Rounds]] = []

    def measured(file: ModelFile, threads: int, cases: list[Case], rounds: Rounds, heard: Heard) -> Figures:
        heard(0, "loading")
        heard(1, PINNED.name)
        seen.append((file.name, threads, cases, rounds))
        return figures(file)

    monkeypatch.setattr(command, "bench_model", measured)
    return seen


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    fast, deep = (ModelSettings(path=tmp_path / f"{name}.gguf", name=name) for name in ("small", "large"))
    return Settings(fast=fast, deep=deep, threads=2, lock_file=tmp_path / "node.lock")


def bench(settings: Settings, *, quick: bool = True, force: bool = False, as_json: bool = False) -> None:
    command.bench(settings, quick=quick, force=force, as_json=as_json)


@pytest.mark.parametrize("quick", [True, False])
def test_both_configured_models_are_measured(
    settings: Settings, benched: list[tuple[str, int, list[Case], Rounds]], quick: bool
) -> None:
    bench(settings, quick=quick)
    rounds = command.QUICK if quick else command.WHOLE
    assert benched == [(name, 2, grid(quick), rounds) for name in ("small", "large")]


@pytest.mark.usefixtures("benched")
def test_a_person_gets_a_table_for_each_model_and_the_ratios(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    bench(settings)
    out = capsys.readouterr().out
    assert "fast: small, 2 thread(s), medians of 2 rounds" in out
    assert "deep: large" in out
    assert "json_generation_vs_trunk: 11.429  (quartiles 11.429 to 11.429)" in out
    assert "generated texts that are valid answers: 50%" in out
    assert max(map(len, out.splitlines())) <= command.PLAIN_WIDTH


@pytest.mark.usefixtures("benched")
def test_a_program_gets_one_json_object_and_nothing_else(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    bench(settings, as_json=True)
    out = capsys.readouterr().out
    said = json.loads(out)
    assert out.count("\n") == 1
    assert set(said) == {"machine", "threads", "models"}
    assert {tier: model["name"] for tier, model in said["models"].items()} == {
        "fast": "small",
        "deep": "large",
    }
    assert said["models"]["fast"]["ratios"]["trunk_10_questions_vs_1"]["median"] == 1.05


def test_no_bench_beside_a_running_worker(
    settings: Settings, benched: list[tuple[str, int, list[Case], Rounds]]
) -> None:
    with NodeLock(settings.lock_file), pytest.raises(NodeBusy):
        bench(settings)
    assert benched == []


def test_a_forced_bench_beside_a_running_worker_warns(
    settings: Settings,
    benched: list[tuple[str, int, list[Case], Rounds]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    with NodeLock(settings.lock_file):
        bench(settings, force=True)
    assert len(benched) == 2
    assert "warning: a worker runs on this node" in capsys.readouterr().err


@pytest.mark.usefixtures("benched")
def test_the_lock_is_given_back(settings: Settings) -> None:
    bench(settings)
    with NodeLock(settings.lock_file):
        pass


def started(*arguments: str, folder: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"COOLHEAD_LOCK_FILE": str(folder / "node.lock")}
    return subprocess.Popen(
        [str(WORKER), "bench", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment,
    )  # fmt: skip


@pytest.mark.process
def test_a_missing_model_is_one_line(tmp_path: Path) -> None:
    with started("--fast", str(tmp_path / "no.gguf"), folder=tmp_path) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert err.startswith("coolhead-worker: ")
    assert "no.gguf" in err
    assert err.count("\n") == 1


@pytest.mark.process
def test_a_bench_without_a_model_is_wrong_usage_in_one_line(tmp_path: Path) -> None:
    with started(folder=tmp_path) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err.startswith("coolhead-worker: no fast model")
    assert err.count("\n") == 1


@pytest.mark.model
@pytest.mark.process
def test_ctrl_c_ends_a_bench_without_a_traceback(tmp_path: Path, tiny_model: Path) -> None:
    code = (
        "import sys, os, signal\n"
        "from coolhead_worker.bench import command, session\n"
        "plain = session.measure\n"
        "def measure(variants, rounds, watch, rng, heard):\n"
        "    def told(number, name):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        heard(number, name)\n"
        "    return plain(variants, rounds, watch, rng, told)\n"
        "session.measure = measure\n"
        "from coolhead_worker.cli import main\n"
        f"sys.argv = ['coolhead-worker', 'bench', '--quick', '--fast', {str(tiny_model)!r}]\n"
        "main()\n"
    )
    environment = os.environ | {"COOLHEAD_LOCK_FILE": str(tmp_path / "node.lock")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment,
        timeout=110,
        check=False,
    )
    assert done.returncode == 128 + signal.SIGINT
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
