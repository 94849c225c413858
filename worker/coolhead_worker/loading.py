"""Brings one tier's model into memory: verified, locked where that is allowed, warm and sound.

Guarantee: an engine that leaves here has answered once and passed its self-check; one that has not is
closed again. What takes long is told: the step to whoever asks for readiness, the share to the log.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from coolhead.errors import InvalidQuestion, ModelCorrupt
from coolhead.policy import Tier
from coolhead_worker.clock import Clock
from coolhead_worker.engine.decision.choose import package_at
from coolhead_worker.engine.goldens import claim_of
from coolhead_worker.engine.kernels import kernels_id
from coolhead_worker.engine.llama_engine import LlamaEngine
from coolhead_worker.engine.modelfile import ModelFile
from coolhead_worker.engine.protocol import Engine, PlanKind
from coolhead_worker.engine.selfcheck import TIMEOUT_S, Golden, Subject, Verdict, check, fitting
from coolhead_worker.engine.warmth import WARM
from coolhead_worker.model_report import ModelReporter

PROGRESS_EVERY_S = 3.0
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class LoadOrder:
    """How models are loaded. `golden`: known numbers; `own`: those of them that the operator gave."""

    threads: int
    mlock: bool
    golden: Sequence[Golden]
    own: Sequence[Golden] = ()
    cache: Path | None = None


class Loader:
    """Loads one model, as often as it is asked to."""

    def __init__(
        self,
        tier: Tier,
        file: ModelFile,
        order: LoadOrder,
        clock: Clock,
        reporter: ModelReporter,
        tell: Callable[[str], None] = lambda _step: None,
    ) -> None:
        """`tell` hears in one line what is being done."""
        self._tier = tier
        self._file = file
        self._order = order
        self._clock = clock
        self._reporter = reporter
        self._tell = tell
        self.subject: Subject | None = None  #: what is known of the model, once it was loaded
        self.verdict: Verdict | None = None  #: of the last self-check at a load

    def __call__(self) -> Engine:
        """The model, ready to serve.

        Raises:
            ModelMissing, ModelMismatch, ModelUnsupported: as in `LlamaEngine`.
            ModelCorrupt: the file does not load, or its self-check failed.
            DecodeFailed, DecodeTimeout: its first call did not work.
        """
        start = self._clock.monotonic()
        self._tell(f"loading the {self._tier.value} model")
        engine = self._open()
        try:
            loaded = self._clock.monotonic()
            self._tell(f"warming up the {self._tier.value} model")
            with suppress(InvalidQuestion):  # no author's words for it: then the check warms
                engine.evaluate([WARM], TIMEOUT_S)
            warm = self._clock.monotonic()
            self._tell(f"checking the {self._tier.value} model")
            self.subject = subject_of(engine, self._file)
            self._must_pass(engine, self.subject)
        except BaseException:
            engine.close()
            raise
        self._reporter.loaded(
            self._tier, engine, backend_of(engine), load_s=loaded - start, warm_s=warm - loaded,
            locked=engine.locked,
        )  # fmt: skip
        return engine

    def examine(self, engine: Engine, timeout_s: float = TIMEOUT_S) -> Verdict:
        """The self-check of the model that was loaded last; errors as in `selfcheck.check`."""
        return check(engine, self._order.golden, self.subject, timeout_s)

    def _open(self) -> LlamaEngine:
        size = weights_size(self._file)
        lock, why_not = lock_request(size, psutil.virtual_memory().available, asked=self._order.mlock)
        engine = LlamaEngine(
            self._file, threads=self._order.threads, cache=self._order.cache, mlock=lock,
            load_progress=Progress(self._clock, lambda share: self._reporter.loading(self._tier, share)),
        )  # fmt: skip
        if lock and not engine.locked:
            why_not = refused(size, resource.getrlimit(resource.RLIMIT_MEMLOCK)[0])
        if why_not:
            self._reporter.not_locked(self._tier, why_not)
        return engine

    def _must_pass(self, engine: Engine, subject: Subject) -> None:
        own = self._order.own
        if own and not fitting(own, subject, engine.plan_id(PlanKind.ISOLATED)):
            self._reporter.no_golden(self._tier)
        self.verdict = verdict = self.examine(engine)
        self._reporter.checked(self._tier, verdict)
        if not verdict.passed:
            raise ModelCorrupt(failed(self._file, verdict))


class Progress:
    """Tells the share of a load that is done, at most every `PROGRESS_EVERY_S` seconds."""

    def __init__(self, clock: Clock, tell: Callable[[float], None]) -> None:
        self._clock = clock
        self._tell = tell
        self._told = clock.monotonic()

    def __call__(self, share: float) -> None:
        """`share`, 0..1, is done."""
        now = self._clock.monotonic()
        if now - self._told >= PROGRESS_EVERY_S:
            self._told = now
            self._tell(share)


def subject_of(engine: LlamaEngine, file: ModelFile) -> Subject:
    """What is known of a loaded model and its file."""
    claim = claim_of(engine.meta, weights_size(file))
    return Subject(engine.digest, claim, file.sha256 is not None, kernels_id())


def weights_size(file: ModelFile) -> int:
    """Bytes of a model's weights, of a decision package those inside it; 0 when there are none."""
    package = package_at(file)
    path = file.path if package is None else package.file.path
    return path.stat().st_size if path.is_file() else 0


def lock_request(size: int, available: int, *, asked: bool) -> tuple[bool, str]:
    """Whether to ask for a lock of so many bytes, and in one line why not.

    Args:
        size: bytes of weights.
        available: bytes that the machine can give without paging; at most half of them are taken for good.
        asked: whether the operator wants it.
    """
    if not asked:
        return False, ""
    if size <= available // 2:
        return True, ""
    return False, f"its {size // MIB} MiB are more than half of the {available // MIB} MiB that are free"


def refused(size: int, limit: int) -> str:
    """Why the system did not lock `size` bytes, and what helps; `limit` is RLIMIT_MEMLOCK in bytes."""
    if 0 <= limit < size:
        return (
            f"it takes {size // MIB + 1} MiB, RLIMIT_MEMLOCK is {limit // MIB} MiB: "
            "raise it (ulimit -l, LimitMEMLOCK=) or set mlock = false"
        )
    return f"the system refused to lock {size // MIB + 1} MiB: make room, or set mlock = false"


def failed(file: ModelFile, verdict: Verdict) -> str:
    """A failed self-check in one line that says what to do."""
    cure = "fetch the file again"
    if verdict.golden and file.sha256 is None:
        cure += ", or pin its sha256 if it is a model of your own"
    return f"{file.path}: the model fails its self-check: {verdict.reason}: {cure}"


def backend_of(engine: Engine) -> str:
    """`metal`, `gpu` or `cpu`: where a model's matrices are multiplied."""
    plan = engine.plan_id(PlanKind.ISOLATED)
    return next((name for name in ("metal", "gpu") if f".{name}-" in plan), "cpu")
