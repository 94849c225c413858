"""Writes llama.cpp's decision metadata into a copy of a model file, so that its server can be asked.

Guarantee: every tensor's bytes stay as they are; keys that are there already are refused; the copy
appears under its name only when it is whole.
"""

from __future__ import annotations

import io
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from coolhead.errors import ModelCorrupt

TEXT, ARRAY = 8, 9
#: Bytes of a value by its type number: u8 i8 u16 i16 u32 i32 f32 bool, then u64 i64 f64.
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_ALIGNMENT = b"general.alignment"

#: Shown to an `openjev` model: the letters are those that the server reads. Newlines next to a tag are
#: expressions, since some template engines drop plain ones there.
TEMPLATE = (
    "<|im_start|>system\nYou are a decision engine. Read the message and answer each question about it "
    "with a single letter.<|im_end|>\n<|im_start|>user\nMessage:\n{{ state }}\n\n{{ instructions }}{{ '\n' }}"
    "{% for option in options %}{{ 'ABCDEFGHIJKLMNOPQRSTUVWXYZ'[loop.index0] }}. {{ option.key }}"
    "{% if option.description %}: {{ option.description }}{% endif %}{{ '\n' }}{% endfor %}"
    "Reply with one letter.<|im_end|>\n<|im_start|>assistant{{ '\n' }}"
)


def decision_texts(architecture: str) -> dict[str, str]:
    """The keys that make a causal model a decision model of type `openjev`."""
    return {f"{architecture}.decision.type": "openjev", "tokenizer.chat_template.systemone": TEMPLATE}


def with_texts(source: Path, target: Path, texts: Mapping[str, str]) -> None:
    """Copy a GGUF file and add text values to its metadata.

    Args:
        source: a GGUF file of version 2 or 3, little-endian.
        target: where the copy goes; an older one is replaced.
        texts: by key.

    Raises:
        ModelCorrupt: the source is no such file, or holds one of the keys.
    """
    try:
        with source.open("rb") as file:
            head, data = _head(file, texts)
            scratch = target.with_name(f".{target.name}.part")
            with scratch.open("wb") as out:
                out.write(head)
                file.seek(data)
                shutil.copyfileobj(file, out, 1 << 20)
    except (struct.error, KeyError) as error:
        raise ModelCorrupt(f"{source}: not a whole GGUF file ({error})") from None
    scratch.replace(target)


def _head(file: BinaryIO, texts: Mapping[str, str]) -> tuple[bytes, int]:
    """The new file up to its tensor data, and where that data begins in the old one."""
    magic, version, tensors, count = struct.unpack("<4sIQQ", file.read(24))
    if magic != b"GGUF" or version not in (2, 3):
        raise ModelCorrupt("not a GGUF file of version 2 or 3")
    alignment = 32
    for _ in range(count):
        key, value = _pair(file)
        if key.decode() in texts:
            raise ModelCorrupt(f"{key.decode()} is there already")
        if key == _ALIGNMENT:
            (alignment,) = struct.unpack("<I", value[4:])
    values = file.tell()
    for _ in range(tensors):
        _skip_tensor(file)
    infos = file.tell()
    file.seek(24)
    kept = file.read(values - 24)
    added = b"".join(_text(key) + struct.pack("<I", TEXT) + _text(value) for key, value in texts.items())
    new = io.BytesIO()
    new.write(struct.pack("<4sIQQ", magic, version, tensors, count + len(texts)) + kept + added)
    new.write(file.read(infos - values))
    new.write(bytes(-new.tell() % alignment))
    return new.getvalue(), infos + -infos % alignment


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _pair(file: BinaryIO) -> tuple[bytes, bytes]:
    """A key, and its value with the type in front (without the elements of an array)."""
    key = _bytes(file)
    head = file.read(4)
    (kind,) = struct.unpack("<I", head)
    if kind != ARRAY:
        return key, head + _value(file, kind)
    element, length = struct.unpack("<IQ", file.read(12))
    if element == TEXT:
        for _ in range(length):
            _bytes(file)
    else:
        file.seek(_SIZES[element] * length, io.SEEK_CUR)
    return key, head


def _value(file: BinaryIO, kind: int) -> bytes:
    return _bytes(file) if kind == TEXT else file.read(_SIZES[kind])


def _bytes(file: BinaryIO) -> bytes:
    (length,) = struct.unpack("<Q", file.read(8))
    return file.read(length)


def _skip_tensor(file: BinaryIO) -> None:
    """Name, sizes, type and offset of one tensor."""
    _bytes(file)
    (dimensions,) = struct.unpack("<I", file.read(4))
    file.seek(8 * dimensions + 12, io.SEEK_CUR)
