"""GGUF files for tests: a copy with more metadata, and lists of texts and numbers read from one."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

_STRING, _FLOAT32, _LIST = 8, 6, 9
_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_ALIGNMENT = 32
_HEADER = "<4sIQQ"  # magic, version, number of tensors, number of keys


def copy_with(source: Path, target: Path, more: Mapping[str, str | float]) -> Path:
    """Copy `source` to `target` with these keys; texts become strings, numbers 32-bit floats.

    What is put in front has a length that is a multiple of the alignment, so nothing that follows it
    has to be understood.
    """
    with source.open("rb") as file:
        magic, version, tensors, keys = _read(file, _HEADER)
        added = b"".join(_entry(key, value) for key, value in more.items())
        empty = len(_entry("test.filling", ""))
        filling = _entry("test.filling", "x" * (-(len(added) + empty) % _ALIGNMENT))
        with target.open("wb") as out:
            out.write(struct.pack(_HEADER, magic, version, tensors, keys + len(more) + 1))
            out.write(added + filling)
            while block := file.read(1 << 22):
                out.write(block)
    return target


def metadata(path: Path) -> dict[str, Any]:
    """All keys of a file with their values."""
    with path.open("rb") as file:
        _, _, _, keys = _read(file, _HEADER)
        return {_text(file): _value(file, _read(file, "<I")[0]) for _ in range(keys)}


def _entry(key: str, value: str | float) -> bytes:
    name = struct.pack("<Q", len(key.encode())) + key.encode()
    if isinstance(value, str):
        said = value.encode()
        return name + struct.pack("<IQ", _STRING, len(said)) + said
    return name + struct.pack("<If", _FLOAT32, value)


def _read(file: BinaryIO, form: str) -> tuple[Any, ...]:
    return struct.unpack(form, file.read(struct.calcsize(form)))


def _text(file: BinaryIO) -> str:
    return file.read(_read(file, "<Q")[0]).decode()


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _LIST:
        inner, count = _read(file, "<IQ")
        return [_value(file, inner) for _ in range(count)]
    return _text(file) if kind == _STRING else _read(file, "<" + _FORMATS[kind])[0]
