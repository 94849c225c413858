"""llama.cpp, low level: the only place that imports it.

Guarantee: every failure is a typed error in one line; a call that passes its deadline is aborted
within one graph node and the context works on; nothing is written to stderr; text of users never
becomes a control token. Never fork after a model is loaded: the child hangs in its first call, so
calls from another process than the loader's are refused.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llama_cpp as llama
import numpy as np
from numpy.typing import NDArray

from coolhead.errors import DecodeFailed, DecodeTimeout, ModelCorrupt, ModelMissing, one_line
from coolhead_worker.engine.abort import Abort
from coolhead_worker.engine.plan import FIRST_SEQUENCE, PAD_SEQUENCE, PREFIX_SEQUENCE, Chunk

MAX_SEQUENCES = 256
BF16 = llama.LLAMA_FTYPE_MOSTLY_BF16

_F16 = 1  # GGML_TYPE_F16
_ERROR = 4  # GGML_LOG_LEVEL_ERROR
_NO_SPECIAL, _AND_DATA = False, True
_errors: deque[str] = deque(maxlen=3)


@llama.llama_log_callback  # type: ignore[untyped-decorator]  # llama_cpp ships no types
def _keep_errors(level: int, text: bytes | None, _data: object) -> None:
    if level == _ERROR and text:
        _errors.append(text.decode("utf-8", "replace"))


@functools.cache
def _start_backend() -> None:
    llama.llama_log_set(_keep_errors, ctypes.c_void_p(0))
    llama.llama_backend_init()


def _reason() -> str:
    """The last error that llama.cpp logged, as a tail for a message."""
    said = one_line(_errors[-1])[:200] if _errors else ""
    _errors.clear()
    return f" ({said})" if said else ""


def default_gpu_layers() -> int:
    """All layers (-1) where this build can offload them, as on macOS with Metal; else 0."""
    return -1 if llama.llama_supports_gpu_offload() else 0


def backend_id(gpu_layers: int) -> str:
    """Where matrices are multiplied, and by which build: "cpu-0.3.36", "metal-0.3.36"."""
    where = "cpu" if gpu_layers == 0 else "metal" if sys.platform == "darwin" else "gpu"
    return f"{where}-{llama.__version__}"


def requantise(source: Path, target: Path, kind: int, threads: int) -> None:
    """Write `source` with its matrices converted to `kind` (such as `BF16`) to `target`.

    Raises:
        ModelMissing: no such source.
        ModelCorrupt: the source can't be read, or the target can't be written.
    """
    if not source.is_file():
        raise ModelMissing(f"{source}: no such file: check the path of the model")
    _start_backend()
    params = llama.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize, params.nthread = kind, True, threads
    if llama.llama_model_quantize(os.fsencode(source), os.fsencode(target), ctypes.byref(params)):
        raise ModelCorrupt(f"{source}: can't be converted{_reason()}")


class LlamaModel:
    """Weights and vocabulary.

    Args:
        path: a GGUF file.
        gpu_layers: layers to offload; -1 for all.

    Raises:
        ModelMissing: no such file.
        ModelCorrupt: empty, truncated, or no GGUF of a known kind.
    """

    def __init__(self, path: Path, gpu_layers: int = 0) -> None:
        if not path.is_file():
            raise ModelMissing(f"{path}: no such file: check the path of the model")
        _start_backend()
        _errors.clear()
        params = llama.llama_model_default_params()
        params.n_gpu_layers = gpu_layers
        self.native = llama.llama_model_load_from_file(os.fsencode(path), params)
        if not self.native:
            raise ModelCorrupt(f"{path}: does not load as GGUF{_reason()}: fetch the file again")
        self._vocab = llama.llama_model_get_vocab(self.native)
        self.n_vocab = int(llama.llama_vocab_n_tokens(self._vocab))
        self.n_embd = int(llama.llama_model_n_embd(self.native))
        self.n_ctx_train = int(llama.llama_model_n_ctx_train(self.native))

    @property
    def bos(self) -> tuple[int, ...]:
        """The beginning token when this vocabulary wants one."""
        if not llama.llama_vocab_get_add_bos(self._vocab):
            return ()
        return (int(llama.llama_vocab_bos(self._vocab)),)

    def meta(self, key: str) -> str | None:
        """A value of the GGUF metadata as text; None when absent."""
        size = 256
        while True:
            buffer = ctypes.create_string_buffer(size)
            needed = llama.llama_model_meta_val_str(self.native, key.encode(), buffer, size)
            if needed < size:
                return None if needed < 0 else buffer.value.decode("utf-8", "replace")
            size = needed + 1

    def tokens(self, text: str, *, control: bool = False) -> list[int]:
        """Token ids; `control` turns names of control tokens into them: never for users' text."""
        data = text.encode()
        room = len(data) + 8  # no vocabulary makes more tokens than bytes
        ids = (llama.llama_token * room)()
        count = llama.llama_tokenize(self._vocab, data, len(data), ids, room, _NO_SPECIAL, control)
        if count < 0:
            raise DecodeFailed(f"the tokeniser wants {-count} tokens for {len(data)} bytes")
        return list(ids[:count])

    def close(self) -> None:
        """Free the weights; contexts of this model must be closed before."""
        if self.native:
            llama.llama_model_free(self.native)
            self.native = None


