"""Calibrators from labelled rows, by log loss.

Guarantee: deterministic; a temperature that runs to the end of its range is refused, because then
the logits carry nothing (too flat) or the rows are separable (too sharp); an option without labels
keeps a small probability instead of none. Needs scipy: only the `fit` command imports this module.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from coolhead.errors import FitFailed
from coolhead_worker.judgement.calibration import Floats, Head, Temperature, TemperatureBias, softmax
from coolhead_worker.judgement.scoring import Labels, nll

LOWEST, HIGHEST = 0.05, 20.0
"""The range of a temperature."""

BIAS_WIDTH = 3.0
"""Standard deviation of the weak normal prior that keeps a bias finite."""


def fit_temperature(logits: Floats, labels: Labels) -> Temperature:
    """The temperature of least log loss.

    Args:
        logits: (n, k).
        labels: (n,) label indices.

    Raises:
        FitFailed: the best temperature lies at the end of [0.05, 20].
    """
    found = minimize_scalar(
        lambda log_t: nll(softmax(logits / math.exp(log_t)), labels),
        bounds=(math.log(LOWEST), math.log(HIGHEST)),
        method="bounded",
        options={"xatol": 1e-8},
    )
    return Temperature(_inside(math.exp(float(found.x))))


def fit_temperature_bias(logits: Floats, labels: Labels) -> TemperatureBias:
    """Temperature and one bias per label of least log loss, with a weak prior on the biases.

    Arguments and errors as `fit_temperature`.
    """
    n, k = logits.shape
    hit = np.eye(k)[labels]

    def loss(point: Floats) -> tuple[float, Floats]:
        scaled, bias = logits * math.exp(-point[0]), point[1:]
        p = softmax(scaled + bias)
        excess = (p - hit) / n
        prior = bias / (BIAS_WIDTH**2 * n)
        slope = np.concatenate(([-(excess * scaled).sum()], excess.sum(axis=0) + prior))
        return nll(p, labels) + float(bias @ prior) / 2, slope

    found = minimize(
        loss,
        np.zeros(k + 1),
        jac=True,
        method="L-BFGS-B",
        bounds=[(math.log(LOWEST), math.log(HIGHEST)), *[(None, None)] * k],
        options={"maxiter": 2000, "ftol": 1e-14, "gtol": 1e-8},
    )
    bias = np.asarray(found.x[1:], dtype=np.float64)
    return TemperatureBias(_inside(math.exp(float(found.x[0]))), bias - bias.mean())


def _inside(t: float) -> float:
    if not LOWEST * 1.01 < t < HIGHEST / 1.01:
        raise FitFailed(f"the temperature ran to the end of its range ({t:.3g})")
    return t


def fit_heads(features: Floats, labels: Labels, k: int, strengths: Sequence[float]) -> list[Head]:
    """One head per strength: multinomial logistic regression with an L2 penalty, standardised.

    Minimises `C * sum of log losses + |W|^2 / 2`; biases are free. An option without any label gets
    half a row at the mean of the features, so its probability stays above 0.

    Args:
        features: (n, f).
        labels: (n,) label indices below k.
        k: number of options.
        strengths: C values, ascending: each search starts from the result before it.
    """
    mean, scale = features.mean(axis=0), features.std(axis=0)
    scale[scale < 1e-9] = 1.0
    # the best W lies in the span of the rows: searching there is exact, and cheap when f > n
    rows, basis, energy = _principal((features - mean) / scale)
    rows, target = _with_absent(rows, np.eye(k)[labels])
    point = np.zeros((k, rows.shape[1] + 1))
    heads = []
    for strength in strengths:
        point = _descend(point, rows, target, energy, strength)
        heads.append(Head(point[:, 1:] @ basis, point[:, 0].copy(), mean, scale))
    return heads


def _principal(x: Floats) -> tuple[Floats, Floats, Floats]:
    """x (n, f) along its principal axes: coordinates (n, r), axes (r, f), energies (r,)."""
    n, f = x.shape
    energy, vectors = np.linalg.eigh(x @ x.T if n < f else x.T @ x)
    keep = energy > 1e-10 * max(float(energy[-1]), 1e-300)
    energy, vectors = energy[keep], vectors[:, keep]
    if n < f:
        root = np.sqrt(energy)
        return vectors * root, (vectors / root).T @ x, energy
    return x @ vectors, np.ascontiguousarray(vectors.T), energy


def _with_absent(rows: Floats, target: Floats) -> tuple[Floats, Floats]:
    """Half a row at the origin for each label that does not occur; targets carry the weight."""
    absent = np.flatnonzero(target.sum(axis=0) == 0)
    if not len(absent):
        return rows, target
    extra = np.eye(target.shape[1])[absent] / 2
    return np.vstack((rows, np.zeros((len(absent), rows.shape[1])))), np.vstack((target, extra))


def _descend(start: Floats, rows: Floats, target: Floats, energy: Floats, strength: float) -> Floats:
    """The minimum from `start` (k, 1 + r); column 0 is the bias."""
    weight = target.sum(axis=1, keepdims=True)
    # along each axis the loss curves about so much: measured in steps of that size, all axes look
    # alike and the search needs a fifth of the rounds
    k = len(start)
    curve = strength * (k - 1) / k**2 * np.concatenate(([float(len(rows))], energy))
    step = 1.0 / np.sqrt(curve + np.concatenate(([0.0], np.ones(len(energy)))))

    def loss(flat: Floats) -> tuple[float, Floats]:
        point = flat.reshape(start.shape) * step
        z = rows @ point[:, 1:].T + point[:, 0]
        z -= z.max(axis=1, keepdims=True)
        log_p = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
        excess = strength * (np.exp(log_p) * weight - target)
        slope = np.column_stack((excess.sum(axis=0), excess.T @ rows + point[:, 1:])) * step
        value = -strength * float((target * log_p).sum()) + float((point[:, 1:] ** 2).sum()) / 2
        return value, slope.ravel()

    # probabilities are then exact to about 5e-4, far below what the rows can tell apart
    found = minimize(
        loss,
        (start / step).ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 2000, "ftol": 1e-11, "gtol": 3e-5},
    )
    return np.asarray(found.x, dtype=np.float64).reshape(start.shape) * step
