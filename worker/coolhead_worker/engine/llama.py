"""llama.cpp, low level: weights and vocabulary. With `llama_context` the only place that imports it.

Guarantee: every failure is a typed error in one line; nothing is written to stderr; text of users
never becomes a control token.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path

import llama_cpp as llama

from coolhead.errors import DecodeFailed, ModelCorrupt, ModelMissing, one_line

BF16 = llama.LLAMA_FTYPE_MOSTLY_BF16

_ERROR = 4  # GGML_LOG_LEVEL_ERROR
_WARNING = 3  # GGML_LOG_LEVEL_WARN
_NO_SPECIAL = False
_errors: deque[str] = deque(maxlen=3)
_lock_refused = [False]  # set by the log of a load: llama.cpp tells of a refused mlock in no other way


@llama.llama_log_callback  # type: ignore[untyped-decorator]  # llama_cpp ships no types
def _keep_errors(level: int, text: bytes | None, _data: object) -> None:
    said = (text or b"").decode("utf-8", "replace")
    if level == _ERROR and said:
        _errors.append(said)
    if level == _WARNING and "failed to mlock" in said:
        _lock_refused[0] = True


@functools.cache
def _start_backend() -> None:
    llama.llama_log_set(_keep_errors, ctypes.c_void_p(0))
    llama.llama_backend_init()


def reason() -> str:
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
        raise ModelCorrupt(f"{source}: can't be converted{reason()}")


def _tell(progress: Callable[[float], None] | None, share: float) -> bool:
    if progress is not None:
        progress(share)
    return True  # go on loading


def forget_errors() -> None:
    """What was logged so far belongs to earlier calls."""
    _errors.clear()


class LlamaModel:
    """Weights and vocabulary.

    Args:
        path: a GGUF file.
        gpu_layers: layers to offload; -1 for all.
        mlock: keep the weights in memory; `locked` tells whether the system allowed it.
        progress: told the share that is loaded, 0..1, from the loading thread.

    Raises:
        ModelMissing: no such file.
        ModelCorrupt: empty, truncated, or no GGUF of a known kind.
    """

    def __init__(
        self,
        path: Path,
        gpu_layers: int = 0,
        *,
        mlock: bool = False,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        if not path.is_file():
            raise ModelMissing(f"{path}: no such file: check the path of the model")
        _start_backend()
        forget_errors()
        params = llama.llama_model_default_params()
        params.n_gpu_layers = gpu_layers
        if mlock:
            params.load_mode = llama.LLAMA_LOAD_MODE_MMAP_MLOCK
        told = llama.llama_progress_callback(lambda share, _data: _tell(progress, share))
        params.progress_callback = told
        _lock_refused[0] = False
        self.native = llama.llama_model_load_from_file(os.fsencode(path), params)
        if not self.native:
            raise ModelCorrupt(f"{path}: does not load as GGUF{reason()}: fetch the file again")
        self.locked = mlock and not _lock_refused[0]
        self._vocab = llama.llama_model_get_vocab(self.native)
        self.n_vocab = int(llama.llama_vocab_n_tokens(self._vocab))
        self.n_embd = int(llama.llama_model_n_embd(self.native))
        self.n_layer = int(llama.llama_model_n_layer(self.native))
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
