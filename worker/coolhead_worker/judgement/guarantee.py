"""From labelled rows to an error bound: P(wrong | accepted) <= alpha, with confidence 1 - delta.

Guarantee: a `Certificate` is only given by fixed-sequence testing (Learn then Test, Angelopoulos
and others 2021) with exact one-sided Clopper-Pearson tests: the grid and its start are fixed before
the rows are seen, thresholds are tested from the most careful one on, the walk ends at the first
failure, and the last threshold that passed is certified. For rows that are exchangeable with those
to come, the chance of certifying a threshold whose true error is above alpha is at most delta.
Rows of equal confidence are accepted together or not at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from coolhead_worker.judgement.calibration import Floats
from coolhead_worker.judgement.scoring import Flags

GRID = (0.999, 0.995, *(round(0.99 - 0.01 * step, 2) for step in range(99)))
"""Thresholds on a confidence, most careful first: 0.999, 0.995, 0.99, 0.98 ... 0.01."""

MOST_ERRORS = 512
"""Where the search for a number of labels gives up: such a gate is out of reach."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """At `threshold`, `errors` of the `n_accepted` rows were wrong; the true share is at most
    `upper_bound` (<= alpha) with confidence 1 - delta."""

    threshold: float
    alpha: float
    delta: float
    n_accepted: int
    errors: int
    upper_bound: float


@dataclass(frozen=True, slots=True)
class NotCertified:
    """No threshold passed. About `needs_about` more rows like the tested ones would do; None when
    the error rate seen leaves no hope at any number that can be labelled."""

    needs_about: int | None


def certify(
    confidence: Floats, correct: Flags, alpha: float, delta: float, grid: Sequence[float]
) -> Certificate | NotCertified:
    """The lowest threshold of the chain at which `confidence >= threshold` may be accepted.

    Args:
        confidence: (n,) confidences; a row that may never be accepted has -inf.
        correct: (n,) whether each row's verdict is right.
        alpha: the error share allowed among accepted rows, in (0, 1).
        delta: the chance allowed of a wrong certificate, in (0, 1).
        grid: thresholds, descending, chosen without looking at these rows.

    Raises:
        ValueError: alpha or delta is out of range, or the grid is not descending.
    """
    _check(alpha, delta, [-t for t in grid])
    return _walk(lambda t: confidence >= t, correct, alpha, delta, grid)


def certify_below(
    probability: Floats, correct: Flags, alpha: float, delta: float, grid: Sequence[float]
) -> Certificate | NotCertified:
    """As `certify`, for accepting `probability < threshold`; the grid ascends, +inf never passes."""
    _check(alpha, delta, list(grid))
    return _walk(lambda t: probability < t, correct, alpha, delta, grid)


def _check(alpha: float, delta: float, ascending: Sequence[float]) -> None:
    if not (0.0 < alpha < 1.0 and 0.0 < delta < 1.0):
        raise ValueError("alpha and delta lie between 0 and 1")
    if any(later <= earlier for earlier, later in pairwise(ascending)):
        raise ValueError("the grid runs from the most careful threshold on, without repeats")


Accepts = Callable[[float], Flags]


def _counts(accepts: Accepts, right: Flags, grid: Sequence[float]) -> Iterator[tuple[float, int, int]]:
    """(threshold, rows accepted, errors among them)."""
    for threshold in grid:
        accepted = accepts(threshold)
        yield threshold, int(accepted.sum()), int((accepted & ~right).sum())


def _walk(
    accepts: Accepts, right: Flags, alpha: float, delta: float, grid: Sequence[float]
) -> Certificate | NotCertified:
    passed: tuple[float, int, int] | None = None
    for step in _counts(accepts, right, grid):
        if tail(step[2], step[1], alpha) > delta:
            break
        passed = step
    if passed is None:
        return NotCertified(_needs(accepts, right, alpha, delta, grid))
    threshold, accepted, errors = passed
    return Certificate(threshold, alpha, delta, accepted, errors, upper_bound(errors, accepted, delta))


def _needs(accepts: Accepts, right: Flags, alpha: float, delta: float, grid: Sequence[float]) -> int | None:
    """Rows to add so that the most hopeful threshold passes, if shares and error rates stay."""
    best: float = math.inf
    for accepted, errors in {(n, e) for _, n, e in _counts(accepts, right, grid) if n}:
        rows = rows_at_rate(errors / accepted, alpha, delta)
        if rows is not None:
            best = min(best, rows * len(right) / accepted - len(right))
    if not len(right):
        return rows_needed(alpha, delta, 0)
    return None if math.isinf(best) else max(1, math.ceil(best))


def starting_at(
    grid: Sequence[float], accepts: Accepts, right: Flags, rows: int, alpha: float, delta: float
) -> tuple[float, ...]:
    """The grid from the threshold where a walk over other rows should start.

    A walk from the very top of a grid fails at once when few rows are accepted there. The start is
    the most careful threshold that would pass with one error more than expected; else the one that
    looks best. Choosing it on independent rows costs nothing of the guarantee.

    Args:
        grid: thresholds, most careful first.
        accepts: threshold to (m,) flags of the rows to choose on.
        right: (m,) whether the verdicts of those rows are right.
        rows: how many rows will be tested.
        alpha: as in `certify`.
        delta: as in `certify`.
    """
    if not len(right):
        return tuple(grid)
    scale = rows / len(right)
    expected = [
        (math.ceil(errors * scale - 1e-9), math.floor(accepted * scale))
        for _, accepted, errors in _counts(accepts, right, grid)
    ]
    for at, (errors, accepted) in enumerate(expected):
        if tail(errors + 1, accepted, alpha) <= delta:
            return tuple(grid[at:])
    hopes = [tail(errors, accepted, alpha) for errors, accepted in expected]
    return tuple(grid[min(range(len(grid)), key=hopes.__getitem__, default=0) :])


def tail(errors: int, n: int, rate: float) -> float:
    """P(Binomial(n, rate) <= errors), for 0 < rate < 1; 1.0 when errors >= n."""
    if errors >= n:
        return 1.0
    odds = rate / (1.0 - rate)
    # summed from the largest term outwards, so that nothing is lost and few terms count
    if errors < n * rate:
        ratios = (i / ((n - i + 1) * odds) for i in range(errors, 0, -1))
        return min(1.0, _mass(errors, n, rate) * _series(ratios))
    ratios = ((n - i) * odds / (i + 1) for i in range(errors + 1, n))
    return max(0.0, 1.0 - _mass(errors + 1, n, rate) * _series(ratios))


def _mass(i: int, n: int, rate: float) -> float:
    """P(Binomial(n, rate) = i)."""
    ways = math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1)
    return math.exp(ways + i * math.log(rate) + (n - i) * math.log1p(-rate))


def _series(ratios: Iterator[float]) -> float:
    """1 + r1 + r1 r2 + ..., for ratios that fall, to double precision."""
    term = total = 1.0
    for ratio in ratios:
        term *= ratio
        total += term
        if term < 1e-17 * total:
            break
    return total


def upper_bound(errors: int, n: int, delta: float) -> float:
    """Exact one-sided Clopper-Pearson bound: the error share r with P(Bin(n, r) <= errors) = delta.

    Returns 1.0 when nothing was accepted or everything was wrong. Never below the true root.
    """
    if errors >= n:
        return 1.0
    low, high = errors / n, 1.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if tail(errors, n, middle) > delta else (low, middle)
    return high


@cache
def rows_needed(alpha: float, delta: float, errors: int) -> int:
    """The fewest accepted rows, `errors` of them wrong, whose upper bound is at most alpha."""
    low, high = errors, errors + 1
    while tail(errors, high, alpha) > delta:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if tail(errors, middle, alpha) > delta else (low, middle)
    return high


def rows_at_rate(rate: float, alpha: float, delta: float) -> int | None:
    """The fewest accepted rows that pass when a share `rate` of them is wrong; None: out of reach."""
    if rate >= alpha or rate * rows_needed(alpha, delta, MOST_ERRORS) > MOST_ERRORS:
        return None
    low, high = -1, MOST_ERRORS
    while high - low > 1:
        middle = (low + high) // 2
        enough = rate * rows_needed(alpha, delta, middle) <= middle
        low, high = (low, middle) if enough else (middle, high)
    return rows_needed(alpha, delta, high)
