"""What learned heads read of a state: two looks at the hidden states of one pass over it.

Guarantee: pure; the same recipe for every model, named by `features_digest`; nothing of a question is
in it, so one pass serves every question of every task.

Two thirds up, the mean over the state's own tokens: what the text is about. Five sixths up, the last
token of a probe, an unfinished sentence about its author: what the text is for. Each token is scaled
to unit root mean square first, else a few tokens with huge states drown the rest. All of this was
chosen by nested cross-validation, see docs/benchmarks-quality.md.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from coolhead_worker.engine.protocol import Floats

_RECIPE = "mean of states, probe"
_TINY = 1e-6


def layers_of(count: int) -> tuple[int, int]:
    """The layers to read, from 0, of a model with `count`: two thirds and five sixths up."""
    return max(0, round(2 * count / 3) - 1), max(0, min(round(5 * count / 6), count - 1) - 1)


def unit(states: NDArray[np.float32]) -> Floats:
    """(..., width) states, each scaled to unit root mean square."""
    exact = states.astype(np.float64)
    scaled: Floats = exact / np.sqrt((exact**2).mean(axis=-1, keepdims=True) + _TINY)
    return scaled


def features_of(states: NDArray[np.float32], probe: NDArray[np.float32]) -> Floats:
    """The features of one state.

    Args:
        states: (n, width) of its tokens, at the lower layer; n may be 0.
        probe: (width,) of the probe's last token, at the upper one.

    Returns:
        (2 width,).
    """
    mean = unit(states).mean(axis=0) if len(states) else np.zeros(len(probe))
    return np.concatenate([mean, unit(probe)])


def features_digest(layers: tuple[int, int], width: int) -> str:
    """32 hex digits over the recipe, the layers and the width."""
    return hashlib.sha256(f"{_RECIPE}|{layers}|{width}".encode()).hexdigest()[:32]
