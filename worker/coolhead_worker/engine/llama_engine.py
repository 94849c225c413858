"""The engine that runs: one resident GGUF model behind the `Engine` protocol.

Guarantee: no token is read twice in a batch (prefixes are kept from call to call, items with the
same state share its pass), an over-long state is refused alone and never cut, and a call that failed
or was aborted leaves nothing behind: the next one starts from an empty memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from coolhead.errors import DecodeFailed, InvalidQuestion, ModelCorrupt, StateTooLong
from coolhead.questions import MAX_OPTIONS, Choice, Question
from coolhead_worker.engine.abort import Abort
from coolhead_worker.engine.chunk import Limits
from coolhead_worker.engine.compiler import Compiler
from coolhead_worker.engine.decision.choose import dialect_of, package_at
from coolhead_worker.engine.dialect import Dialect
from coolhead_worker.engine.features import features_digest, layers_of
from coolhead_worker.engine.layout import FIRST_SEQUENCE
from coolhead_worker.engine.llama import LlamaModel, backend_id, default_gpu_layers
from coolhead_worker.engine.llama_context import MAX_SEQUENCES, LlamaContext
from coolhead_worker.engine.modelfile import ModelFile
from coolhead_worker.engine.plan import EvaluationPlan, set_digest
from coolhead_worker.engine.protocol import EvalItem, Evaluation, PinnedSet, PlanKind
from coolhead_worker.engine.reader import Reader
from coolhead_worker.engine.requests import Request, RequestWriter, Room
from coolhead_worker.engine.sheets import Place, Sheet, Sheets
from coolhead_worker.engine.tap import Tap
from coolhead_worker.engine.template import template_for

UBATCH = 512

_ALIKE = "one of very many options that all begin in this way, {}"
"""Names that only codes tell apart, in any vocabulary."""

PACK = 256
"""Cells up to which texts share a call on a CPU: attention is computed for whole blocks of 256 cells,
and every text of a call pays for the cells of all."""


class LlamaEngine:
    """A model file, loaded and ready.

    Args:
        file: verified before it is loaded; a folder is a decision package.
        threads: compute threads; the physical cores that this worker may use.
        gpu_layers: layers to offload, -1 for all; None for what the build supports.
        n_ctx: cells for one call: prefixes, states and branches of all items.
        max_state_tokens: longer states are refused.
        cache: folder that remembers digests (see `ModelFile.verify`).
        mlock: keep the weights in memory; `locked` tells whether the system allowed it.
        load_progress: told the share of the weights that is loaded, 0..1.

    Raises:
        ModelMissing: no such file.
        ModelMismatch: not the pinned file.
        ModelCorrupt: the file does not load, or its vocabulary lacks label tokens.
        ModelUnsupported: a decision model of a kind that can't be read here.
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
        mlock: bool = False,
        load_progress: Callable[[float], None] | None = None,
    ) -> None:
        package = package_at(file)
        file = file if package is None else package.file
        self.name = file.name or file.path.stem
        self.digest = file.verify(cache)
        layers = default_gpu_layers() if gpu_layers is None else gpu_layers
        self._model = LlamaModel(file.path, layers, mlock=mlock, progress=load_progress)
        self._abort = Abort()
        try:
            self._dialect: Dialect = dialect_of(self._model, package) or self._plain()
            self._prepare(layers, n_ctx, max_state_tokens)
            self._context = LlamaContext(
                self._model, n_ctx=n_ctx, n_ubatch=UBATCH, threads=threads, abort=self._abort, tap=self._tap
            )
        except BaseException:
            self._model.close()
            raise
        self._reader = Reader(self._context, self._limits)
        self._lock = threading.Lock()
        self._open = True

    def _prepare(self, gpu_layers: int, n_ctx: int, max_state_tokens: int) -> None:
        """What follows from the vocabulary alone."""
        model = self._model
        self._compiler = Compiler(model, model.bos, self._dialect)
        layers = layers_of(model.n_layer)
        self._tap = Tap(layers, model.n_embd)
        self.features_digest = features_digest(layers, model.n_embd)
        self._backend = backend_id(gpu_layers)
        self._room = Room(n_ctx, model.n_ctx_train, max_state_tokens, self.name)
        self._limits = Limits(n_ctx, MAX_SEQUENCES - FIRST_SEQUENCE, UBATCH, n_ctx if gpu_layers else PACK)
        self.max_state_tokens = max_state_tokens

    def _plain(self) -> Dialect:
        """The dialect of a model whose author brought none."""
        dialect = template_for(self._model.meta("tokenizer.chat_template"))
        try:
            dialect.labels(Choice(criteria=[_ALIKE.format(at) for at in range(MAX_OPTIONS)]), self._model)
        except InvalidQuestion:
            raise ModelCorrupt(f"{self.name}: its vocabulary has no {MAX_OPTIONS} one-token codes") from None
        return dialect

    @property
    def decodes(self) -> int:
        """Model calls made so far, those of prefixes included."""
        return self._context.decodes

    @property
    def tokens(self) -> int:
        """Tokens decoded so far, padding excluded."""
        return self._context.tokens

    @property
    def locked(self) -> bool:
        """Whether the weights are locked into memory."""
        return self._model.locked

    def meta(self, key: str) -> str | None:
        """A value of the GGUF metadata; None when absent."""
        return self._model.meta(key)

    def plan_id(self, kind: PlanKind, pinned: PinnedSet | None = None) -> str:
        """See `Engine.plan_id`; where a dialect can't pin, pinned questions are read isolated."""
        if kind is PlanKind.PINNED and not self._dialect.pins:
            kind = PlanKind.ISOLATED
        return EvaluationPlan(
            kind, self._backend, UBATCH, self._dialect.digest(kind),
            reading=self.features_digest[:8] if kind is PlanKind.TRUNK else "text",
            pinned=set_digest(pinned or PinnedSet({})) if kind is PlanKind.PINNED else "",
        ).id  # fmt: skip

    def temperature(self, question: Question) -> float | None:
        """See `Engine.temperature`."""
        return self._dialect.temperature(question)

    def interrupt(self) -> None:
        """See `Engine.interrupt`."""
        self._abort.interrupt()

    def evaluate(self, items: Sequence[EvalItem], timeout_s: float) -> list[Evaluation | StateTooLong]:
        """See `Engine.evaluate`.

        Raises:
            DecodeTimeout: not finished within `timeout_s` seconds.
            DecodeInterrupted: `interrupt` was called.
            DecodeFailed: the model call returned an error, or the engine is closed.
            InvalidQuestion: a question that this vocabulary can't answer.
        """
        with self._lock:
            if not self._open:
                raise DecodeFailed("this engine is closed")
            sheets = Sheets()
            writer = RequestWriter(self._compiler, sheets, self._room)
            wanted = [writer.write(item) for item in items]
            requests = [one for one in wanted if isinstance(one, Request)]
            with self._context.deadline(timeout_s):
                for group in sheets.by_prefix():
                    self._reader.read(group, partial(_more, requests, self._compiler))
            return [one.evaluation(self._dialect) if isinstance(one, Request) else one for one in wanted]

    def close(self) -> None:
        """Free context and weights; waits for a running call."""
        with self._lock:
            if self._open:
                self._open = False
                self._context.close()
                self._model.close()


def _more(requests: Sequence[Request], compiler: Compiler, sheet: Sheet) -> list[Place]:
    """The other orders of this sheet's near ties, written onto it."""
    return [place for one in requests for place in one.go_on(sheet, compiler)]
