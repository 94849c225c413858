"""Every figure against plain loops in float64, or against scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss, log_loss

from coolhead_worker.judgement.scoring import (
    BINS,
    brier,
    calibration_error,
    confidence,
    correct,
    mass_edges,
    nll,
    score,
    width_edges,
)


def sample(n: int, k: int, seed: int):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(k, 0.5), size=n), rng.integers(0, k, size=n)


cases = pytest.mark.parametrize(
    ("n", "k", "seed"), [(1, 2, 0), (15, 2, 1), (16, 3, 2), (200, 5, 3), (997, 8, 4)]
)


@cases
def test_log_loss_is_scikit_learns(n, k, seed):
    p, y = sample(n, k, seed)
    assert nll(p, y) == pytest.approx(log_loss(y, p, labels=range(k)), rel=1e-9)


def test_one_certain_error_costs_a_finite_amount():
    assert nll(np.array([[1.0, 0.0]]), np.array([1])) == pytest.approx(-math.log(1e-12))


@cases
def test_the_brier_score_is_a_sum_over_all_labels(n, k, seed):
    p, y = sample(n, k, seed)
    expected = sum(sum((p[i, j] - (j == y[i])) ** 2 for j in range(k)) for i in range(n)) / n
    assert brier(p, y) == pytest.approx(expected, rel=1e-12)


def test_the_brier_score_of_two_labels_is_twice_scikit_learns():
    p, y = sample(300, 2, 5)
    assert brier(p, y) == pytest.approx(2 * brier_score_loss(y, p[:, 1]), rel=1e-12)


@cases
def test_the_error_over_equal_widths_is_that_of_a_loop(n, k, seed):
    p, y = sample(n, k, seed)
    bins: dict[int, list[tuple[float, float]]] = {}
    for i in range(n):
        top = max(p[i])
        bins.setdefault(math.ceil(top * BINS), []).append((top, float(int(np.argmax(p[i])) == y[i])))
    expected = sum(
        abs(sum(r for _, r in rows) / len(rows) - sum(t for t, _ in rows) / len(rows)) * len(rows) / n
        for rows in bins.values()
    )
    got = calibration_error(confidence(p), correct(p, y), width_edges())
    assert got == pytest.approx(expected, rel=1e-9)


def test_the_error_over_equal_masses_is_that_of_a_loop():
    p, y = sample(150, 4, 6)
    top, right = confidence(p), correct(p, y)
    order = sorted(range(150), key=lambda i: top[i])
    expected = 0.0
    for start in range(0, 150, 10):
        rows = order[start : start + 10]
        expected += abs(sum(bool(right[i]) - top[i] for i in rows)) / 150
    assert calibration_error(top, right, mass_edges(top)) == pytest.approx(expected, rel=1e-9)


def test_perfect_calibration_has_no_error():
    top, right = np.full(4, 0.75), np.array([True, True, True, False])
    assert calibration_error(top, right, mass_edges(top)) == 0.0
    assert calibration_error(top, right, width_edges()) == 0.0


@given(st.lists(st.sampled_from([0.5, 0.6, 0.9]), min_size=1, max_size=60), st.randoms())
def test_the_order_of_rows_with_equal_confidence_changes_nothing(tops, random):
    rows = [(top, random.random() < top) for top in tops]
    shuffled = rows[:]
    random.shuffle(shuffled)

    def error(pairs):
        top, right = np.array([t for t, _ in pairs]), np.array([r for _, r in pairs])
        return calibration_error(top, right, mass_edges(top))

    assert error(rows) == pytest.approx(error(shuffled), abs=1e-12)


def test_scores_hold_every_figure():
    p, y = sample(50, 3, 7)
    scores = score(p, y)
    assert scores.n == 50
    assert scores.accuracy == sum(int(np.argmax(p[i])) == y[i] for i in range(50)) / 50
    assert (scores.nll, scores.brier) == (nll(p, y), brier(p, y))
    assert 0 <= scores.ece_mass <= 1
    assert 0 <= scores.ece_width <= 1
