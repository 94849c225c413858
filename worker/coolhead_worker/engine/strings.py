"""Options whose names begin alike, told apart by the tokens in which they differ.

Guarantee: pure; an option is read up to the first token that no other option shares, and no further:
the rest of a name says nothing about the choice, and its length can't favour it. Where one name is
the beginning of another, the end of the answer is part of the shorter one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from coolhead_worker.engine.protocol import Floats

Path = tuple[int, ...]

DEEPEST = 8
"""Tokens of one option that are read at most."""

MOST = 64
"""Tokens of all leaves together at most; beyond that letters are cheaper and as good."""


def distinguished(names: Sequence[Path], stop: int | None) -> tuple[Path, ...] | None:
    """The shortest beginning of each name that no other name shares.

    Args:
        names: token ids of each option.
        stop: the token that ends an answer, or None when there is none.

    Returns:
        One path an option, all different and none the beginning of another; None when two names have
        the same tokens, when one begins another and there is no `stop`, or when they are too long.
    """
    ended = [name if stop is None else (*name, stop) for name in names]
    paths = tuple(_shortest(name, [*ended[:at], *ended[at + 1 :]]) for at, name in enumerate(ended))
    if any(not path or len(path) > DEEPEST for path in paths):
        return None
    return paths if sum(map(len, leaves_of(paths))) <= MOST else None


def _shortest(name: Path, others: Sequence[Path]) -> Path:
    """The shortest beginning of `name` that begins no other; () when there is none."""
    for length in range(1, len(name) + 1):
        if all(other[:length] != name[:length] for other in others):
            return name[:length]
    return ()


def leaves_of(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Token strings to evaluate after the prompt: every beginning after which paths part or go on."""
    inner = {path[:length] for path in paths for length in range(1, len(path))}
    return tuple(sorted(node for node in inner if not _goes_on(node, inner)))


def _goes_on(node: Path, nodes: set[Path]) -> bool:
    return any(len(other) > len(node) and other[: len(node)] == node for other in nodes)


def places_of(paths: Sequence[Path]) -> dict[Path, int]:
    """Which row follows which beginning: 0 is the prompt's own, then the leaves' rows in order."""
    places: dict[Path, int] = {(): 0}
    row = 1
    for leaf in leaves_of(paths):
        for length in range(1, len(leaf) + 1):
            places.setdefault(leaf[:length], row)
            row += 1
    return places


def log_likelihoods(rows: Mapping[int, NDArray[np.float64]], paths: Sequence[Path]) -> Floats:
    """(k,) log-probability of each path.

    Args:
        rows: by place, (n_vocab,) log-softmax over the vocabulary.
        paths: one a label.
    """
    places = places_of(paths)
    return np.array(
        [sum(rows[places[path[:at]]][token] for at, token in enumerate(path)) for path in paths],
        dtype=np.float64,
    )
