"""Asks a real model in a dialect, on llama.cpp alone: all rows of a question on top of its state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import llama_cpp as llama
import numpy as np

from coolhead.questions import Question
from coolhead_worker.engine.decision.authored import Authored
from coolhead_worker.engine.decision.fold import softmax
from coolhead_worker.engine.decision.speech import stands_alone, with_state
from coolhead_worker.engine.dialect import Piece
from coolhead_worker.engine.llama import LlamaModel
from coolhead_worker.engine.protocol import Floats
from coolhead_worker.engine.readout import read

SEQUENCES = 32


class Rows:
    """A model with room for one state and the rows of one question.

    Flash attention is off and the cache holds 16-bit floats, as in the plans of the engine.
    """

    def __init__(self, model: LlamaModel, dialect: Authored, cells: int = 4096) -> None:
        self.model, self.dialect = model, dialect
        params = llama.llama_context_default_params()
        params.n_ctx = params.n_batch = cells
        params.n_ubatch, params.n_seq_max, params.kv_unified = 512, SEQUENCES, True
        params.n_threads = params.n_threads_batch = 1
        params.flash_attn_type = 0
        self._native = llama.llama_init_from_model(model.native, params)
        self._batch = llama.llama_batch_init(cells, 0, SEQUENCES)

    def answers(self, questions: Mapping[str, Question], state: str) -> dict[str, Floats]:
        """Probabilities as the author's own server would give them, in the order of the labels."""
        return {name: self._answer(question, state) for name, question in questions.items()}

    def last(self, tokens: Sequence[int]) -> Floats:
        """(n_vocab,) logits after these tokens."""
        return self._read([], [tokens])[0]

    def close(self) -> None:
        llama.llama_batch_free(self._batch)
        llama.llama_free(self._native)

    def _answer(self, question: Question, state: str) -> Floats:
        labels, orders = self.dialect.labels(question, self.model), self.dialect.shown(question)
        heard = [read([row], labels) for row in self._rows(question, state)]
        folded = self.dialect.fold(question, labels, list(zip(orders, heard, strict=True)))
        return softmax(folded.logits, self.dialect.temperature(question) or 1.0)

    def _rows(self, question: Question, state: str) -> list[Floats]:
        dialect, labels = self.dialect, self.dialect.labels(question, self.model)
        branches = [dialect.branch(question, labels, order) for order in dialect.shown(question)]
        if any(map(stands_alone, branches)):
            return [self.last(tokens_of(self.model, with_state(one, state))) for one in branches]
        shared = tokens_of(self.model, (*dialect.head(), Piece(dialect.state(state))))
        return self._read(shared, [tokens_of(self.model, one) for one in branches])

    def _read(self, shared: Sequence[int], branches: Sequence[Sequence[int]]) -> list[Floats]:
        """The last row of each branch, all in one call; every branch sees the shared tokens and itself."""
        llama.llama_memory_clear(llama.llama_get_memory(self._native), True)
        self._batch.n_tokens = 0
        for place, token in enumerate(shared):
            self._add(token, place, range(len(branches)), wanted=False)
        ends = []
        for number, branch in enumerate(branches):
            for place, token in enumerate(branch, len(shared)):
                self._add(token, place, (number,), wanted=place == len(shared) + len(branch) - 1)
            ends.append(self._batch.n_tokens - 1)
        assert llama.llama_decode(self._native, self._batch) == 0
        rows = [llama.llama_get_logits_ith(self._native, end) for end in ends]
        return [np.ctypeslib.as_array(row, (self.model.n_vocab,)).astype(np.float64) for row in rows]

    def _add(self, token: int, place: int, sequences: Sequence[int], *, wanted: bool) -> None:
        batch, at = self._batch, self._batch.n_tokens
        batch.token[at], batch.pos[at], batch.logits[at] = token, place, wanted
        batch.n_seq_id[at] = len(sequences)
        for index, sequence in enumerate(sequences):
            batch.seq_id[at][index] = sequence
        batch.n_tokens = at + 1


def tokens_of(model: LlamaModel, pieces: Sequence[Piece]) -> list[int]:
    return [token for piece in pieces for token in model.tokens(piece.text, control=piece.control)]
