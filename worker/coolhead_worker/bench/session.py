"""One model under the bench: loaded, measured beside what it is compared with, closed again.

Guarantee: the engine is built as a worker builds it, and everything that was loaded is given back, also
when the run is interrupted.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path

from coolhead.policy import Tier
from coolhead_worker.bench.baseline import Bare, JsonGeneration
from coolhead_worker.bench.measuring import Measured, Ratio, Rounds, Stopwatch, Variant, measure, ratio
from coolhead_worker.bench.table import Line, case_lines, other_lines, overhead, rounded
from coolhead_worker.bench.twins import bare_variants, json_name, json_variants
from coolhead_worker.bench.variants import USUAL, Case, engine_variant, grouped
from coolhead_worker.bench.workload import asked
from coolhead_worker.engine.llama_engine import LlamaEngine
from coolhead_worker.engine.modelfile import ModelFile
from coolhead_worker.engine.protocol import PinnedSet, PlanKind

WATCH = Stopwatch(time.process_time, time.perf_counter)
"""CPU time of all threads of this process, and time passed."""

PINNED, ISOLATED = Case(PlanKind.PINNED, USUAL), Case(PlanKind.ISOLATED, USUAL)
TRUNK_1, TRUNK_10 = Case(PlanKind.TRUNK, 1), Case(PlanKind.TRUNK, 10)

OFTEN = 3
"""Runs a round of what is cheap and compared closely."""

Heard = Callable[[int, str], None]
"""Told the round (0 is the warm-up) and the variant that begins."""


@dataclass(frozen=True, slots=True)
class Told:
    """Of the model itself. `valid`: share of the generated texts that are JSON and answer everything."""

    name: str
    sha256: str
    plans: dict[str, str]
    load_s: float
    valid: float | None


@dataclass(frozen=True, slots=True)
class Figures:
    """All that was measured of one model."""

    told: Told
    measured: dict[str, Measured]
    cases: list[Case]

    @property
    def rounds(self) -> int:
        """Of the first group."""
        return len(next(iter(self.measured.values())).cpu)

    @property
    def lines(self) -> list[Line]:
        """The engine's variants, then the others."""
        return case_lines(self.measured, self.cases) + other_lines(self.measured, self.cases)

    @property
    def ratios(self) -> dict[str, Ratio]:
        """CPU times against each other: of those pairs that were measured."""
        pairs = {
            "json_generation_vs_pinned": (json_name(3), PINNED.name),
            "json_generation_questions_first_vs_pinned": (json_name(3, questions_first=True), PINNED.name),
            "json_generation_vs_trunk": (json_name(10), TRUNK_10.name),
            "trunk_10_questions_vs_1": (TRUNK_10.name, TRUNK_1.name),
        }
        there = self.measured
        found = {key: ratio(there[a], there[b]) for key, (a, b) in pairs.items() if {a, b} <= there.keys()}
        over = {"pinned": PINNED, "isolated": ISOLATED, "trunk": TRUNK_1}
        more = {f"overhead_{key}": overhead(there, case) for key, case in over.items() if case.name in there}
        return more | found

    def wire(self) -> dict[str, object]:
        """Plain data."""
        return {
            **asdict(self.told), "rounds": self.rounds, "variants": list(map(rounded, self.lines)),
            "ratios": {key: _spread(found) for key, found in self.ratios.items()},
        }  # fmt: skip


def _spread(found: Ratio) -> dict[str, float]:
    return {"median": round(found.value, 4), "q25": round(found.low, 4), "q75": round(found.high, 4)}


def bench_model(
    file: ModelFile,
    threads: int,
    cases: Sequence[Case],
    rounds: Rounds,
    heard: Heard,
    *,
    often: Sequence[Case] = (),
    beside: Sequence[Variant] = (),
    cache: Path | None = None,
) -> Figures:
    """Measure every case, its bare twins and JSON generation: group by group, each group interleaved.

    Args:
        file: the model.
        threads: compute threads of every variant.
        cases: what the engine does; bare twins are made for those of one job a call.
        rounds: how many, in each group.
        heard: told what begins.
        often: cases that are run three times a round, and their twins.
        beside: further variants for the rounds of the first group.
        cache: folder that remembers digests.

    Raises:
        NodeError: the model can't be loaded, or a call failed.
    """
    measured: dict[str, Measured] = {}
    told: list[Told] = []
    for number, group in enumerate(grouped(cases)):
        with ExitStack() as stack:
            heard(0, "loading")
            start = WATCH.wall()
            engine = stack.enter_context(closing(LlamaEngine(file, threads=threads, cache=cache)))
            load_s = WATCH.wall() - start
            bare = stack.enter_context(closing(Bare(engine, threads)))
            generations = [stack.enter_context(closing(one)) for one in _generations(file, threads, number)]
            variants = _engine_variants(engine, bare, group, often)
            if generations:
                variants += json_variants(*generations) + list(beside)
            rng = random.Random(number)  # noqa: S311  # an order, no secret
            measured |= measure(variants, rounds, WATCH, rng, heard)
            told.append(_told(engine, load_s, generations))
    return Figures(told[0], measured, list(cases))


def _generations(file: ModelFile, threads: int, group: int) -> list[JsonGeneration]:
    """Two of them beside the first group, none beside the others."""
    return [JsonGeneration(file.path, threads) for _ in range(0 if group else 2)]


def _engine_variants(
    engine: LlamaEngine, bare: Bare, group: Sequence[Case], often: Sequence[Case]
) -> list[Variant]:
    variants: list[Variant] = []
    for repeats in (1, OFTEN):
        some = [case for case in group if (case in often) == (repeats == OFTEN)]
        variants += [engine_variant(engine, case, lambda: engine.tokens, repeats) for case in some]
        variants += bare_variants(bare, some, repeats)
    return variants


def _told(engine: LlamaEngine, load_s: float, generations: Sequence[JsonGeneration]) -> Told:
    plans = {
        kind.value: engine.plan_id(kind, PinnedSet(asked(USUAL)) if kind is PlanKind.PINNED else None)
        for kind in PlanKind
    }
    valid, runs = sum(one.valid for one in generations), sum(one.runs for one in generations)
    return Told(engine.name, engine.digest, plans, round(load_s, 2), valid / runs if runs else None)


def title(tier: Tier, figures: Figures, threads: int) -> str:
    """Of a table: the model and how it was run."""
    return f"{tier.value}: {figures.told.name}, {threads} thread(s), medians of {figures.rounds} rounds"
