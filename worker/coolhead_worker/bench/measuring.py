"""Interleaved measuring: who is slow is told apart from when it was slow.

Guarantee: pure but for the two clocks it is given. Every round runs each variant, once or as often as it
asks, in an order drawn anew; what a variant needs is made before its clocks start; ratios compare
figures of the same round, so a machine that slows down half way moves both sides.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """Two clocks in seconds that never go back: time of all cores used, and time passed."""

    cpu: Callable[[], float]
    wall: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Done:
    """What one run did: `new` tokens went through the model, `generated` of them were its own."""

    new: int = 0
    generated: int = 0


@dataclass(frozen=True, slots=True)
class Variant:
    """One way of doing the work.

    `prepare(number)` makes the input of a run, untimed; what it returns is timed. Numbers rise from 0,
    the warm-up. `jobs`: decisions of one run; figures are per job. `watch`: clocks of its own, of a
    variant that works in another process. `repeats`: runs in each round; their median counts.
    """

    name: str
    prepare: Callable[[int], Callable[[], Done]]
    jobs: int = 1
    watch: Stopwatch | None = None
    repeats: int = 1


@dataclass(frozen=True, slots=True)
class Rounds:
    """How long to go on: `least` rounds whatever they cost, at most `most`, and no round that would
    end after `seconds`, as the longest one so far foretells."""

    least: int
    most: int
    seconds: float

    def more(self, done: int, spent: float, longest: float) -> bool:
        """Whether another round is run after `done` of them, `spent` seconds from the start."""
        if done < self.least:
            return True
        return done < self.most and spent + longest <= self.seconds


@dataclass(frozen=True, slots=True)
class _Run:
    cpu: float
    wall: float
    done: Done


@dataclass(slots=True)
class Measured:
    """One variant's figures: seconds of a whole run, the median of each round."""

    name: str
    jobs: int
    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    new: list[float] = field(default_factory=list)
    generated: list[float] = field(default_factory=list)

    def add(self, runs: Sequence[_Run]) -> None:
        """The runs of one more round."""
        self.cpu.append(median(run.cpu for run in runs))
        self.wall.append(median(run.wall for run in runs))
        self.new.append(median(run.done.new for run in runs))
        self.generated.append(median(run.done.generated for run in runs))

    @property
    def cpu_ms(self) -> float:
        """Median CPU time of a job, in milliseconds."""
        return 1e3 * median(self.cpu) / self.jobs

    @property
    def wall_ms(self) -> float:
        """Median time of a job, in milliseconds."""
        return 1e3 * median(self.wall) / self.jobs

    @property
    def tokens(self) -> float:
        """Median number of new tokens of a job."""
        return median(self.new) / self.jobs

    @property
    def made(self) -> float:
        """Median number of generated tokens of a job."""
        return median(self.generated) / self.jobs

    @property
    def per_second(self) -> float:
        """New tokens a second of wall time, median of the rounds; 0 when the clock stood still."""
        return median(n / w if w > 0 else 0.0 for n, w in zip(self.new, self.wall, strict=True))


def measure(
    variants: Sequence[Variant],
    rounds: Rounds,
    watch: Stopwatch,
    rng: random.Random,
    heard: Callable[[int, str], None] = lambda _round, _name: None,
) -> dict[str, Measured]:
    """Run every variant once to warm up, then round after round, each as often as it repeats.

    Args:
        variants: with different names.
        rounds: how many.
        watch: clocks of this process, for variants without their own.
        rng: draws the orders.
        heard: told the round (0 is the warm-up) and the variant that begins.

    Returns:
        Figures by name, in the order given; the warm-up is not among them.

    Raises:
        ValueError: two variants share a name.
    """
    figures = {variant.name: Measured(variant.name, variant.jobs) for variant in variants}
    if len(figures) != len(variants):
        raise ValueError("two variants share a name")
    for variant in variants:
        heard(0, variant.name)
        variant.prepare(0)()
    start, longest, done = watch.wall(), 0.0, 0
    while rounds.more(done, watch.wall() - start, longest):
        began = watch.wall()
        done += 1
        for name, runs in _round(variants, done, watch, rng, heard).items():
            figures[name].add(runs)
        longest = max(longest, watch.wall() - began)
    return figures


def _round(
    variants: Sequence[Variant],
    number: int,
    watch: Stopwatch,
    rng: random.Random,
    heard: Callable[[int, str], None],
) -> dict[str, list[_Run]]:
    """Round `number`, from 1: the runs of each variant."""
    runs: dict[str, list[_Run]] = {variant.name: [] for variant in variants}
    order = [variant for variant in variants for _ in range(variant.repeats)]
    for variant in rng.sample(order, len(order)):
        heard(number, variant.name)
        earlier = (number - 1) * variant.repeats + len(runs[variant.name])
        runs[variant.name].append(_run(variant, earlier + 1, watch))
    return runs


def _run(variant: Variant, number: int, watch: Stopwatch) -> _Run:
    work = variant.prepare(number)
    clocks = variant.watch or watch
    cpu, wall = clocks.cpu(), clocks.wall()
    done = work()
    wall, cpu = clocks.wall() - wall, clocks.cpu() - cpu
    return _Run(cpu, wall, done)


@dataclass(frozen=True, slots=True)
class Ratio:
    """How often the second's cost the first has: median over rounds, with the quartiles."""

    value: float
    low: float
    high: float


def ratio(first: Measured, second: Measured) -> Ratio:
    """CPU time of a job of `first` over that of `second`, compared round by round.

    Raises:
        ValueError: they were not measured in the same rounds, or the second took no time.
    """
    if len(first.cpu) != len(second.cpu) or not first.cpu:
        raise ValueError(f"{first.name} and {second.name} were not measured in the same rounds")
    if min(second.cpu) <= 0:
        raise ValueError(f"{second.name} took no CPU time: its clock is too coarse")
    shares = [a / first.jobs / (b / second.jobs) for a, b in zip(first.cpu, second.cpu, strict=True)]
    return Ratio(median(shares), _quantile(shares, 0.25), _quantile(shares, 0.75))


def _quantile(values: Sequence[float], share: float) -> float:
    """Linear between the two nearest of the sorted values."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
