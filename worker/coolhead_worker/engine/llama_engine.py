"""The engine that runs: one resident GGUF model behind the `Engine` protocol.

Guarantee: one model call reads all questions of all items (more calls only where they do not
fit), an over-long state is refused alone and never cut, and a call that failed or was aborted
leaves nothing behind: the next one starts from a freshly decoded prefix.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coolhead.errors import DecodeFailed, ModelCorrupt, StateTooLong
from coolhead.questions import MAX_OPTIONS, Question
from coolhead_worker.engine.features import feature_ids, ids_digest
from coolhead_worker.engine.llama import (
    MAX_SEQUENCES,
    LlamaContext,
    LlamaModel,
    backend_id,
    default_gpu_layers,
)
from coolhead_worker.engine.modelfile import ModelFile
from coolhead_worker.engine.plan import (
    FIRST_SEQUENCE,
    Chunk,
    Limits,
    Tokens,
    Trunk,
    aligned,
    cost,
    lay_out,
    plan_id,
    prefix_chunk,
)
from coolhead_worker.engine.prompt import Piece, suffix, template_digest, template_for
from coolhead_worker.engine.protocol import EvalItem, Evaluation
from coolhead_worker.engine.readout import Ending, Labels, choose, coded_labels, read

UBATCH = 512
_PREPARED = 512  # questions whose tokens are kept

Logits = NDArray[np.float32]  # (n_vocab,)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A question as tokens: its branch, and where its labels are read."""

    branch: Tokens
    labels: Labels


@dataclass(frozen=True, slots=True)
class _Work:
    """An item as tokens; branch i answers `wanted[i]`, None for a probe of the trunk."""

    trunk: Trunk
    wanted: tuple[tuple[str, Labels] | None, ...]


