"""How good each readout is on rows it was not fitted on, how sure that is, and how many labels it takes.

Guarantee: a readout is fitted and its strength chosen by the product's own code on training rows alone
(five outer folds, four inner ones), rows of one group never sit on both sides of a split, and everything is
drawn from seeds. Intervals resample groups, not rows: related rows are one observation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from quality_reading import Read

from coolhead.answers import Method
from coolhead.errors import FitFailed
from coolhead_worker.judgement.calibration import Floats
from coolhead_worker.judgement.scoring import Flags, Scores, correct, score
from coolhead_worker.judgement.selection import OUTER_FOLDS, Rows, candidates, fit_method

READOUTS = {
    "raw": Method.RAW,
    "temperature": Method.TEMPERATURE,
    "temperature_bias": Method.TEMPERATURE_BIAS,
    "trunk_head": Method.HEAD,
}
"""The product's methods under the names of this benchmark: its one head reads the trunk."""

FIGURES = {"accuracy": "accuracy", "ece": "ece_mass", "brier": "brier", "nll": "nll"}
"""What is told, and which of the product's scores it is."""

CURVE = (25, 50, 100, 200)
_CONFIDENCE = 0.95
_Z = 1.959963984540054
"""The normal quantile of `_CONFIDENCE`, two-sided."""

Fold = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is computed. `repeats`: cross-validations of a small set; `draws`: of the bootstrap;
    `curve_repeats`: cross-validations behind a point of a learning curve, 0 for no curves."""

    repeats: int
    draws: int
    curve_repeats: int

    def repeats_of(self, n: int) -> int:
        """Fewer for a larger set, whose folds matter less."""
        if n >= LARGE:
            return 1
        return self.repeats if n < MIDDLE else min(self.repeats, 3)


MIDDLE, LARGE = 300, 1000
WHOLE = Effort(repeats=10, draws=1000, curve_repeats=4)
QUICK = Effort(repeats=2, draws=200, curve_repeats=0)


@dataclass(frozen=True, slots=True)
class Figure:
    """A score with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Judged:
    """A readout on `n` rows: `figures` by name and how often each row is right, (n,) 0..1; or why the
    product refuses to fit it."""

    n: int
    repeats: int
    figures: Mapping[str, Figure]
    right: Floats | None = None
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """A head fitted on so many labels: mean over draws, and their standard deviation."""

    labels: int
    accuracy: float
    accuracy_sd: float
    nll: float
    nll_sd: float


def judge_all(read: Read, effort: Effort) -> dict[str, Judged]:
    """Every readout of a set on a tier."""
    return {
        name: judge(read.trunk if method is Method.HEAD else read.text, method, effort)
        for name, method in READOUTS.items()
    }


def judge(rows: Rows, method: Method, effort: Effort) -> Judged:
    """One readout, cross-validated again and again with other folds."""
    repeats = 1 if method is Method.RAW else effort.repeats_of(len(rows.labels))
    predicted: list[Floats] = []
    for seed in range(repeats):
        (candidate,) = candidates(rows, seed, (method,))
        if candidate.out_of_fold is None:
            return Judged(len(rows.labels), repeats, {}, refused=candidate.refused)
        predicted.append(candidate.out_of_fold)
    right = np.mean([correct(one, rows.labels) for one in predicted], axis=0)
    return Judged(len(rows.labels), repeats, figures_of(predicted, rows, effort.draws), right)


@dataclass(frozen=True, slots=True)
class Kind:
    """How many rows of a kind there are, and the share that is right."""

    n: int
    accuracy: float


def by_kind(judged: Judged, kinds: Sequence[str]) -> dict[str, Kind]:
    """The rows of a readout by what they are; nothing where that is not told."""
    if judged.right is None:
        return {}
    chosen = {kind: np.array([one == kind for one in kinds]) for kind in sorted(set(kinds) - {""})}
    return {kind: Kind(int(flags.sum()), float(judged.right[flags].mean())) for kind, flags in chosen.items()}


def figures_of(predicted: Sequence[Floats], rows: Rows, draws: int) -> dict[str, Figure]:
    """Means over the repeats, with intervals over resampled groups.

    Args:
        predicted: (n, k) out-of-fold probabilities of each repeat.
        rows: the rows they are of.
        draws: of the bootstrap.
    """
    here = _means(predicted, rows, slice(None))
    drawn = [_means(predicted, rows, chosen) for chosen in resampled(rows, draws)]
    spread = {name: np.array([one[name] for one in drawn]) for name in FIGURES}
    # Drawing rows twice raises the error of every bin: without this the interval misses the figure itself.
    spread["ece"] = np.maximum(0.0, spread["ece"] + here["ece"] - np.median(spread["ece"]))
    result = {name: _interval(here[name], spread[name]) for name in FIGURES}
    accuracy, (low, high) = result["accuracy"], wilson(here["accuracy"], len(set(rows.groups)))
    # Where hardly a row is wrong, resampling knows no error it has not seen.
    result["accuracy"] = Figure(accuracy.value, min(accuracy.low, low), max(accuracy.high, high))
    return result


