"""What the engine is measured against: the bare call of llama.cpp, and text generation.

Guarantee: the bare call is the least that a reading of the same tokens by the whole model costs:
`llama_decode` of exactly the new tokens of a plan (no padding), as one sequence on top of a prefix as
long as the plan's, with as many rows of logits, on a context of the same settings over the same weights
that has no callbacks. Generation is the high-level API of the same build under a grammar made of a JSON
schema, as its manual shows it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

# What is measured against the engine calls llama.cpp without it.
import llama_cpp as llama
import numpy as np
from numpy.typing import NDArray

from coolhead.errors import DecodeFailed, StateTooLong
from coolhead.questions import Question
from coolhead_worker.bench.measuring import Done
from coolhead_worker.bench.workload import answers_all, in_words, schema
from coolhead_worker.engine.chunk import Chunk
from coolhead_worker.engine.llama_context import LlamaContext
from coolhead_worker.engine.llama_engine import UBATCH, LlamaEngine
from coolhead_worker.engine.protocol import EvalItem

SYSTEM = "You are a decision engine. Read the message and answer each question about it."
_F16 = 1  # GGML_TYPE_F16
_WORKING = 7  # the sequence of a call; those before it hold prefixes
_FIRST_TOKEN = 1000
_ROOM = 4096  # cells of a context


@dataclass(frozen=True, slots=True)
class Shape:
    """What the calls of an item come to: `new` tokens on top of `prefix` tokens, `rows` of logits."""

    prefix: int
    new: int
    rows: int

    def longer(self, tokens: int) -> Shape:
        """The same with so many more tokens, or fewer."""
        return replace(self, new=self.new + tokens)


class Bare:
    """Bare calls with the weights of an engine; close it before the engine.

    Raises:
        DecodeFailed: no room for a context.
    """

    def __init__(self, engine: LlamaEngine, threads: int) -> None:
        self._engine = engine
        self._context: LlamaContext = engine._context
        params = llama.llama_context_default_params()
        params.n_ctx = params.n_batch = _ROOM
        params.n_ubatch, params.n_seq_max = UBATCH, _WORKING + 1
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type, params.type_k, params.type_v = 0, _F16, _F16
        params.kv_unified, params.swa_full = True, True
        self._native: Any = llama.llama_init_from_model(engine._model.native, params)
        if not self._native:
            raise DecodeFailed("no memory for the context of the bare calls")
        self._memory = llama.llama_get_memory(self._native)
        self._prefixes: dict[int, int] = {}  # sequence by length

    def close(self) -> None:
        """Free the context."""
        if self._native:
            llama.llama_free(self._native)
            self._native = None

    def length(self, text: str) -> int:
        """Tokens of a state."""
        return len(self._engine._model.tokens(text))

    def shape(self, item: EvalItem, timeout_s: float = 600.0) -> Shape:
        """Evaluate an item twice and look at the calls of the second time, when its prefix is cached.

        Raises:
            StateTooLong: the item does not fit.
        """
        for _ in range(2):
            with _calls(self._context) as calls:
                (result,) = self._engine.evaluate([item], timeout_s)
        if isinstance(result, StateTooLong):
            raise result
        homes = [home for chunk in calls for home in chunk.homes]
        new = sum(len(chunk.tokens) - chunk.pads for chunk in calls)
        return Shape(homes[0].length, new, sum(len(row.at) for chunk in calls for row in chunk.rows))

    def prepared(self, shape: Shape) -> Callable[[], Done]:
        """A bare call that is ready to be made; prefix and batch are made now.

        Raises:
            DecodeFailed: now or when made: an error of llama.cpp.
        """
        if shape.prefix + shape.new > _ROOM:  # llama.cpp ends the process over a batch that is too long
            raise DecodeFailed(f"no room for a bare call of {shape.prefix + shape.new} tokens")
        prefix = self._prefix(shape.prefix)
        batch = _Batch(_WORKING, shape.prefix, shape.new, shape.rows)

        def call() -> Done:
            llama.llama_memory_seq_cp(self._memory, prefix, _WORKING, 0, shape.prefix)
            code = llama.llama_decode(self._native, batch.native)
            rows = [llama.llama_get_logits_ith(self._native, at) for at in batch.outputs if not code]
            llama.llama_memory_seq_rm(self._memory, _WORKING, -1, -1)
            if code or not all(rows):
                raise DecodeFailed(f"the bare call failed with code {code}")
            return Done(shape.new)

        return call

    def _prefix(self, length: int) -> int:
        """The sequence of a prefix of this length; it stays in memory, as the engine's do."""
        if length not in self._prefixes:
            sequence = len(self._prefixes)
            if sequence == _WORKING:
                raise DecodeFailed(f"bare calls with more than {_WORKING} lengths of a prefix")
            batch = _Batch(sequence, 0, length, 0)
            if length and llama.llama_decode(self._native, batch.native):
                raise DecodeFailed("the prefix of the bare calls failed")
            self._prefixes[length] = sequence
        return self._prefixes[length]


