"""The command `bench` for a person: progress on stderr, a table or one JSON object on stdout.

Guarantee: no bench beside a running worker unless forced, since both would be slow; Ctrl-C ends it
after the call in hand, with everything closed; no queue is needed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from coolhead.errors import NodeBusy
from coolhead.policy import Tier
from coolhead_worker.bench.machine import this_machine
from coolhead_worker.bench.measuring import Rounds
from coolhead_worker.bench.session import Figures, Heard, bench_model, title
from coolhead_worker.bench.table import rendered
from coolhead_worker.bench.variants import grid
from coolhead_worker.engine.modelfile import ModelFile
from coolhead_worker.lock import NodeLock
from coolhead_worker.settings import Settings

QUICK = Rounds(least=2, most=5, seconds=45.0)
WHOLE = Rounds(least=5, most=25, seconds=600.0)
"""Of each group of a model's cases."""
PLAIN_WIDTH = 110
"""Of tables that do not go to a terminal."""


def bench(settings: Settings, *, quick: bool, force: bool, as_json: bool) -> None:
    """Measure the configured models and print what came out.

    Args:
        settings: models and threads, as a worker reads them.
        quick: fewer cells and rounds.
        force: also beside a running worker.
        as_json: one JSON object instead of tables.

    Raises:
        NodeBusy: a worker runs on this node, and `force` is not given.
        NodeError: a model can't be loaded, or a call failed.
    """
    found: dict[Tier, Figures] = {}
    with ExitStack() as stack:
        _alone(settings, stack, force=force)
        for tier, model in ((Tier.FAST, settings.fast), (Tier.DEEP, settings.deep)):
            if model is not None:
                file = ModelFile(model.path, model.sha256, model.name)
                with _progress(tier.value) as heard:
                    rounds = QUICK if quick else WHOLE
                    found[tier] = bench_model(file, settings.threads, grid(quick), rounds, heard)
    (_print_json if as_json else _print_tables)(found, settings.threads)


def _alone(settings: Settings, stack: ExitStack, *, force: bool) -> None:
    lock = NodeLock(settings.lock_file)
    try:
        stack.enter_context(lock)
    except NodeBusy:
        if not force:
            raise
        sys.stderr.write("warning: a worker runs on this node: both are slower now than alone\n")


@contextmanager
def _progress(name: str) -> Iterator[Heard]:
    """A line on a terminal that tells what runs; nothing where stderr is no terminal."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    console = Console(stderr=True)
    # Where nothing moves, rich would still leave an empty line.
    still = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=still) as progress:
        step = progress.add_task(name, total=None)

        def heard(number: int, variant: str) -> None:
            stage = f"round {number}" if number else "warming up"
            progress.update(step, description=f"{name}, {stage}: {variant}")

        yield heard


def _print_json(found: dict[Tier, Figures], threads: int) -> None:
    models = {tier.value: figures.wire() for tier, figures in found.items()}
    said = {"machine": this_machine().wire(), "threads": threads, "models": models}
    sys.stdout.write(json.dumps(said, ensure_ascii=False) + "\n")


def _print_tables(found: dict[Tier, Figures], threads: int) -> None:
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    console.print(str(this_machine()))
    for tier, figures in found.items():
        console.print(rendered(title(tier, figures, threads), figures.lines))
        for name, ratio in figures.ratios.items():
            console.print(f"{name}: {ratio.value:.3f}  (quartiles {ratio.low:.3f} to {ratio.high:.3f})")
        if figures.told.valid is not None:
            console.print(f"generated texts that are valid answers: {figures.told.valid:.0%}")
