"""The command `selfcheck`: are the configured models sound, and how to know that of one's own.

Guarantee: results on stdout, one line a model; a model that fails is an error with exit code 1. What
is recorded are the numbers of a model that passed the check against itself.
"""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

from prometheus_client import CollectorRegistry

from coolhead.policy import Tier
from coolhead_worker.assembly import load_order, model_files
from coolhead_worker.clock import SystemClock
from coolhead_worker.engine.goldens import record
from coolhead_worker.engine.modelfile import ModelFile
from coolhead_worker.loading import Loader, LoadOrder
from coolhead_worker.metrics import Metrics
from coolhead_worker.model_report import ModelReporter
from coolhead_worker.settings import Settings


def selfcheck(settings: Settings, into: Path | None) -> None:
    """Load each model once and check it.

    Args:
        settings: which models.
        into: a golden file that gets their numbers; None for no recording.

    Raises:
        ModelCorrupt: a model failed; other NodeErrors as in `Loader`.
        InvalidSettings: a golden file is not usable.
    """
    if into is None:
        order = load_order(settings, None, mlock=False)
    else:
        # Known numbers may be old, or of another model of that name: from now on those at hand are known.
        order = LoadOrder(settings.threads, mlock=False, golden=())
    for tier, file in model_files(settings).items():
        sys.stdout.write(_checked(tier, file, order, into) + "\n")


def _checked(tier: Tier, file: ModelFile, order: LoadOrder, into: Path | None) -> str:
    loader = Loader(tier, file, order, SystemClock(), ModelReporter(Metrics(CollectorRegistry())))
    with closing(loader()) as engine:
        assert loader.subject is not None
        assert loader.verdict is not None
        if into is not None:
            record(engine, loader.subject, into)
        how = "golden" if loader.verdict.golden else "against itself"
        told = (
            f"recorded in {into}" if into is not None else f"passed ({how}, moved {loader.verdict.moved:.2g})"
        )
        return f"{tier.value}\t{engine.name}@{engine.digest[:12]}\t{told}"