class LlamaEngine:
    """A model file, loaded and ready.

    Args:
        file: verified before it is loaded.
        threads: compute threads; the physical cores that this worker may use.
        gpu_layers: layers to offload, -1 for all; None for what the build supports.
        n_ctx: cells for one call: prefix, states and branches of all items.
        max_state_tokens: longer states are refused.
        cache: folder that remembers digests (see `ModelFile.verify`).

    Raises:
        ModelMissing: no such file.
        ModelMismatch: not the pinned file.
        ModelCorrupt: the file does not load, or its vocabulary lacks label tokens.
    """

    def __init__(
        self,
        file: ModelFile,
        *,
        threads: int,
        gpu_layers: int | None = None,
        n_ctx: int = 8192,
        max_state_tokens: int = 2048,
        cache: Path | None = None,
    ) -> None:
        self.name = file.name or file.path.stem
        self.digest = file.verify(cache)
        layers = default_gpu_layers() if gpu_layers is None else gpu_layers
        self._model = LlamaModel(file.path, layers)
        try:
            self._prepare(layers, max_state_tokens)
            self._context = LlamaContext(self._model, n_ctx=n_ctx, n_ubatch=UBATCH, threads=threads)
        except BaseException:
            self._model.close()
            raise
        self._limits = Limits(n_ctx - aligned(len(self._prefix)), MAX_SEQUENCES - FIRST_SEQUENCE, UBATCH)
        self._fresh = False
        self._lock = threading.Lock()
        self._open = True

    def _prepare(self, layers: int, max_state_tokens: int) -> None:
        """What follows from the vocabulary alone."""
        model = self._model
        self._template = template_for(model.meta("tokenizer.chat_template"))
        self._ending = Ending(self._template.tail, self._template.lead)
        bos = np.array(model.bos, dtype=np.int32)
        self._prefix: Tokens = np.concatenate([bos, self._pieces(self._template.head)])
        self._probes = [self._pieces(probe) for probe in self._template.probes]
        self._questions: OrderedDict[str, _Prepared] = OrderedDict()
        if coded_labels(MAX_OPTIONS, model, self._ending) is None:
            raise ModelCorrupt(f"{self.name}: its vocabulary has no {MAX_OPTIONS} one-token codes")
        self._features = feature_ids(model.n_vocab, model.n_embd)
        self.feature_ids_digest = ids_digest(self._features)
        self.plan = plan_id(backend_id(layers), UBATCH, template_digest(self._template))
        self.max_state_tokens = max_state_tokens

    @property
    def decodes(self) -> int:
        """Model calls made so far, the prefix's included."""
        return self._context.decodes

    def meta(self, key: str) -> str | None:
        """A value of the GGUF metadata; None when absent."""
        return self._model.meta(key)

    def evaluate(self, items: Sequence[EvalItem], timeout_s: float) -> list[Evaluation | StateTooLong]:
        """See `Engine.evaluate`.

        Raises:
            DecodeTimeout: not finished within `timeout_s` seconds.
            DecodeFailed: the model call returned an error, or the engine is closed.
            InvalidQuestion: a question that this vocabulary can't answer.
        """
        with self._lock:
            if not self._open:
                raise DecodeFailed("this engine is closed")
            works = [self._work(item) for item in items]
            kept = [work for work in works if isinstance(work, _Work)]
            done = iter(self._decode(kept, timeout_s))
            return [next(done) if isinstance(work, _Work) else work for work in works]

    def close(self) -> None:
        """Free context and weights; waits for a running call."""
        with self._lock:
            if self._open:
                self._open = False
                self._context.close()
                self._model.close()

    def _work(self, item: EvalItem) -> _Work | StateTooLong:
        state = np.array(self._model.tokens(item.state), dtype=np.int32)
        if len(state) > self.max_state_tokens:
            return StateTooLong(
                f"the state has {len(state)} tokens, {self.name} reads at most {self.max_state_tokens}: "
                "shorten it"
            )
        prepared = {name: self._question(question) for name, question in item.questions.items()}
        wanted: list[tuple[str, Labels] | None] = [(name, one.labels) for name, one in prepared.items()]
        branches = [one.branch for one in prepared.values()]
        if item.trunk:
            wanted += [None] * len(self._probes)
            branches += self._probes
        longest = max(map(len, branches), default=0)
        if not self._fits(len(state), longest):
            return StateTooLong(
                f"the state has {len(state)} tokens and its longest question {longest}: together more than "
                f"the {self._room} that {self.name} reads: shorten them"
            )
        return _Work(Trunk(state, tuple(branches)), tuple(wanted))

    @property
    def _room(self) -> int:
        return min(self._limits.cells, self._model.n_ctx_train - len(self._prefix))

    def _fits(self, state: int, branch: int) -> bool:
        return cost(state, [branch]) <= self._limits.cells and state + branch <= self._room

    def _question(self, question: Question) -> _Prepared:
        """Tokens and labels of a question; kept, since tasks ask the same ones again."""
        key = question.fingerprint
        if key in self._questions:
            self._questions.move_to_end(key)
            return self._questions[key]
        labels = choose(question, self._model, self._ending)
        text = self._model.tokens(suffix(question, labels.kind, labels.marks))
        branch = np.concatenate([np.array(text, dtype=np.int32), self._opening(spaced=labels.spaced)])
        self._questions[key] = prepared = _Prepared(branch, labels)
        if len(self._questions) > _PREPARED:
            self._questions.popitem(last=False)
        return prepared

    def _pieces(self, pieces: Sequence[Piece]) -> Tokens:
        parts = [self._model.tokens(piece.text, control=piece.control) for piece in pieces]
        return np.array([token for part in parts for token in part], dtype=np.int32)

    def _opening(self, *, spaced: bool) -> Tokens:
        piece = self._template.opening
        text = piece.text + (self._template.lead if spaced else "")
        return np.array(self._model.tokens(text, control=piece.control), dtype=np.int32)

    def _decode(self, works: Sequence[_Work], timeout_s: float) -> list[Evaluation]:
        """Read every branch of every item."""
        done = [Evaluation({}, None, self._tokens(work)) for work in works]
        chunks = lay_out([work.trunk for work in works], len(self._prefix), self._limits)
        with self._context.deadline(timeout_s):
            for chunk in chunks:
                for row, logits in zip(chunk.rows, self._rows(chunk), strict=True):
                    work = works[row.item]
                    done[row.item] = self._with(done[row.item], work.wanted[row.branch], logits)
        return done

    def _rows(self, chunk: Chunk) -> list[Logits]:
        # Not fresh: nothing decoded yet, or the last call left the memory in doubt.
        if not self._fresh:
            self._context.decode_prefix(prefix_chunk(self._prefix))
        self._fresh = False
        rows = self._context.decode(chunk)
        self._fresh = True
        return rows

    def _with(self, known: Evaluation, wanted: tuple[str, Labels] | None, logits: Logits) -> Evaluation:
        if wanted is None:
            heard = logits[self._features].astype(np.float64)
            before = () if known.features is None else (known.features,)
            return replace(known, features=np.concatenate([*before, heard]))
        name, labels = wanted
        return replace(known, readouts={**known.readouts, name: read(logits, labels)})

    def _tokens(self, work: _Work) -> int:
        return len(self._prefix) + len(work.trunk.state) + sum(map(len, work.trunk.branches))
