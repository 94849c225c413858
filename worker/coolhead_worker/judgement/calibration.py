"""How logits, or features, become probabilities.

Guarantee: every calibrator gives a distribution (entries >= 0, summing to 1 within 1e-9) for every
input of ordinary size (up to 1e300); a temperature never changes which label comes first; the same
input gives the same bits. An input that is not finite is refused, never turned into a number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from coolhead.answers import Method

Floats = NDArray[np.float64]

PLACEHOLDER_TEMPERATURE = 1.45
"""The temperature of the reference article, for questions that nobody fitted."""


def softmax(logits: Floats) -> Floats:
    """exp(z) / sum exp(z) over the last axis, without overflow.

    Args:
        logits: (..., k), finite.

    Returns:
        (..., k) float64, each row summing to 1.

    Raises:
        ValueError: an entry is NaN or infinite.
    """
    z = np.asarray(logits, dtype=np.float64)
    if not np.isfinite(z).all():
        raise ValueError("a logit is not finite")
    # halved first: the difference of two huge finite logits may overflow, their halves' can't
    half = z / 2.0
    weights = np.exp(2.0 * np.maximum(half - half.max(axis=-1, keepdims=True), -500.0))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Raw:
    """softmax(z)."""

    method: ClassVar[Method] = Method.RAW

    def probabilities(self, x: Floats) -> Floats:
        """Logits (k,) or (n, k) to probabilities of the same shape."""
        return softmax(x)


@dataclass(frozen=True, slots=True)
class Temperature:
    """softmax(z / t), t > 0: above 1 it flattens, below 1 it sharpens."""

    t: float

    method: ClassVar[Method] = Method.TEMPERATURE

    def __post_init__(self) -> None:
        _check_temperature(self.t)

    def probabilities(self, x: Floats) -> Floats:
        """Logits (k,) or (n, k) to probabilities of the same shape."""
        return softmax(np.asarray(x, dtype=np.float64) / self.t)


@dataclass(frozen=True, slots=True, eq=False)
class TemperatureBias:
    """softmax(z / t + b): the bias (k,) repairs a liking for one label that no temperature can."""

    t: float
    bias: Floats

    method: ClassVar[Method] = Method.TEMPERATURE_BIAS

    def __post_init__(self) -> None:
        _check_temperature(self.t)
        _check_finite(bias=self.bias)

    def probabilities(self, x: Floats) -> Floats:
        """Logits (k,) or (n, k) to probabilities of the same shape."""
        return softmax(np.asarray(x, dtype=np.float64) / self.t + self.bias)


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """softmax(W ((x - mean) / scale) + b): a learned linear reading of the model's features.

    weight (k, f), bias (k,), mean (f,), scale (f,) with scale > 0.
    """

    weight: Floats
    bias: Floats
    mean: Floats
    scale: Floats

    method: ClassVar[Method] = Method.HEAD

    def __post_init__(self) -> None:
        if self.weight.ndim != 2:
            raise ValueError(f"a head's weight is (k, f), not of shape {self.weight.shape}")
        k, f = self.weight.shape
        if self.bias.shape != (k,) or self.mean.shape != (f,) or self.scale.shape != (f,):
            raise ValueError(f"a head's bias, mean and scale do not fit its weight ({k}, {f})")
        _check_finite(weight=self.weight, bias=self.bias, mean=self.mean, scale=self.scale)
        if not (self.scale > 0).all():
            raise ValueError("a head's scale holds a value that is not above 0")

    def probabilities(self, x: Floats) -> Floats:
        """Features (f,) or (n, f) to probabilities (k,) or (n, k)."""
        standard = (np.asarray(x, dtype=np.float64) - self.mean) / self.scale
        # not a BLAS product: one row alone and among others must give the same bits, and BLAS
        # threads that wait for a busy core cost more than the product
        return softmax(np.einsum("...f,kf->...k", standard, self.weight) + self.bias)


Calibrator = Raw | Temperature | TemperatureBias | Head
"""Each has `method` and `probabilities(x)`."""


def _check_temperature(t: float) -> None:
    if not (np.isfinite(t) and t > 0):
        raise ValueError(f"a temperature is finite and above 0, not {t}")


def _check_finite(**arrays: Floats) -> None:
    for name, values in arrays.items():
        if not np.isfinite(values).all():
            raise ValueError(f"{name} holds a value that is not finite")


PLACEHOLDER = Temperature(PLACEHOLDER_TEMPERATURE)
"""What answers a question that nobody fitted; such an answer is marked `uncalibrated`."""
