"""A model file and the proof that it is the right one.

Guarantee: `verify` returns the sha256 of the bytes that are there, or raises; a pinned file with
one flipped byte never passes. Hashing a large file takes a second, so the digest is remembered
beside its path, size and times: a restart takes milliseconds, any write to the file is noticed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from coolhead.errors import ModelMismatch, ModelMissing, one_line

_MEMORY = "digests.json"


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A GGUF file; `sha256` (64 hex digits) pins its content, None takes whatever is there."""

    path: Path
    sha256: str | None
    name: str

    def verify(self, cache: Path | None = None) -> str:
        """The sha256 of the file, in hex.

        Args:
            cache: folder that remembers digests; None for coolhead's user cache folder.

        Raises:
            ModelMissing: no such file, or it can't be read.
            ModelMismatch: the digest is not the pinned one.
        """
        digest = remembered_digest(self.path, cache or platformdirs.user_cache_path("coolhead"))
        if self.sha256 is not None and digest != self.sha256.lower():
            raise ModelMismatch(
                f"{self.path}: sha256 is {digest[:12]}..., pinned is {self.sha256[:12]}...: "
                "fetch the file again, or mend the pin"
            )
        return digest


def remembered_digest(path: Path, cache: Path) -> str:
    """sha256 of a file, hashed only when size or times differ from those remembered.

    Raises:
        ModelMissing: the file can't be read.
    """
    stamp = _stamp(path)
    memory = _recall(cache)
    known = memory.get(str(path.resolve()))
    if isinstance(known, dict) and known.get("stamp") == stamp and isinstance(known.get("sha256"), str):
        return str(known["sha256"])
    digest = sha256_of(path)
    # A file that changed while it was read must not be remembered under its old times.
    if _stamp(path) == stamp:
        _remember(cache, {**memory, str(path.resolve()): {"stamp": stamp, "sha256": digest}})
    return digest


def sha256_of(path: Path) -> str:
    """sha256 of a file, in hex.

    Raises:
        ModelMissing: the file can't be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _missing(path, error) from None


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that others see either the old or the new content, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _stamp(path: Path) -> list[int]:
    try:
        status = path.stat()
        if not path.is_file():
            raise ModelMissing(f"{path} is not a file: give the path of a GGUF file")
    except OSError as error:
        raise _missing(path, error) from None
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _missing(path: Path, error: OSError) -> ModelMissing:
    why = error.strerror or str(error)
    return ModelMissing(f"{path}: {one_line(why)}: check the path of the model")


def _recall(cache: Path) -> dict[str, Any]:
    """What is remembered; an unreadable memory is an empty one."""
    try:
        memory = json.loads((cache / _MEMORY).read_bytes())
    except (OSError, ValueError):
        return {}
    return memory if isinstance(memory, dict) else {}


def _remember(cache: Path, memory: dict[str, Any]) -> None:
    # A cache that can't be written costs a second at the next start, no more.
    with contextlib.suppress(OSError):
        write_whole(cache / _MEMORY, json.dumps(memory, indent=1).encode())
