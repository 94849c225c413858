"""A second reading of a model file, on llama.cpp's own functions alone: whole prompts, one by one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import llama_cpp as llama
import numpy as np

from coolhead_worker.engine.protocol import Floats

CELLS = 2048


class Oracle:
    """One model file. Nothing is shared or kept: every prompt is read whole, from an empty memory."""

    def __init__(self, path: Path) -> None:
        model = llama.llama_model_default_params()
        model.n_gpu_layers = 0
        self._model = llama.llama_model_load_from_file(os.fsencode(path), model)
        context = llama.llama_context_default_params()
        context.n_ctx = context.n_batch = CELLS
        context.n_ubatch = 512
        context.n_threads = context.n_threads_batch = 1
        context.flash_attn_type = 0
        self._context = llama.llama_init_from_model(self._model, context)
        self._vocab = llama.llama_model_get_vocab(self._model)

    def likely(self, prompt: str, marks: Sequence[str], temperature: float) -> Floats:
        """(m,) probabilities of these one-token marks after a prompt, none of whose text is a user's."""
        chosen = self._after(self._tokens(prompt))[[self._single(mark) for mark in marks]] / temperature
        weight: Floats = np.exp(chosen - chosen.max())
        return weight / weight.sum()

    def close(self) -> None:
        llama.llama_free(self._context)
        llama.llama_model_free(self._model)

    def _after(self, tokens: Sequence[int]) -> Floats:
        llama.llama_memory_clear(llama.llama_get_memory(self._context), True)
        ids = (llama.llama_token * len(tokens))(*tokens)
        assert llama.llama_decode(self._context, llama.llama_batch_get_one(ids, len(tokens))) == 0
        row = llama.llama_get_logits_ith(self._context, -1)
        return np.ctypeslib.as_array(row, (llama.llama_vocab_n_tokens(self._vocab),)).astype(np.float64)

    def _tokens(self, text: str) -> list[int]:
        said = text.encode()
        ids = (llama.llama_token * (len(said) + 8))()
        count = llama.llama_tokenize(self._vocab, said, len(said), ids, len(ids), False, True)
        assert 0 < count < CELLS
        return list(ids[:count])

    def _single(self, mark: str) -> int:
        (token,) = self._tokens(mark)
        return token
