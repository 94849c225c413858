"""How good probabilities are: log loss, accuracy, Brier score, calibration error.

Guarantee: pure functions of (n, k) probabilities and (n,) label indices; equal confidences always
share a bin, so the order of the rows never moves a figure by more than rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coolhead_worker.judgement.calibration import Floats

Labels = NDArray[np.int64]
Flags = NDArray[np.bool_]

BINS = 15
FLOOR = 1e-12
"""Log loss never takes the logarithm of less: one certain error costs 27.6, not infinity."""


@dataclass(frozen=True, slots=True)
class Scores:
    """One method on n rows. `nll` in nats; `brier` 0..2; `accuracy` and both errors 0..1."""

    n: int
    nll: float
    accuracy: float
    brier: float
    ece_mass: float
    ece_width: float


def score(probabilities: Floats, labels: Labels) -> Scores:
    """All figures of (n, k) probabilities against (n,) labels; n >= 1."""
    top, right = confidence(probabilities), correct(probabilities, labels)
    return Scores(
        n=len(labels),
        nll=nll(probabilities, labels),
        accuracy=float(right.mean()),
        brier=brier(probabilities, labels),
        ece_mass=calibration_error(top, right, mass_edges(top)),
        ece_width=calibration_error(top, right, width_edges()),
    )


def confidence(probabilities: Floats) -> Floats:
    """(n, k) to (n,): the largest probability of each row."""
    return np.asarray(probabilities.max(axis=1), dtype=np.float64)


def correct(probabilities: Floats, labels: Labels) -> Flags:
    """(n,): whether the first largest probability is the label's."""
    return np.asarray(probabilities.argmax(axis=1) == labels, dtype=np.bool_)


def nll(probabilities: Floats, labels: Labels) -> float:
    """Mean of -ln p(label)."""
    of_label = probabilities[np.arange(len(labels)), labels]
    return float(-np.log(np.maximum(of_label, FLOOR)).mean())


def brier(probabilities: Floats, labels: Labels) -> float:
    """Mean over rows of the squared distance between the distribution and the label's corner."""
    distance = probabilities.copy()
    distance[np.arange(len(labels)), labels] -= 1.0
    return float((distance**2).sum(axis=1).mean())


def width_edges(bins: int = BINS) -> Floats:
    """Upper ends of `bins` bins of equal width over (0, 1]; a bin holds its upper end."""
    return np.arange(1, bins + 1, dtype=np.float64) / bins


def mass_edges(values: Floats, bins: int = BINS) -> Floats:
    """Upper ends of at most `bins` bins of about equally many of the (n,) values; ties stay together."""
    ordered = np.sort(values)
    last = np.ceil(np.arange(1, bins + 1) * len(ordered) / bins).astype(np.int64) - 1
    return np.unique(ordered[np.maximum(last, 0)])


def calibration_error(top: Floats, right: Flags, edges: Floats) -> float:
    """Expected calibration error: mean over rows of |accuracy - confidence| of the row's bin.

    Args:
        top: (n,) confidences.
        right: (n,) whether each row is right.
        edges: ascending upper ends of the bins; the last is at or above every confidence.
    """
    place = np.searchsorted(edges, top, side="left")
    count = np.bincount(place, minlength=len(edges))
    gap = np.bincount(place, weights=right - top, minlength=len(edges))
    return float(np.abs(gap).sum() / max(count.sum(), 1))
