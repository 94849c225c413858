"""Fitted calibrators against scikit-learn, against grids and against known truths."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from coolhead.errors import FitFailed
from coolhead_worker.judgement.calibration import Temperature, TemperatureBias
from coolhead_worker.judgement.fitting import fit_heads, fit_temperature, fit_temperature_bias
from coolhead_worker.judgement.scoring import nll


def drawn(logits: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Labels drawn from softmax(logits)."""
    return (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)


def test_a_temperature_is_found_again():
    rng = np.random.default_rng(0)
    true = rng.normal(size=(4000, 4)) * 2
    assert fit_temperature(true * 2.5, drawn(true, rng)).t == pytest.approx(2.5, rel=0.1)


def test_no_temperature_of_a_fine_grid_is_better():
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(200, 3)) * 3
    labels = drawn(logits / 2, rng)
    best = nll(fit_temperature(logits, labels).probabilities(logits), labels)
    for t in np.geomspace(0.06, 19, 300):
        assert best <= nll(Temperature(float(t)).probabilities(logits), labels) + 1e-9


def test_temperature_and_bias_are_found_again():
    rng = np.random.default_rng(2)
    true = rng.normal(size=(6000, 3)) * 2
    liking = np.array([2.0, -1.0, -1.0])
    fitted = fit_temperature_bias((true + liking) * 1.5, drawn(true, rng))
    assert fitted.t == pytest.approx(1.5, rel=0.1)
    assert fitted.bias == pytest.approx(-liking, abs=0.2)


def test_no_step_from_temperature_and_bias_is_better():
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(300, 3)) * 2 + np.array([1.0, 0.0, 0.0])
    labels = drawn(logits * 0.6, rng)
    fitted = fit_temperature_bias(logits, labels)

    def cost(t, bias):
        prior = float(bias @ bias) / (2 * 9 * 300)
        return nll(TemperatureBias(t, bias).probabilities(logits), labels) + prior

    best = cost(fitted.t, fitted.bias)
    for _ in range(200):
        step = rng.normal(size=4) * 0.05
        assert best <= cost(fitted.t * np.exp(step[0]), fitted.bias + step[1:]) + 1e-9


@pytest.mark.parametrize("fitter", [fit_temperature, fit_temperature_bias])
def test_separable_logits_run_to_the_sharp_end_and_are_refused(fitter):
    logits = np.eye(3)[np.arange(60) % 3] * 0.5
    with pytest.raises(FitFailed, match="end of its range"):
        fitter(logits, np.arange(60) % 3)


@pytest.mark.parametrize("fitter", [fit_temperature, fit_temperature_bias])
def test_logits_that_point_the_wrong_way_run_to_the_flat_end_and_are_refused(fitter):
    logits = np.eye(2)[np.arange(60) % 2] * 5
    with pytest.raises(FitFailed, match="end of its range"):
        fitter(logits, (np.arange(60) + 1) % 2)


SHAPES = [
    (60, 150, "more features than rows"),
    (150, 20, "more rows"),
    (90, 90, "as many"),
    (80, 576, "the hidden state of a small model"),
    (60, 2000, "of a large one"),
    (700, 576, "with rows to spare"),
    (60, 1, "a single feature"),
]


@pytest.mark.parametrize(("n", "f"), [shape[:2] for shape in SHAPES], ids=[shape[2] for shape in SHAPES])
def test_a_head_is_scikit_learns_logistic_regression(n, f):
    rng = np.random.default_rng(4)
    features = rng.normal(size=(n, f)) * rng.uniform(0.1, 5, f) + rng.normal(size=f)
    labels = drawn(features @ rng.normal(size=(f, 3)) / f**0.5, rng)
    standard = (features - features.mean(axis=0)) / features.std(axis=0)
    strengths = (0.003, 0.03, 0.3)
    for strength, head in zip(strengths, fit_heads(features, labels, 3, strengths), strict=True):
        oracle = LogisticRegression(C=strength, max_iter=5000, tol=1e-9).fit(standard, labels)
        assert head.probabilities(features) == pytest.approx(oracle.predict_proba(standard), abs=2e-3)


def test_the_order_of_strengths_is_a_path_to_the_same_place():
    rng = np.random.default_rng(5)
    features = rng.normal(size=(80, 30))
    labels = rng.integers(0, 4, 80)
    warm, cold = fit_heads(features, labels, 4, (0.003, 0.1))[-1], fit_heads(features, labels, 4, (0.1,))[0]
    assert warm.probabilities(features) == pytest.approx(cold.probabilities(features), abs=2e-3)


def test_an_option_without_labels_keeps_a_small_probability():
    rng = np.random.default_rng(6)
    features, labels = rng.normal(size=(100, 10)), rng.integers(0, 2, 100)
    p = fit_heads(features, labels, 3, (0.1,))[0].probabilities(features)
    assert (p[:, 2] > 1e-6).all()
    assert p[:, 2].mean() < 0.05
    logits = rng.normal(size=(100, 3)) + 2 * np.eye(3)[labels]
    q = fit_temperature_bias(logits, labels).probabilities(logits)
    assert q[:, 2].min() > 0
    assert 1e-4 < q[:, 2].mean() < 0.05


def test_features_of_any_size_and_offset_weigh_alike():
    """As hidden states are: a few axes are a thousand times as large as the others, none is centred."""
    rng = np.random.default_rng(7)
    plain = rng.normal(size=(150, 300))
    labels = drawn(plain[:, :3] * 2, rng)
    scale, offset = 10.0 ** rng.uniform(-4, 4, 300), 1e3 * rng.normal(size=300)
    even, uneven = (fit_heads(x, labels, 3, (0.01,))[0] for x in (plain, plain * scale + offset))
    assert even.probabilities(plain) == pytest.approx(uneven.probabilities(plain * scale + offset), abs=2e-3)
    assert (uneven.probabilities(plain * scale + offset).argmax(axis=1) == labels).mean() > 0.9


def test_a_feature_that_never_moves_is_harmless():
    features = np.column_stack((np.full(40, 7.0), np.arange(40.0)))
    head = fit_heads(features, (np.arange(40) >= 20).astype(int), 2, (0.3,))[0]
    assert head.probabilities(np.array([7.0, 39.0]))[1] > 0.7