def _means(predicted: Sequence[Floats], rows: Rows, chosen: Fold | slice) -> dict[str, float]:
    scores = [score(one[chosen], rows.labels[chosen]) for one in predicted]
    return {name: _mean(scores, field) for name, field in FIGURES.items()}


def _mean(scores: Sequence[Scores], field: str) -> float:
    return float(np.mean([getattr(one, field) for one in scores]))


def _interval(value: float, drawn: Floats) -> Figure:
    tail = (1 - _CONFIDENCE) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return Figure(value, float(low), float(high))


def resampled(rows: Rows, draws: int, seed: int = 0) -> list[Fold]:
    """Row indices of each draw: as many groups as there are, with replacement, each with all its rows."""
    numbers = {group: at for at, group in enumerate(dict.fromkeys(rows.groups))}
    place = np.array([numbers[group] for group in rows.groups])
    rng = np.random.default_rng(seed)
    result = []
    for _ in range(draws):
        times = np.bincount(rng.integers(len(numbers), size=len(numbers)), minlength=len(numbers))
        result.append(np.repeat(np.arange(len(place)), times[place]))
    return result


def wilson(share: float, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of `n`."""
    spread = 1 + _Z**2 / n
    middle = (share + _Z**2 / (2 * n)) / spread
    half = _Z / spread * np.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    return float(max(0.0, middle - half)), float(min(1.0, middle + half))


def learning_curve(rows: Rows, effort: Effort, counts: Sequence[int] = CURVE) -> list[Point]:
    """Heads fitted on few of the training rows, judged on the fold that was left out.

    Args:
        rows: all rows.
        effort: how many repeats.
        counts: numbers of labels; those that no training part holds are left out.
    """
    found: dict[int, list[Scores]] = {count: [] for count in counts}
    for train, out, seed in curve_splits(rows, effort.curve_repeats, counts):
        found[int(train.sum())] += _judged_on(rows, train, out, seed)
    return [_point(count, scores) for count, scores in found.items() if scores]


def curve_splits(rows: Rows, repeats: int, counts: Sequence[int]) -> Iterator[tuple[Flags, Flags, int]]:
    """Flags of the rows to fit on and of the fold to judge on, and the seed of the repeat."""
    for seed in range(repeats):
        for fold, (train, out) in enumerate(rows.splits(OUTER_FOLDS, seed)):
            for count in counts:
                picked = few(train, count, seed * OUTER_FOLDS + fold)
                if picked is not None:
                    yield picked, out, seed


def few(train: Flags, count: int, seed: int) -> Flags | None:
    """So many of the flagged rows, drawn at random; None when there are fewer.

    A larger count of the same seed holds the rows of a smaller one.
    """
    places = np.flatnonzero(train)
    if len(places) < count:
        return None
    picked = np.zeros_like(train)
    picked[np.random.default_rng(seed).permutation(places)[:count]] = True
    return picked


def _judged_on(rows: Rows, train: Flags, out: Flags, seed: int) -> list[Scores]:
    try:
        head, _ = fit_method(Method.HEAD, rows.take(train), seed)
    except FitFailed:
        return []
    return [score(head.probabilities(rows.features[out]), rows.labels[out])]


def _point(count: int, scores: Sequence[Scores]) -> Point:
    accuracy, nll = (np.array([getattr(one, name) for one in scores]) for name in ("accuracy", "nll"))
    return Point(count, float(accuracy.mean()), float(accuracy.std()), float(nll.mean()), float(nll.std()))


PARTS: dict[str, Callable[[int], slice]] = {
    "mean of the state": lambda width: slice(0, width // 2),
    "probe": lambda width: slice(width // 2, width),
}
"""The two halves of the features (see `coolhead_worker.engine.features`)."""
SPREAD = "both, related rows spread over folds"


def judge_parts(read: Read, effort: Effort) -> dict[str, Judged]:
    """Heads that read one half of the features alone; and where rows are related, what it would look
    like if they were not told from others: relatives of a row that is judged are then fitted on."""
    rows, width = read.text, read.text.features.shape[1]
    inputs = {name: replace(rows, features=rows.features[:, part(width)]) for name, part in PARTS.items()}
    if len(set(read.trunk.groups)) < len(read.trunk.labels):
        inputs[SPREAD] = replace(read.trunk, groups=tuple(range(len(read.trunk.labels))))
    return {name: judge(one, Method.HEAD, effort) for name, one in inputs.items()}
