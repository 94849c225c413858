"""Calibrators give distributions, and the same bits for a row alone and among others."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from coolhead_worker.judgement.calibration import (
    PLACEHOLDER,
    PLACEHOLDER_TEMPERATURE,
    Head,
    Raw,
    Temperature,
    TemperatureBias,
    softmax,
)

finite = st.floats(-1e300, 1e300)
rows = hnp.arrays(
    np.float64, hnp.array_shapes(min_dims=1, max_dims=1, min_side=2, max_side=12), elements=finite
)
temperatures = st.floats(0.05, 20.0)


@given(rows)
def test_softmax_is_a_distribution_however_large_the_logits(z):
    p = softmax(z)
    assert p.shape == z.shape
    assert (p >= 0).all()
    assert math.fsum(p) == pytest.approx(1.0, abs=1e-9)


@given(hnp.arrays(np.float64, st.integers(2, 10), elements=st.floats(-30, 30)))
def test_softmax_is_that_of_plain_exponentials(z):
    total = math.fsum(math.exp(v) for v in z)
    assert softmax(z) == pytest.approx([math.exp(v) / total for v in z], rel=1e-9)


@given(rows, temperatures)
def test_a_temperature_keeps_the_first_label(z, t):
    p = Temperature(t).probabilities(z)
    assert p[int(z.argmax())] == p.max()


@given(hnp.arrays(np.float64, 4, elements=st.floats(-20, 20)), st.floats(1.0, 10.0))
def test_a_temperature_above_1_never_raises_the_top(z, t):
    assert Temperature(t).probabilities(z).max() <= Raw().probabilities(z).max() + 1e-12


def test_the_placeholder_is_the_reference_articles():
    # p = sigmoid(z / 1.45) for two labels, z the difference of their logits
    z = 2.3
    expected = 1 / (1 + math.exp(-z / 1.45))
    assert PLACEHOLDER_TEMPERATURE == 1.45
    assert PLACEHOLDER.probabilities(np.array([z, 0.0]))[0] == pytest.approx(expected, rel=1e-12)


def test_a_bias_repairs_a_liking_for_one_label():
    liking = np.array([3.0, 0.0])
    assert TemperatureBias(1.0, -liking).probabilities(liking) == pytest.approx([0.5, 0.5])


def test_a_head_standardises_before_it_weighs():
    head = Head(
        np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([0.5, 0.0]), np.array([10.0, 20.0]), np.array([2.0, 4.0])
    )
    # (12-10)/2 = 1, (16-20)/4 = -1: logits 1*1 + 0.5 = 1.5 and 2*-1 = -2
    assert head.probabilities(np.array([12.0, 16.0])) == pytest.approx(softmax(np.array([1.5, -2.0])))


@pytest.mark.parametrize("k", [2, 3, 8, 17, 255])
def test_a_row_alone_and_among_others_gives_the_same_bits(k):
    rng = np.random.default_rng(k)
    f, n = 200, 33
    head = Head(rng.normal(size=(k, f)), rng.normal(size=k), rng.normal(size=f), rng.uniform(0.5, 2, f))
    features, logits = rng.normal(size=(n, f)), rng.normal(size=(n, k)) * 5
    for calibrator, x in (
        (head, features),
        (Raw(), logits),
        (Temperature(1.7), logits),
        (TemperatureBias(0.9, rng.normal(size=k)), logits),
    ):
        together = calibrator.probabilities(x)
        alone = np.array([calibrator.probabilities(one) for one in x])
        assert np.array_equal(together, alone), calibrator.method


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_refused(bad):
    with pytest.raises(ValueError, match="not finite"):
        softmax(np.array([0.0, bad]))


@pytest.mark.parametrize("t", [0.0, -1.0, math.nan, math.inf])
def test_an_impossible_temperature_is_refused(t):
    with pytest.raises(ValueError, match="temperature"):
        Temperature(t)
    with pytest.raises(ValueError, match="temperature"):
        TemperatureBias(t, np.zeros(2))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"weight": np.zeros(3)}, "weight"),
        ({"bias": np.zeros(3)}, "do not fit"),
        ({"mean": np.zeros(2)}, "do not fit"),
        ({"scale": np.zeros(3)}, "above 0"),
        ({"scale": np.array([1.0, -1.0, 1.0])}, "above 0"),
        ({"bias": np.array([0.0, math.nan])}, "bias"),
    ],
)
def test_a_head_that_does_not_fit_together_is_refused(change, match):
    parts = {"weight": np.zeros((2, 3)), "bias": np.zeros(2), "mean": np.zeros(3), "scale": np.ones(3)}
    with pytest.raises(ValueError, match=match):
        Head(**{**parts, **change})
