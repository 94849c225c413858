"""A pinned file with one flipped byte never passes, and a restart does not hash again."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from coolhead.errors import ModelMismatch, ModelMissing
from coolhead_worker.engine import modelfile
from coolhead_worker.engine.modelfile import ModelFile, write_whole

DATA = b"GGUF" + bytes(range(256)) * 16
DIGEST = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(DATA)
    return path


@pytest.mark.parametrize("pin", [DIGEST, DIGEST.upper(), None])
def test_the_right_file_passes(model: Path, tmp_path: Path, pin: str | None) -> None:
    assert ModelFile(model, pin, "m").verify(tmp_path) == DIGEST


def test_a_flipped_byte_is_caught_even_after_a_good_look(model: Path, tmp_path: Path) -> None:
    file = ModelFile(model, DIGEST, "m")
    file.verify(tmp_path)
    with model.open("r+b") as raw:
        raw.seek(2000)
        raw.write(b"\xff" if DATA[2000] != 0xFF else b"\x00")
    with pytest.raises(ModelMismatch, match=r"model\.gguf: sha256 is"):
        file.verify(tmp_path)


def test_a_second_look_does_not_read_the_file(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = ModelFile(model, DIGEST, "m")
    file.verify(tmp_path)
    monkeypatch.setattr(modelfile, "sha256_of", lambda path: pytest.fail("hashed again"))
    assert file.verify(tmp_path) == DIGEST


def test_another_pin_fails_on_a_remembered_digest_too(model: Path, tmp_path: Path) -> None:
    ModelFile(model, None, "m").verify(tmp_path)
    with pytest.raises(ModelMismatch):
        ModelFile(model, "0" * 64, "m").verify(tmp_path)


@pytest.mark.parametrize("memory", [b"", b"not json", b"[]", b'{"x": 1}', b"\xff"])
def test_a_spoilt_memory_is_an_empty_one(model: Path, tmp_path: Path, memory: bytes) -> None:
    (tmp_path / "digests.json").write_bytes(memory)
    assert ModelFile(model, DIGEST, "m").verify(tmp_path) == DIGEST


def test_a_memory_that_can_not_be_written_is_done_without(model: Path, tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_bytes(b"")
    assert ModelFile(model, DIGEST, "m").verify(in_the_way / "cache") == DIGEST


@pytest.mark.parametrize("name", ["missing.gguf", "."])
def test_no_file_is_a_missing_model(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelMissing, match=r"check the path|give the path"):
        ModelFile(tmp_path / name, None, "m").verify(tmp_path)


def test_a_whole_file_replaces_the_old_one_and_leaves_no_other(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    for data in (b"one", b"two"):
        write_whole(target, data)
    assert target.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [target]
