"""In which orders the options of a question are shown, and how their readings become one.

Guarantee: pure; every order is a permutation, the first one is as written; an average over orders
gives each label the mean of its log-probabilities, so a constant liking for a place cancels where
every label has stood in every place.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coolhead.policy import Debias
from coolhead.questions import Choice, Question
from coolhead_worker.engine.protocol import Floats, Readout

MOST = 8
"""Orders of one question at most."""


def orders_of(question: Question, level: Debias) -> tuple[tuple[int, ...], ...]:
    """The orders to read, each a permutation of the labels' indices.

    Cyclic shifts only make sense for options without a scale: yes/no and levels are read forward and
    backward whatever the level asks beyond that. More than 8 shifts are thinned out evenly.
    """
    forward = tuple(range(len(question.labels)))
    if level is Debias.RAW:
        return (forward,)
    if level is Debias.REVERSED or not isinstance(question, Choice):
        return (forward, forward[::-1])
    count = min(len(forward), MOST)
    shifts = [round(step * len(forward) / count) for step in range(count)]
    return tuple(forward[shift:] + forward[:shift] for shift in shifts)


def averaged(readouts: Sequence[Readout]) -> Readout:
    """One readout of several orders; its `debias` tells how many there were.

    Args:
        readouts: of one question, each (k,) in the order of its labels; at least one.

    Returns:
        log-softmax of the mean log-probability of each label; mean mass. Source: Zheng et al. 2024,
        "Large Language Models Are Not Robust Multiple Choice Selectors" (cyclic permutation).
    """
    if len(readouts) == 1:
        return readouts[0]
    mean: Floats = np.mean([readout.logits for readout in readouts], axis=0)
    peak = mean.max()
    inside = peak + np.log(np.exp(mean - peak).sum())
    mass = float(np.mean([readout.mass for readout in readouts]))
    return Readout(mean - inside, mass, readouts[0].kind, level_of(len(readouts)))


def level_of(orders: int) -> Debias:
    """What so many orders are called."""
    if orders == 1:
        return Debias.RAW
    return Debias.REVERSED if orders == 2 else Debias.ROTATED


def is_near_tie(readout: Readout, margin: float) -> bool:
    """Whether the two likeliest labels are closer than `margin` in probability; 1 is always."""
    if margin >= 1.0:
        return True
    second, first = np.sort(np.exp(readout.logits))[-2:]
    return bool(first - second < margin)
