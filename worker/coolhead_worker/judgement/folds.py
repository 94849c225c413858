"""Rows into folds: each label evenly, no group torn apart.

Guarantee: pure and seeded; rows of one group share a fold; rows that are their own group spread each
label over the folds with counts that differ by at most one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from coolhead_worker.judgement.scoring import Labels


def fold_of(labels: Labels, groups: Sequence[Hashable], folds: int, seed: int) -> NDArray[np.int64]:
    """The fold of each row.

    Args:
        labels: (n,) label indices.
        groups: n group keys.
        folds: how many folds, >= 2; some stay empty when there are fewer groups.
        seed: which of the equally good ways.

    Returns:
        (n,) integers in [0, folds).
    """
    members: dict[Hashable, list[int]] = defaultdict(list)
    for row, group in enumerate(groups):
        members[group].append(row)
    drawn = np.random.default_rng(seed).permutation(len(members))
    shuffled = [list(members.values())[i] for i in drawn]
    # large groups first: the small ones then level what they left uneven
    shuffled.sort(key=len, reverse=True)
    load = np.zeros((folds, int(labels.max(initial=0)) + 1), dtype=np.int64)
    result = np.zeros(len(labels), dtype=np.int64)
    for rows in shuffled:
        mine = np.bincount(labels[rows], minlength=load.shape[1])
        # first the fold that has least of these labels, then the one with the fewest rows
        fold = min(range(folds), key=lambda f: (int(load[f] @ mine), int(load[f].sum()), f))
        load[fold] += mine
        result[rows] = fold
    return result
