"""What can't be read is refused before it serves: a typed error in one line, and exit code 1."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from coolhead.errors import ModelCorrupt, ModelMismatch, ModelMissing, ModelUnsupported, NodeError
from coolhead_worker.engine.llama_engine import LlamaEngine
from coolhead_worker.engine.modelfile import ModelFile
from coolhead_worker.models import DemoModels
from tests.engine.decision.gguf_file import copy_with
from tests.engine.decision.packages import entry, write_package
from tests.engine.decision.prompts import OPENJEV

WORKER = Path(sys.executable).with_name("coolhead-worker")
TEMPLATE = {"tokenizer.chat_template.systemone": OPENJEV}


def refusal(path: Path, error: type[NodeError], sha256: str | None = None) -> str:
    """Why the engine refuses it, in one line."""
    with pytest.raises(error) as caught:
        LlamaEngine(ModelFile(path, sha256, ""), threads=1, cache=path.parent)
    assert caught.value.exit_code == 1
    said = str(caught.value)
    assert "\n" not in said
    return said


def rehash(folder: Path, key: str, name: str) -> None:
    """Let the manifest name the file as it is now."""
    manifest = json.loads((folder / "noulxp.json").read_text())
    manifest[key] |= entry(folder, name)
    (folder / "noulxp.json").write_text(json.dumps(manifest))


def without_prompt(folder: Path) -> None:
    (folder / "prompt.json").unlink()


def without_weights(folder: Path) -> None:
    (folder / "model.gguf").unlink()


def without_manifest(folder: Path) -> None:
    (folder / "noulxp.json").unlink()


def broken_manifest(folder: Path) -> None:
    (folder / "noulxp.json").write_text('{"standard": ')


def broken_prompt(folder: Path) -> None:
    (folder / "prompt.json").write_text('{"context": ')
    rehash(folder, "prompt", "prompt.json")


def broken_calibration(folder: Path) -> None:
    (folder / "calibration.json").write_text('{"temperature": {"noul": 0}}')
    rehash(folder, "calibration", "calibration.json")


def changed_prompt(folder: Path) -> None:
    (folder / "prompt.json").write_text((folder / "prompt.json").read_text() + "\n")


def changed_weights(folder: Path) -> None:
    (folder / "model.gguf").write_bytes(b"GGUF of another model")


def nothing(_folder: Path) -> None:
    """The weights of the package are nonsense as it is."""


@pytest.mark.parametrize(
    ("damage", "error", "says"),
    [
        (without_prompt, ModelMissing, "prompt.json: No such file or directory: check the path"),
        (without_weights, ModelMissing, "model.gguf: No such file or directory: check the path"),
        (without_manifest, ModelMissing, "has no noulxp.json: give the folder of a NoulXP package"),
        (broken_manifest, ModelCorrupt, "noulxp.json can't be read: Expecting value"),
        (broken_prompt, ModelCorrupt, "prompt.json can't be read: Expecting value"),
        (broken_calibration, ModelCorrupt, "calibration.json: "),
        (changed_prompt, ModelMismatch, "the manifest says"),
        (changed_weights, ModelMismatch, "model.gguf: sha256 is"),
        (nothing, ModelCorrupt, "model.gguf: does not load as GGUF"),
    ],
)
def test_a_damaged_package_is_refused_by_what_is_wrong_with_it(
    tmp_path: Path, damage: Callable[[Path], None], error: type[NodeError], says: str
) -> None:
    folder = write_package(tmp_path / "package")
    damage(folder)
    assert says in refusal(folder, error)


def test_a_package_with_other_weights_than_the_pinned_ones_is_refused(tmp_path: Path) -> None:
    folder = write_package(tmp_path / "package")
    assert "mend the pin" in refusal(folder, ModelMismatch, "ab" * 32)


@pytest.mark.model
@pytest.mark.parametrize(
    ("keys", "error", "says"),
    [
        ({"type": "kev"}, ModelUnsupported, "kind 'kev' can't be read here, only openjev, lev, nimble"),
        ({"type": ""}, ModelUnsupported, "kind '' can't be read here"),
        ({"type": "lev", "temperature.noul": 0.0}, ModelCorrupt, "not a number above 0"),
    ],
)
def test_a_decision_model_that_can_not_be_followed_is_no_plain_model(
    demo_models: DemoModels, tmp_path: Path, keys: dict[str, str | float], error: type[NodeError], says: str
) -> None:
    more = {f"llama.decision.{key}": value for key, value in keys.items()} | TEMPLATE
    path = copy_with(demo_models.fast.path, tmp_path / "decision.gguf", more)
    assert says in refusal(path, error)
    path.unlink()


@pytest.mark.model
@pytest.mark.parametrize(
    ("template", "says"),
    [(None, "without tokenizer.chat_template.systemone"), ("{{ state | trim }}", "which can't be followed")],
)
def test_a_decision_model_without_a_template_that_can_be_followed_is_refused(
    demo_models: DemoModels, tmp_path: Path, template: str | None, says: str
) -> None:
    more = {"llama.decision.type": "nimble"}
    if template is not None:
        more["tokenizer.chat_template.systemone"] = template
    path = copy_with(demo_models.fast.path, tmp_path / "decision.gguf", more)
    assert says in refusal(path, ModelUnsupported)
    path.unlink()


@pytest.mark.model
def test_the_worker_s_command_says_so_in_one_line_and_ends_with_1(
    demo_models: DemoModels, tmp_path: Path
) -> None:
    path = copy_with(demo_models.fast.path, tmp_path / "kev.gguf", {"llama.decision.type": "kev"} | TEMPLATE)
    done = subprocess.run(
        [str(WORKER), "selfcheck", "--fast", str(path), "--threads", "1"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    path.unlink()
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("coolhead-worker: a decision model of the kind 'kev'")
    assert "Traceback" not in done.stderr
