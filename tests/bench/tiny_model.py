"""A model of three million weights drawn by chance, with the vocabulary of a real one.

It says nothing that means anything and takes some milliseconds a call: what is under test is everything
around the arithmetic.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

import numpy as np
import platformdirs
from numpy.typing import NDArray

from coolhead.errors import ModelMissing
from coolhead_worker.models import prepare
from tests.conftest import missing

LAYERS, WIDTH, HEADS, INNER = 6, 64, 2, 96
_HEADER = "<4sIQQ"
_U32, _TEXT, _LIST = 4, 8, 9
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_F32, _F16 = 0, 1
_ALIGNMENT = 32

_SHAPE = {
    "llama.block_count": LAYERS,
    "llama.embedding_length": WIDTH,
    "llama.feed_forward_length": INNER,
    "llama.attention.head_count": HEADS,
    "llama.attention.head_count_kv": HEADS,
    "llama.rope.dimension_count": WIDTH // HEADS,
    "general.file_type": _F16,
}


def tiny_at(folder: Path) -> Path:
    """The model in `folder`; without the demo model that lends its vocabulary the test is skipped."""
    try:
        models = prepare(platformdirs.user_cache_path("coolhead") / "models", lambda step, share: None)
    except ModelMissing as error:
        missing(f"no demo models: {error}")
        raise
    return write_tiny(models.fast.path, folder / "tiny.gguf")


def write_tiny(vocabulary_of: Path, target: Path, seed: int = 0) -> Path:
    """Write a small llama model with the metadata of `vocabulary_of`, but for its shape."""
    pairs = raw_pairs(vocabulary_of)
    count = struct.unpack("<I", pairs[b"llama.vocab_size"][4:])[0]
    pairs |= {key.encode(): struct.pack("<II", _U32, value) for key, value in _SHAPE.items()}
    tensors = _tensors(count, np.random.default_rng(seed))
    head = struct.pack(_HEADER, b"GGUF", 3, len(tensors), len(pairs))
    head += b"".join(_bytes(key) + value for key, value in pairs.items())
    at = 0
    for name, array in tensors.items():
        sizes = array.shape[::-1]  # the innermost first
        kind = _F16 if array.dtype == np.float16 else _F32
        head += _bytes(name.encode()) + struct.pack("<I", len(sizes)) + struct.pack(f"<{len(sizes)}Q", *sizes)
        head += struct.pack("<IQ", kind, at)
        at += array.nbytes + -array.nbytes % _ALIGNMENT
    with target.open("wb") as out:
        out.write(head + bytes(-len(head) % _ALIGNMENT))
        for array in tensors.values():
            out.write(array.tobytes() + bytes(-array.nbytes % _ALIGNMENT))
    return target


def raw_pairs(path: Path) -> dict[bytes, bytes]:
    """All metadata of a file: by key, type and value as they stand there."""
    with path.open("rb") as file:
        _, _, _, count = struct.unpack(_HEADER, file.read(24))
        return dict(_pair(file) for _ in range(count))


def tensor_data(path: Path) -> bytes:
    """All bytes of a file from the first tensor's on."""
    with path.open("rb") as file:
        _, _, tensors, count = struct.unpack(_HEADER, file.read(24))
        for _ in range(count):
            _pair(file)
        for _ in range(tensors):
            _counted(file)
            (dimensions,) = struct.unpack("<I", file.read(4))
            file.read(8 * dimensions + 12)
        file.seek(-file.tell() % _ALIGNMENT, 1)
        return file.read()


def _tensors(count: int, rng: np.random.Generator) -> dict[str, NDArray[np.float32 | np.float16]]:
    def drawn(*shape: int) -> NDArray[np.float16]:
        return (rng.normal(size=shape) / np.sqrt(shape[-1])).astype(np.float16)

    ones = np.ones(WIDTH, dtype=np.float32)
    made: dict[str, NDArray[np.float32 | np.float16]] = {
        "token_embd.weight": drawn(count, WIDTH),
        "output_norm.weight": ones,
    }
    for layer in range(LAYERS):
        own = {f"attn_{name}.weight": drawn(WIDTH, WIDTH) for name in ("q", "k", "v", "output")}
        own |= {f"{name}_norm.weight": ones for name in ("attn", "ffn")}
        own |= {f"ffn_{name}.weight": drawn(INNER, WIDTH) for name in ("gate", "up")}
        own["ffn_down.weight"] = drawn(WIDTH, INNER)
        made |= {f"blk.{layer}.{name}": array for name, array in own.items()}
    return made


def _pair(file: BinaryIO) -> tuple[bytes, bytes]:
    key = _counted(file)
    start = file.tell()
    (kind,) = struct.unpack("<I", file.read(4))
    if kind == _LIST:
        inner, length = struct.unpack("<IQ", file.read(12))
        for _ in range(length if inner == _TEXT else 0):
            _counted(file)
        file.seek(0 if inner == _TEXT else _SIZES[inner] * length, 1)
    elif kind == _TEXT:
        _counted(file)
    else:
        file.seek(_SIZES[kind], 1)
    end = file.tell()
    file.seek(start)
    return key, file.read(end - start)


def _counted(file: BinaryIO) -> bytes:
    (length,) = struct.unpack("<Q", file.read(8))
    return file.read(length)


def _bytes(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data
