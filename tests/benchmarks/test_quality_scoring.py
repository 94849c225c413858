"""Scores: folds never leak, intervals and figures agree with oracles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from quality_reading import Read
from quality_scoring import (
    PARTS,
    SPREAD,
    Effort,
    curve_splits,
    few,
    figures_of,
    judge,
    judge_parts,
    learning_curve,
    resampled,
    wilson,
)
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss

from coolhead.answers import Method
from coolhead_worker.judgement.selection import Rows

SMALL = Effort(repeats=1, draws=20, curve_repeats=1)


def rows(labels: Sequence[int], groups: Sequence[object], width: int = 6, signal: float = 2.0) -> Rows:
    """Features that carry the label, under unit noise; logits that do not."""
    count = max(labels, default=0) + 1
    rng = np.random.default_rng(0)
    features = rng.normal(size=(len(labels), width))
    features[np.arange(len(labels)), np.array(labels) % width] += signal
    logits = np.log(rng.dirichlet(np.ones(max(count, 2)), size=len(labels)))
    return Rows(logits, features, np.array(labels, dtype=np.int64), tuple(groups))


labelled = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 25)), min_size=40, max_size=120)


@given(labelled, st.integers(1, 3))
def test_a_learning_curve_never_judges_on_a_group_that_it_was_fitted_on(pairs, repeats):
    groups = [group for _, group in pairs]
    splits = list(curve_splits(rows([label for label, _ in pairs], groups), repeats, (5, 25)))
    for train, out, _seed in splits:
        assert int(train.sum()) in (5, 25)
        assert not train[out].any()
        inside, outside = (
            {g for g, flag in zip(groups, flags, strict=True) if flag} for flags in (train, out)
        )
        assert not inside & outside


@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(0, 60), st.integers(0, 9))
def test_few_rows_are_drawn_from_the_flagged_ones_and_a_larger_draw_holds_a_smaller(flags, count, seed):
    train = np.array(flags)
    picked = few(train, count, seed)
    if picked is None:
        assert train.sum() < count
        return
    assert picked.sum() == count
    assert not (picked & ~train).any()
    more = few(train, count + 1, seed)
    assert more is None or not (picked & ~more).any()


@given(labelled)
def test_a_group_is_resampled_whole(pairs):
    groups = [group for _, group in pairs]
    for chosen in resampled(rows([0] * len(pairs), groups), 5):
        times = np.bincount(chosen, minlength=len(groups))
        for group in set(groups):
            assert len({int(times[at]) for at, one in enumerate(groups) if one == group}) == 1


def test_as_many_groups_are_drawn_as_there_are():
    for chosen in resampled(rows([0, 1] * 30, range(60)), 10):
        assert len(chosen) == 60


@pytest.mark.parametrize(
    ("share", "n", "low", "high"),
    [(1.0, 10, 0.7225, 1.0), (0.5, 100, 0.4038, 0.5962), (0.0, 10, 0.0, 0.2775), (0.9, 50, 0.7864, 0.9565)],
)
def test_wilson_s_interval_is_the_one_of_the_books(share, n, low, high):
    assert wilson(share, n) == pytest.approx((low, high), abs=1e-4)


@given(st.integers(1, 500), st.floats(0, 1))
def test_wilson_s_interval_holds_the_share(n, share):
    low, high = wilson(share, n)
    assert 0 <= low <= share + 1e-12
    assert share - 1e-12 <= high <= 1


def test_scores_are_those_of_scikit_learn():
    given_rows = rows([0, 1] * 50, range(100))
    p = np.random.default_rng(1).dirichlet([1, 1], size=100)
    found = figures_of([p], given_rows, draws=10)
    labels = given_rows.labels
    assert found["accuracy"].value == pytest.approx(accuracy_score(labels, p.argmax(axis=1)))
    assert found["nll"].value == pytest.approx(log_loss(labels, p))
    assert found["brier"].value == pytest.approx(2 * brier_score_loss(labels, p[:, 1]))
    assert found["ece"].low <= found["ece"].value <= found["ece"].high
    assert all(one.low <= one.high for one in found.values())


def test_figures_are_means_over_the_repeats():
    given_rows = rows([0, 1] * 20, range(40))
    right, wrong = np.eye(2)[given_rows.labels], np.eye(2)[1 - given_rows.labels]
    found = figures_of([right, right, right, wrong], given_rows, draws=10)
    assert found["accuracy"].value == 0.75
    assert found["brier"].value == pytest.approx(0.5)


def test_an_interval_narrows_with_more_rows_and_holds_errors_that_were_not_seen():
    few_rows, many = rows([0, 1] * 20, range(40)), rows([0, 1] * 500, range(1000))
    found = [figures_of([np.eye(2)[one.labels]], one, 20)["accuracy"] for one in (few_rows, many)]
    assert found[0].low < found[1].low < 1.0 == found[0].high == found[1].high


def test_a_readout_that_the_product_refuses_is_told_with_its_reason():
    alike = rows([0, 1] * 30, range(60))
    flat = Rows(np.full((60, 2), np.log(0.5)), alike.features, alike.labels, alike.groups)
    found = judge(flat, Method.TEMPERATURE, SMALL)
    assert found.figures == {}
    assert "temperature" in (found.refused or "")


def test_the_part_that_carries_the_label_is_found():
    carried = rows([at % 3 for at in range(120)], range(120), width=6, signal=3.0)
    found = judge_parts(Read(carried, carried, 0, ()), SMALL)
    assert set(found) == set(PARTS)
    assert found["mean of the state"].figures["accuracy"].value > 0.8
    assert found["probe"].figures["accuracy"].value < 0.6


def test_copies_of_a_row_on_both_sides_look_better_than_they_are():
    noise = rows([at % 2 for at in range(120)], [at // 2 % 30 for at in range(120)], signal=0.0)
    copies = np.random.default_rng(1).normal(size=(120, 6))[[at % 60 for at in range(120)]]
    told = replace(noise, features=copies, groups=tuple(at % 60 for at in range(120)))
    honest = judge(told, Method.HEAD, SMALL).figures["nll"].value
    assert judge_parts(Read(told, told, 0, ()), SMALL)[SPREAD].figures["nll"].value < honest


def test_more_labels_make_a_better_head_and_counts_out_of_reach_are_left_out():
    found = learning_curve(rows([at % 3 for at in range(120)], range(120)), SMALL)
    assert [point.labels for point in found] == [25, 50]
    assert found[0].nll > found[1].nll
