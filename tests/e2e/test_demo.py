"""The demo, run once as a user runs it: what it prints, what it is worth, what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from .conftest import ROOT

pytestmark = [pytest.mark.process, pytest.mark.model, pytest.mark.server]

DEMO = ROOT / "examples/demo/run.py"


def demo(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """The demo as a process, with a lock and a temporary folder of its own."""
    environment = os.environ | {"COOLHEAD_LOCK_FILE": str(folder / "lock"), "TMPDIR": str(folder)}
    return subprocess.Popen(
        [sys.executable, str(DEMO), *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=folder,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Short, because a unix socket lies below it."""
    return Path(tmp_path_factory.mktemp("d"))


@pytest.fixture(scope="module")
def lines(folder: Path, models) -> list[dict[str, Any]]:
    """What `scripts/demo --json` prints, parsed."""
    process = demo(folder, "--json", "--prompts", "32")
    out, err = process.communicate(timeout=800)
    assert process.returncode == 0, err
    return [json.loads(line) for line in out.splitlines()]


@pytest.fixture(scope="module")
def summary(lines: list[dict[str, Any]]) -> dict[str, Any]:
    return lines[-1]


pytestmark.append(pytest.mark.timeout(900))


def test_there_is_one_line_a_decision_and_a_last_summary(lines: list[dict[str, Any]]) -> None:
    assert [line["type"] for line in lines] == ["decision"] * (len(lines) - 1) + ["summary"]
    assert lines[-1]["decisions"] == len(lines) - 1 >= 60


def test_every_probability_map_sums_to_one_and_nothing_was_generated(lines: list[dict[str, Any]]) -> None:
    for line in lines[:-1]:
        decision = line["decision"]
        assert decision["usage"]["output_tokens"] == 0
        for answer in decision["answers"].values():
            assert sum(answer["probabilities"].values()) == pytest.approx(1.0, abs=1e-6)


def test_no_ticket_that_was_fitted_on_is_shown(lines: list[dict[str, Any]]) -> None:
    rows = [
        json.loads(row)
        for name in ("tickets", "prompts")
        for row in (ROOT / f"examples/demo/{name}.jsonl").read_text("utf-8").splitlines()
    ]
    held_out = {row["id"] for row in rows if row["split"] == "held_out"}
    assert {line["id"] for line in lines[:-1]} <= held_out


def test_tickets_reach_the_right_queue(summary: dict[str, Any]) -> None:
    assert summary["tickets"]["n"] >= 60
    assert summary["tickets"]["queue_accuracy"] >= 0.85


def test_the_fit_stops_fewer_honest_prompts_than_the_uncalibrated_fast_tier(summary: dict[str, Any]) -> None:
    served, plain = summary["guardrail"]["served"], summary["guardrail"]["uncalibrated_fast_tier"]
    assert served["benign"] == plain["benign"] >= 10
    assert served["false_positives"] + served["missed"] < plain["false_positives"] + plain["missed"]


def test_answers_say_what_they_rest_on(lines: list[dict[str, Any]]) -> None:
    seen = {
        (line["kind"], answer["x_status"])
        for line in lines[:-1]
        for answer in line["decision"]["answers"].values()
    }
    assert ("baseline", "uncalibrated") in seen
    assert ("ticket", "certified") in seen
    assert not {kind for kind, status in seen if status == "uncalibrated"} - {"baseline"}


def test_nothing_is_left_behind(lines: list[dict[str, Any]], folder: Path) -> None:
    assert lines
    assert [path.name for path in folder.iterdir() if path.name.startswith("coolhead-")] == []


def test_ctrl_c_leaves_nothing_running(folder: Path, models) -> None:
    process = demo(folder, "--limit", "4")
    pause = threading.Event()
    pids: list[int] = []
    while not pids:
        assert process.poll() is None
        pids = [int(path.read_text() or 0) for path in folder.glob("coolhead-*/worker.pid")]
        pause.wait(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=90)
    assert process.returncode == 130
    assert "Traceback" not in err
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)
    assert list(folder.glob("coolhead-*")) == []


def test_a_worker_killed_in_the_middle_costs_no_answer(folder: Path, models) -> None:
    process = demo(folder, "--json", "--limit", "8")
    pause = threading.Event()
    log: list[Path] = []
    while not (log and "open lanes" in log[0].read_text()):
        assert process.poll() is None
        log = list(folder.glob("coolhead-*/worker.log"))
        pause.wait(0.02)
    os.kill(int(log[0].with_name("worker.pid").read_text()), signal.SIGKILL)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    found = [json.loads(line) for line in out.splitlines()]
    assert found[-1]["worker_restarts"] == 1
    assert len({(line["kind"], line["id"]) for line in found[:-1]}) == found[-1]["decisions"] == 24