@contextmanager
def _calls(context: LlamaContext) -> Iterator[list[Chunk]]:
    """The chunks with branches that go through a context inside the block."""
    seen: list[Chunk] = []
    decode = context.decode

    def watched(chunk: Chunk) -> Any:
        if chunk.homes:
            seen.append(chunk)
        return decode(chunk)

    vars(context)["decode"] = watched
    try:
        yield seen
    finally:
        del vars(context)["decode"]


class _Batch:
    """`count` tokens of one sequence from position `start` on; `outputs`: its last rows."""

    def __init__(self, sequence: int, start: int, count: int, rows: int) -> None:
        self.outputs = range(count - rows, count)
        flags = np.zeros(count, dtype=np.int8)
        flags[count - rows :] = 1
        self._sequence = np.array([sequence], dtype=np.int32)
        self._kept: dict[str, NDArray[Any]] = {
            "token": np.arange(_FIRST_TOKEN, _FIRST_TOKEN + count, dtype=np.int32),
            "pos": np.arange(start, start + count, dtype=np.int32),
            "n_seq_id": np.ones(count, dtype=np.int32),
            "seq_id": np.full(count, self._sequence.ctypes.data, dtype=np.uintp),
            "logits": flags,
        }
        self.native = llama.llama_batch()
        self.native.n_tokens = count
        for name, array in self._kept.items():
            kind = type(getattr(self.native, name))
            setattr(self.native, name, ctypes.cast(array.ctypes.data, kind))


class JsonGeneration:
    """Answers as generated JSON, with the same model file; greedy, so that runs are alike.

    Args:
        path: the GGUF file; it is loaded a second time.
        threads: compute threads.
    """

    def __init__(self, path: Path, threads: int) -> None:
        self._model: Any = llama.Llama(
            str(path), n_ctx=_ROOM, n_threads=threads, n_threads_batch=threads, verbose=False
        )
        self.runs = self.valid = 0

    def prepared(
        self, state: str, questions: Mapping[str, Question], *, questions_first: bool = False
    ) -> Callable[[], Done]:
        """A generation that is ready to be made.

        Args:
            state: the message.
            questions: what is to be answered.
            questions_first: before the message, where the prefix cache of the API finds them again.
        """
        wanted = f"Answer as JSON.\n{in_words(questions)}"
        message = f"Message:\n{state}"
        said = f"{wanted}\n\n{message}" if questions_first else f"{message}\n\n{wanted}"
        form = {"type": "json_object", "schema": schema(questions)}

        def call() -> Done:
            made = self._model.create_chat_completion(
                [{"role": "system", "content": SYSTEM}, {"role": "user", "content": said}],
                response_format=form, temperature=0.0, max_tokens=40 * len(questions),
            )  # fmt: skip
            self.runs += 1
            self.valid += answers_all(made["choices"][0]["message"]["content"] or "", questions)
            return Done(made["usage"]["prompt_tokens"], made["usage"]["completion_tokens"])

        return call

    def close(self) -> None:
        """Give the memory back."""
        self._model.close()
