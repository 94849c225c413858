"""The worker's command line: help without heavy imports, errors in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(sys.executable).with_name("coolhead-worker")


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(WORKER), *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("arguments", [(), ("run",), ("fit",), ("models",), ("sensors",), ("selfcheck",)])
def test_help_names_every_command(arguments: tuple[str, ...]) -> None:
    done = command(*arguments, "--help")
    assert done.returncode == 0
    assert "Traceback" not in done.stdout + done.stderr


def test_help_loads_neither_numpy_nor_llama_cpp() -> None:
    heavy = "{'numpy', 'llama_cpp', 'scipy'}"
    code = f"import sys; import coolhead_worker.cli; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"text": "x", "queue": "nowhere"}\n', "labels.jsonl:1"),
        ("not json\n", "labels.jsonl:1"),
        ("", "no rows"),
    ],
)
def test_bad_labels_are_refused_with_file_and_row(tmp_path: Path, text: str, says: str) -> None:
    from coolhead.errors import CoolheadError
    from coolhead.policy import Tier
    from coolhead.task import Task
    from coolhead_worker.engine.fake import FakeEngine
    from coolhead_worker.judgement.fit import fit_task

    labels = tmp_path / "labels.jsonl"
    labels.write_text(text)
    task = Task.load(Path(__file__).parents[2] / "examples/tasks/support.toml")
    with pytest.raises(CoolheadError) as caught:
        fit_task(task, [labels], {Tier.FAST: FakeEngine()}, tmp_path / "fit")
    assert says in str(caught.value)


def test_a_fit_without_a_model_is_refused_in_one_line(tmp_path: Path) -> None:
    done = command("fit", "x.toml", "y.jsonl", "--out", str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.startswith("coolhead-worker: no fast model")
    assert done.stderr.count("\n") == 1


def test_the_sensors_of_this_machine_are_one_json_line() -> None:
    import json

    done = command("sensors")
    assert done.returncode == 0
    assert "thermal" in json.loads(done.stdout)


def test_a_selfcheck_of_a_missing_model_is_one_line(tmp_path: Path) -> None:
    done = command("selfcheck", "--fast", str(tmp_path / "no.gguf"))
    assert done.returncode == 1
    assert done.stderr.startswith("coolhead-worker: ")
    assert done.stderr.count("\n") == 1
    assert "no.gguf" in done.stderr


def test_a_selfcheck_with_a_golden_file_that_is_none_is_one_line(tmp_path: Path) -> None:
    golden, config = tmp_path / "golden.json", tmp_path / "worker.toml"
    golden.write_text("[]")
    config.write_text(f'golden = "{golden}"\n[fast]\npath = "{tmp_path / "no.gguf"}"\n')
    done = command("selfcheck", "--config", str(config))
    assert done.returncode == 2
    assert done.stderr.startswith(f"coolhead-worker: golden file {golden}")
    assert done.stderr.count("\n") == 1
