"""Folds keep groups whole and labels level."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coolhead_worker.judgement.folds import fold_of

rows = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 15)), min_size=1, max_size=120)


@given(rows, st.integers(2, 6), st.integers(0, 9))
def test_a_group_stays_in_one_fold(pairs, folds, seed):
    labels, groups = np.array([label for label, _ in pairs]), [group for _, group in pairs]
    place = fold_of(labels, groups, folds, seed)
    assert ((place >= 0) & (place < folds)).all()
    for group in set(groups):
        assert len({int(place[i]) for i, g in enumerate(groups) if g == group}) == 1


@given(st.lists(st.integers(0, 4), min_size=1, max_size=120), st.integers(2, 6), st.integers(0, 9))
def test_rows_without_groups_spread_each_label_evenly(labels, folds, seed):
    labels = np.array(labels)
    place = fold_of(labels, list(range(len(labels))), folds, seed)
    for label in set(labels.tolist()):
        counts = np.bincount(place[labels == label], minlength=folds)
        assert counts.max() - counts.min() <= 1


def test_the_seed_decides():
    labels, groups = np.arange(40) % 4, list(range(40))
    assert np.array_equal(fold_of(labels, groups, 5, 1), fold_of(labels, groups, 5, 1))
    assert not np.array_equal(fold_of(labels, groups, 5, 1), fold_of(labels, groups, 5, 2))


def test_fewer_groups_than_folds_leave_some_folds_empty():
    place = fold_of(np.array([0, 1, 0, 1]), ["a", "a", "b", "b"], 5, 0)
    assert len(set(place.tolist())) == 2
