"""From the rows of one question to one value for each label, as the model's author says.

Guarantee: pure, float64, finite for finite rows. Every fold returns logits that give the author's
probabilities when they are divided by the author's temperature, so a later fit can replace it.
Shapes: m tokens read in a row, n rows, k labels; `temperature` is above 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import numpy as np

from coolhead_worker.engine.protocol import Floats

LEAST = 1e-12  # below this a probability is not told from none before its logarithm


class Mean(StrEnum):
    """How the probabilities of several orders become one."""

    PROBABILITY = "mean"  #: arithmetic mean
    LOG = "logmean"  #: geometric mean: a liking for a place cancels


def by_label(row: Floats, order: Sequence[int]) -> Floats:
    """(k,) logits read place by place, in the order of the labels; `order[i]` stood at place i."""
    values = np.empty(len(order), dtype=np.float64)
    values[list(order)] = row
    return values


def over_orders(rows: Sequence[Floats], mean: Mean, temperature: float) -> Floats:
    """(k,) logits of n rows of (k,) logits, each in the order of the labels."""
    if len(rows) == 1:
        return np.asarray(rows[0], dtype=np.float64)
    likely = np.array([softmax(row, temperature) for row in rows])  # (n, k)
    if mean is Mean.LOG:
        mean_log: Floats = np.log(np.maximum(likely, LEAST)).mean(axis=0)
        return temperature * mean_log
    return _logits(likely.mean(axis=0), temperature)


def by_rating(row: Floats, temperature: float) -> Floats:
    """(2,) logits of yes and no from (m,) logits of ratings, certainly no first."""
    likely = softmax(row, temperature)
    yes = float(likely @ np.linspace(0.0, 1.0, len(likely)))
    return _logits(np.array([yes, 1.0 - yes]), temperature)


def one_by_one(rows: Sequence[Floats], read: int, temperature: float) -> Floats:
    """(k,) logits of k rows, one for each level, that say how well it fits in token `read`."""
    return _logits(np.array([softmax(row, temperature)[read] for row in rows]), temperature)


def softmax(row: Floats, temperature: float) -> Floats:
    """(m,) probabilities."""
    scaled = np.asarray(row, dtype=np.float64) / temperature
    weight: Floats = np.exp(scaled - scaled.max())
    total: float = weight.sum()
    return weight / total


def log_softmax(row: Floats) -> Floats:
    """(m,) log-probabilities."""
    shifted = np.asarray(row, dtype=np.float64) - np.max(row)
    likely: Floats = shifted - np.log(np.exp(shifted).sum())
    return likely


def _logits(likely: Floats, temperature: float) -> Floats:
    logs: Floats = np.log(np.maximum(likely, np.finfo(np.float64).tiny))
    return temperature * logs
