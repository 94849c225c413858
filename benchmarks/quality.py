"""How good the answers are on labelled texts that nobody fitted the product on.

    python benchmarks/quality.py [--quick] [--json]

Guarantee: every figure is of rows that its calibrator was not fitted on; readings are kept, so a run that
was stopped goes on where it was; with --json the last line of stdout is one JSON object and everything else
goes to stderr; a set that can't be had is told with its reason under `missing`, and the others go on.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from datasets import DataSet, Loader, sources
from quality_fetch import SetMissing
from quality_reading import Read, read_set
from quality_scoring import CURVE, QUICK, WHOLE, Effort, by_kind, judge_all, judge_parts, learning_curve
from quality_table import Outcome, SetFigures, tables, wire
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # ships no types

from coolhead.errors import CoolheadError
from coolhead.policy import Tier
from coolhead_worker.bench.machine import this_machine
from coolhead_worker.engine.llama_engine import LlamaEngine
from coolhead_worker.engine.protocol import Engine
from coolhead_worker.fit_command import cache_folder, prepare_models

_ROOT = Path(__file__).resolve().parents[1]
DEMO, TASKS = _ROOT / "examples" / "demo", _ROOT / "examples" / "tasks"
QUICK_ROWS = 30
HEAD = "the product's only learned head reads the trunk: see trunk_head"

Say = Callable[[str], None]
Start = Callable[[], Engine]


def main() -> int:
    """Measure and print; returns the exit code."""
    options = _options()
    try:
        loaders = _chosen(sources(DEMO, TASKS), options.sets)
        found, missing = load(loaders, options.cache / "benchmarks" / "sets")
        if options.quick:
            found = [one.first(QUICK_ROWS) for one in found]
        outcome = measure(
            found, _engines(options), QUICK if options.quick else WHOLE,
            options.cache / "benchmarks" / "readings", _say,
        )  # fmt: skip
    except CoolheadError as error:
        sys.stderr.write(f"benchmarks/quality.py: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    _show(outcome, found, missing, options)
    return 0


def _options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROWS} rows of each set, few repeats")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    parser.add_argument("--sets", help="some of bastion,jevbench,tickets,prompts,spam; default: all")
    parser.add_argument("--tiers", help="fast or deep; default: fast,deep")
    parser.add_argument("--threads", type=int, default=1, help="of the models (default: 1)")
    parser.add_argument("--cache", type=Path, default=cache_folder(), help="keeps data sets and readings")
    return parser.parse_args(arguments)


def _chosen(loaders: Mapping[str, Loader], wanted: str | None) -> dict[str, Loader]:
    """Raises `SetMissing` when a name stands for no set."""
    names = list(loaders) if wanted is None else wanted.split(",")
    unknown = [name for name in names if name not in loaders]
    if unknown:
        raise SetMissing(f"no set {unknown[0]!r}: there are {', '.join(loaders)}")
    return {name: loaders[name] for name in names}


def load(loaders: Mapping[str, Loader], archives: Path) -> tuple[list[DataSet], dict[str, str]]:
    """The sets that can be had, and why the others can't."""
    found: list[DataSet] = []
    missing: dict[str, str] = {}
    for name, loader in loaders.items():
        try:
            found += loader(archives)
        except SetMissing as error:
            missing[name] = str(error)
    return found, missing


def _engines(options: argparse.Namespace) -> dict[Tier, Start]:
    """How to start each tier's model."""
    files = prepare_models()
    tiers = [Tier(name) for name in (options.tiers or "fast,deep").split(",")]
    return {tier: partial(LlamaEngine, files[tier.value], threads=options.threads) for tier in tiers}


def measure(
    found: Sequence[DataSet], engines: Mapping[Tier, Start], effort: Effort, cache: Path | None, say: Say
) -> Outcome:
    """Read every set on every tier, one model in memory at a time, and judge what was read."""
    outcome: dict[str, dict[Tier, SetFigures]] = {one.name: {} for one in found}
    for tier, start in engines.items():
        for name, read in _readings(found, tier, start, cache, say).items():
            say(f"{name}, {tier.value}: fitting and judging")
            outcome[name][tier] = _figures(read, effort)
    return outcome


def _readings(
    found: Iterable[DataSet], tier: Tier, start: Start, cache: Path | None, say: Say
) -> dict[str, Read]:
    with closing(start()) as engine:
        return {
            one.name: read_set(engine, tier, one, cache, partial(_progress, say, one.name, tier))
            for one in found
        }


def _progress(say: Say, name: str, tier: Tier, done: int, total: int) -> None:
    if done % 20 == 0 or done == total:
        say(f"{name}, {tier.value}: read {done} of {total}")


def _figures(read: Read, effort: Effort) -> SetFigures:
    # One thread: on a busy machine BLAS threads wait for each other far longer than they work.
    with threadpool_limits(1, user_api="blas"):
        readouts = judge_all(read, effort)
        parts = judge_parts(read, effort) if effort.curve_repeats else {}
        curve = learning_curve(read.trunk, effort, CURVE)
        return SetFigures(read.too_long, readouts, curve, parts, by_kind(readouts["trunk_head"], read.kinds))


def _show(
    outcome: Outcome, found: Sequence[DataSet], missing: Mapping[str, str], options: argparse.Namespace
) -> None:
    out = sys.stderr if options.json else sys.stdout
    out.write(f"{this_machine()}\n\n")
    for one in found:
        out.write(f"{one.name}: {one.source}: {'; '.join(one.remarks)}\n")
    for name, why in missing.items():
        out.write(f"{name}: missing: {why}\n")
    out.write(f"\n{tables(outcome)}\n")
    if options.json:
        told = wire(outcome) | {"missing": dict(missing)} | _setting(found, options)
        sys.stdout.write(json.dumps(told, ensure_ascii=False, allow_nan=False) + "\n")


def _setting(found: Sequence[DataSet], options: argparse.Namespace) -> dict[str, Any]:
    return {
        "head": HEAD, "quick": options.quick, "machine": this_machine().wire(),
        "sources": {one.name: {"from": one.source, "remarks": list(one.remarks)} for one in found},
    }  # fmt: skip


def _say(text: str) -> None:
    sys.stderr.write(f"\r\x1b[K{text}" if sys.stderr.isatty() else f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
