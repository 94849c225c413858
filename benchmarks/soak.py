"""Many decisions in one process: memory, file descriptors and threads must stay where they are.

    python benchmarks/soak.py [--count 100000] [--json]

Guarantee: exit code 1 when, after a warm-up of a fifth of the decisions, resident memory rose by more
than 2 % or a descriptor or thread was added; 0 when not. The mix is mostly what a busy node reads (short
states for learned heads, in micro-batches), with every plan, long states, other orders of options, ever
new inline questions and a refusal in it.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from coolhead.errors import CoolheadError, StateTooLong
from coolhead.policy import Debias
from coolhead.questions import Noul
from coolhead_worker.bench.machine import this_machine
from coolhead_worker.bench.variants import item_for
from coolhead_worker.bench.workload import asked, ticket
from coolhead_worker.engine.llama_engine import LlamaEngine
from coolhead_worker.engine.modelfile import ModelFile
from coolhead_worker.engine.protocol import Engine, EvalItem, Orders, PlanKind
from coolhead_worker.fit_command import prepare_models

COUNT = 100_000
ALLOWED = 0.02
"""Growth of resident memory after the warm-up."""
WARM_UP = 0.2
SAMPLES = 200
TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What the process held after so many decisions; `rss` in bytes."""

    decisions: int
    rss: int
    files: int
    threads: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """`growth`: of resident memory, from the end of the warm-up to its highest afterwards, as a share.
    `files`: at its end and at the last sample. `threads`: the fewest in each half after it."""

    decisions: int
    rss_start: int
    rss_peak: int
    growth: float
    files: tuple[int, int]
    threads: tuple[int, int]
    faults: tuple[str, ...]


def steadiness(samples: Sequence[Sample], allowed: float = ALLOWED) -> Verdict:
    """Judge a run by its samples.

    Args:
        samples: in order; those of the first fifth of the decisions are warm-up.
        allowed: growth of memory.

    Raises:
        ValueError: fewer than two samples after the warm-up: nothing can be said.
    """
    total = samples[-1].decisions if samples else 0
    after = [sample for sample in samples if sample.decisions >= WARM_UP * total]
    if len(after) < 2:
        raise ValueError("too few samples after the warm-up")
    first, last = after[0], after[-1]
    peak = max(sample.rss for sample in after)
    growth = peak / first.rss - 1
    # The fewest of each half: a timer's thread may be alive for a moment.
    half = len(after) // 2
    threads = tuple(min(sample.threads for sample in some) for some in (after[:half], after[half:]))
    faults = [
        text
        for bad, text in (
            (growth > allowed, f"resident memory rose by {growth:.1%} (allowed: {allowed:.0%})"),
            (last.files > first.files, f"{last.files - first.files} file descriptor(s) more"),
            (threads[1] > threads[0], f"{threads[1] - threads[0]} thread(s) more"),
        )
        if bad
    ]
    files = (first.files, last.files)
    return Verdict(total, first.rss, peak, growth, files, (threads[0], threads[1]), tuple(faults))


def batches(count: int, rng: random.Random) -> Iterator[list[EvalItem]]:
    """Micro-batches of `count` items in all, as a mixed load would bring them."""
    left = count
    while left:
        size = min(left, rng.choice((1, 2, 4, 8, 16)))
        yield [_item(rng) for _ in range(size)]
        left -= size


def _item(rng: random.Random) -> EvalItem:
    """Of a hundred: 94 short ones for the trunk, 2 isolated, 2 pinned, 1 long, and 1 read in two orders
    or far too long."""
    drawn = rng.randrange(100)
    if drawn < 94:
        return item_for(PlanKind.TRUNK, ticket(rng, rng.choice((2, 3, 5))), {})
    if drawn < 96:
        asks = Noul(instructions=f"Is case {rng.randrange(10**6)} meant?")
        return item_for(PlanKind.ISOLATED, ticket(rng, 4), {"new": asks})
    if drawn < 98:
        return item_for(PlanKind.PINNED, ticket(rng, 6), asked(3))
    if drawn < 99:
        return item_for(PlanKind.TRUNK, ticket(rng, rng.choice((75, 150, 300))), {})
    if rng.random() < 0.5:
        return EvalItem("far too long " * 4000, {}, trunk=True)
    queue = {"queue": asked(2)["queue"]}
    return EvalItem(ticket(rng, 6), queue, trunk=False, orders={"queue": Orders(Debias.REVERSED)})


def soak(
    engine: Engine,
    count: int,
    look: Callable[[int], Sample],
    heard: Callable[[int], None] = lambda _done: None,
    seed: int = 0,
) -> list[Sample]:
    """Read `count` items and take samples on the way, about two hundred.

    Raises:
        NodeError: a call failed.
        ValueError: an answer is missing.
    """
    samples: list[Sample] = []
    done = 0
    for items in batches(count, random.Random(seed)):  # a load, no secret
        for item, result in zip(items, engine.evaluate(items, TIMEOUT_S), strict=True):
            if not isinstance(result, StateTooLong) and (
                result.readouts.keys() != item.questions.keys() or (result.features is None) == item.trunk
            ):
                raise ValueError("an item came back without all that it asked for")
        done += len(items)
        if not samples or done - samples[-1].decisions >= count / SAMPLES or done == count:
            samples.append(look(done))
            heard(done)
    return samples


def look_at_this_process(done: int) -> Sample:
    """A sample of the process that calls."""
    process = psutil.Process()
    with process.oneshot():
        return Sample(done, process.memory_info().rss, process.num_fds(), process.num_threads())


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak and judge; returns the exit code."""
    options = _options(arguments)
    start = time.perf_counter()
    try:
        model = prepare_models()["fast"] if options.model is None else ModelFile(options.model, None, "")
        with closing(LlamaEngine(model, threads=options.threads)) as engine:
            name = engine.name
            samples = soak(
                engine, options.count, look_at_this_process, lambda done: _say(done, options.count)
            )
        verdict = steadiness(samples)
    except CoolheadError as error:
        sys.stderr.write(f"benchmarks/soak.py: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    _print(verdict, name, time.perf_counter() - start, as_json=options.json)
    return 1 if verdict.faults else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--count", type=_count, default=COUNT, help=f"decisions (default: {COUNT})")
    parser.add_argument("--model", type=Path, help="a GGUF file; default: SmolLM2-135M-Instruct in BF16")
    parser.add_argument("--threads", type=int, default=1, help="of the model (default: 1)")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    return parser.parse_args(arguments)


def _count(text: str) -> int:
    count = int(text)
    if count < 100:
        raise argparse.ArgumentTypeError("at least 100: fewer show nothing")
    return count


def _print(verdict: Verdict, model: str, seconds: float, *, as_json: bool) -> None:
    out = sys.stderr if as_json else sys.stdout
    out.write(
        f"{verdict.decisions} decisions in {seconds:.0f} s; resident memory {verdict.rss_start / 2**20:.1f} "
        f"to {verdict.rss_peak / 2**20:.1f} MiB ({verdict.growth:+.2%}), file descriptors "
        f"{verdict.files[0]} to {verdict.files[1]}, threads {verdict.threads[0]} to {verdict.threads[1]}\n"
    )
    out.writelines(f"not steady: {fault}\n" for fault in verdict.faults)
    if as_json:
        more = {"model": model, "seconds": round(seconds, 1), "machine": this_machine().wire()}
        sys.stdout.write(json.dumps(asdict(verdict) | more) + "\n")


def _say(done: int, count: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{done} of {count} decisions")


if __name__ == "__main__":
    sys.exit(main())
