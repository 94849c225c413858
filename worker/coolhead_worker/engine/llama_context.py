"""llama.cpp, low level: the working memory of a model, and the call.

Guarantee: every failure is a typed error in one line; a call that passes its deadline is aborted
within one graph node and the context works on. Never fork after a model is loaded: the child hangs in
its first call, so calls from another process than the loader's are refused.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import llama_cpp as llama
import numpy as np
from numpy.typing import NDArray

from coolhead.errors import DecodeFailed, DecodeInterrupted, DecodeTimeout, ModelCorrupt, NoRoom, NotFinite
from coolhead_worker.engine.abort import Abort
from coolhead_worker.engine.chunk import Chunk
from coolhead_worker.engine.layout import PAD_SEQUENCE
from coolhead_worker.engine.llama import LlamaModel, forget_errors, reason
from coolhead_worker.engine.tap import Hidden, Tap

MAX_SEQUENCES = 256

_F16 = 1  # GGML_TYPE_F16
_AND_DATA = True
_DAMAGED = "the model gave numbers that are not finite: is its file damaged?"


@dataclass(frozen=True, slots=True)
class Decoded:
    """What a call gave: for each of its rows the (n_vocab,) logits, and by layer the (n, n_embd) hidden
    states of all its tokens when some were wanted."""

    rows: list[list[NDArray[np.float32]]]
    hidden: list[Hidden]


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
    """The working memory of one model, for calls of at most `n_ctx` cells; one thread at a time.

    Args:
        model: its weights.
        n_ctx: cells: prefixes, states and branches of a call.
        n_ubatch: rows of one physical batch.
        threads: compute threads.
        abort: stops calls; keep it as long as this context.
        tap: gives hidden states; keep it as long as this context.

    Raises:
        ModelCorrupt: no context can be made for this model.
    """

    def __init__(
        self, model: LlamaModel, *, n_ctx: int, n_ubatch: int, threads: int, abort: Abort, tap: Tap
    ) -> None:
        params = llama.llama_context_default_params()
        params.n_ctx = params.n_batch = n_ctx
        params.n_ubatch, params.n_seq_max = n_ubatch, MAX_SEQUENCES
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type, params.type_k, params.type_v = 0, _F16, _F16
        params.kv_unified, params.swa_full, params.embeddings = True, True, False
        params.cb_eval = tap.callback
        self._native: Any = llama.llama_init_from_model(model.native, params)
        if not self._native:
            raise ModelCorrupt(f"no context of {n_ctx} cells for this model{reason()}")
        self._memory = llama.llama_get_memory(self._native)
        self._n_vocab = model.n_vocab
        self._batch = _Batch(n_ctx)
        self._abort = abort
        self._tap = tap
        self._process = os.getpid()
        self.decodes = 0
        self.tokens = 0  #: decoded so far, padding excluded
        asked = ctypes.cast(self._abort.function, llama.ggml_abort_callback)
        llama.llama_set_abort_callback(self._native, asked, self._abort.address)

    @contextmanager
    def deadline(self, seconds: float) -> Iterator[None]:
        """Calls inside the block are aborted `seconds` from now.

        Raises:
            DecodeTimeout: at the end of the block, when a call was aborted in it.
            DecodeInterrupted: the same, when it was `abort.interrupt()` that stopped it.
        """
        with self._abort.after(seconds) as passed:
            try:
                yield
            except DecodeFailed:
                if not passed():
                    raise
                if self._abort.interrupted:
                    raise DecodeInterrupted("the model call was stopped: the machine turned unsafe") from None
                raise DecodeTimeout(f"the model call was aborted after {seconds:.3g} s") from None

    def clear(self) -> None:
        """Empty the memory, its data too: an aborted call may leave NaN, and 0 * NaN shows through
        any mask."""
        self._owned()
        llama.llama_memory_clear(self._memory, _AND_DATA)

    def decode(self, chunk: Chunk) -> Decoded:
        """One model call on top of what its homes hold; its sequences stay until `release`.

        A call of which only hidden states are wanted ends at their layer.

        Returns:
            Logits and hidden states; the logits are views, valid until the next call.

        Raises:
            NoRoom: it did not fit into the memory.
            NotFinite: numbers that are none.
            ModelUnsupported: hidden states are wanted and this model shows none.
            DecodeFailed: another error of llama.cpp. After any of these the memory is in doubt.
        """
        self._owned()
        if len(chunk.tokens) > len(self._batch.token):
            raise NoRoom(f"a call of {len(chunk.tokens)} tokens, for {len(self._batch.token)} cells")
        for number, home in enumerate(chunk.homes):
            llama.llama_memory_seq_cp(self._memory, home.sequence, chunk.base + number, 0, home.length)
        forget_errors()
        self._batch.fill(chunk)
        if chunk.spans:
            self._tap.arm(last=not chunk.rows)
        code = llama.llama_decode(self._native, self._batch.native)
        hidden = self._tap.take() if chunk.spans and not code else []
        self._tap.disarm()
        if code:
            said = {1: "no room in the context", 2: "aborted", -1: "invalid batch"}.get(code, f"error {code}")
            raise (NoRoom if code == 1 else DecodeFailed)(f"llama_decode: {said}{reason()}")
        self.decodes += 1
        self.tokens += len(chunk.tokens) - chunk.pads
        if not all(np.isfinite(layer.sum()) for layer in hidden):
            raise NotFinite(_DAMAGED)
        return Decoded([[self._row(at) for at in row.at] for row in chunk.rows], hidden)

    def release(self, chunk: Chunk) -> None:
        """Take the sequences and the padding of a call out of the memory; of nested calls the last first."""
        for number in range(len(chunk.homes)):
            llama.llama_memory_seq_rm(self._memory, chunk.base + number, -1, -1)
        if chunk.pads:
            pads = int(chunk.positions[chunk.first == PAD_SEQUENCE].min())
            llama.llama_memory_seq_rm(self._memory, PAD_SEQUENCE, pads, -1)

    def close(self) -> None:
        """Free the memory."""
        if self._native:
            llama.llama_free(self._native)
            self._native = None

    def _owned(self) -> None:
        if os.getpid() != self._process:
            raise DecodeFailed("a forked process can't use its parent's model: load it there")

    def _row(self, at: int) -> NDArray[np.float32]:
        pointer = llama.llama_get_logits_ith(self._native, at)
        if not pointer:
            raise DecodeFailed(f"no logits for row {at}{reason()}")
        row: NDArray[np.float32] = np.ctypeslib.as_array(pointer, (self._n_vocab,))
        # The sum of a row is finite exactly when every logit of a sane size is.
        if not np.isfinite(row.sum()):
            raise NotFinite(_DAMAGED)
        return row