class _Batch:
    """A `llama_batch` over arrays that we own."""

    def __init__(self, capacity: int) -> None:
        self.token, self.position, self.count = np.zeros((3, capacity), dtype=np.int32)
        self.output = np.zeros(capacity, dtype=np.int8)
        self.sequence = np.zeros((capacity, MAX_SEQUENCES), dtype=np.int32)
        start, stride = self.sequence.ctypes.data, self.sequence.strides[0]
        self._rows = (start + stride * np.arange(capacity)).astype(np.uintp)
        self.native = llama.llama_batch()
        self._point("token", self.token)
        self._point("pos", self.position)
        self._point("n_seq_id", self.count)
        self._point("seq_id", self._rows)
        self._point("logits", self.output)

    def _point(self, name: str, array: NDArray[Any]) -> None:
        kind = type(getattr(self.native, name))
        setattr(self.native, name, ctypes.cast(array.ctypes.data, kind))

    def fill(self, chunk: Chunk) -> None:
        """Copy a chunk in."""
        n = len(chunk.tokens)
        self.token[:n], self.position[:n] = chunk.tokens, chunk.positions
        self.count[:n], self.output[:n] = chunk.count, chunk.outputs
        widest = int(chunk.count.max())
        self.sequence[:n, :widest] = chunk.first[:, None] + np.arange(widest, dtype=np.int32)
        self.native.n_tokens = n


class LlamaContext:
    """The working memory of one model, for calls of at most `n_ctx` cells.

    One thread at a time. The prefix must be decoded before chunks that build on it.
    """

    def __init__(self, model: LlamaModel, *, n_ctx: int, n_ubatch: int, threads: int) -> None:
        params = llama.llama_context_default_params()
        params.n_ctx = params.n_batch = n_ctx
        params.n_ubatch, params.n_seq_max = n_ubatch, MAX_SEQUENCES
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type, params.type_k, params.type_v = 0, _F16, _F16
        params.kv_unified, params.swa_full, params.embeddings = True, True, False
        self._native: Any = llama.llama_init_from_model(model.native, params)
        if not self._native:
            raise ModelCorrupt(f"no context of {n_ctx} cells for this model{_reason()}")
        self._memory = llama.llama_get_memory(self._native)
        self._n_vocab = model.n_vocab
        self._batch = _Batch(n_ctx)
        self._abort = Abort()
        self._process = os.getpid()
        self.decodes = 0
        asked = ctypes.cast(self._abort.function, llama.ggml_abort_callback)
        llama.llama_set_abort_callback(self._native, asked, self._abort.address)

    @contextmanager
    def deadline(self, seconds: float) -> Iterator[None]:
        """Calls inside the block are aborted `seconds` from now.

        Raises:
            DecodeTimeout: at the end of the block, when a call was aborted in it.
        """
        with self._abort.after(seconds) as passed:
            try:
                yield
            except DecodeFailed:
                if not passed():
                    raise
                raise DecodeTimeout(f"the model call was aborted after {seconds:.3g} s") from None

    def decode_prefix(self, chunk: Chunk) -> None:
        """Empty the memory and put the prefix in."""
        self._owned()
        # Also its data: an aborted call may leave NaN, and 0 * NaN is seen through any mask.
        llama.llama_memory_clear(self._memory, _AND_DATA)
        self._decode(chunk)

    def decode(self, chunk: Chunk) -> list[NDArray[np.float32]]:
        """One model call on top of the prefix; (n_vocab,) logits for each of `chunk.rows`.

        Raises:
            DecodeFailed: an error of llama.cpp, or logits that are not finite; the memory is then
                in doubt and the prefix must be decoded again.
        """
        self._owned()
        pads = int(chunk.positions[chunk.first == PAD_SEQUENCE].min(initial=2**31 - 1))
        for sequence in self._working(chunk):
            llama.llama_memory_seq_cp(self._memory, PREFIX_SEQUENCE, sequence, -1, -1)
        self._decode(chunk)
        rows = [self._row(row.at) for row in chunk.rows]
        for sequence in self._working(chunk):
            llama.llama_memory_seq_rm(self._memory, sequence, -1, -1)
        llama.llama_memory_seq_rm(self._memory, PAD_SEQUENCE, pads, -1)
        return rows

    def close(self) -> None:
        """Free the memory."""
        if self._native:
            llama.llama_free(self._native)
            self._native = None

    def _owned(self) -> None:
        if os.getpid() != self._process:
            raise DecodeFailed("a forked process can't use its parent's model: load it there")

    @staticmethod
    def _working(chunk: Chunk) -> range:
        return range(FIRST_SEQUENCE, FIRST_SEQUENCE + chunk.sequences)

    def _decode(self, chunk: Chunk) -> None:
        _errors.clear()
        self._batch.fill(chunk)
        code = llama.llama_decode(self._native, self._batch.native)
        if code:
            known = {1: "no room in the context", 2: "aborted", -1: "invalid batch"}
            raise DecodeFailed(f"llama_decode: {known.get(code, f'error {code}')}{_reason()}")
        self.decodes += 1

    def _row(self, at: int) -> NDArray[np.float32]:
        pointer = llama.llama_get_logits_ith(self._native, at)
        if not pointer:
            raise DecodeFailed(f"no logits for row {at}{_reason()}")
        row: NDArray[np.float32] = np.ctypeslib.as_array(pointer, (self._n_vocab,)).copy()
        if not np.isfinite(row).all():
            raise DecodeFailed("the model gave logits that are not finite: is its file damaged?")
        return row
