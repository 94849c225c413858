"""Which calibrator a question gets: nested cross-validation, the simplest that is not beaten.

Guarantee: every figure a candidate is chosen by comes from rows it was not fitted on, and a head's
strength is chosen inside those folds; rows of one group never sit on both sides; deterministic for
a seed. A candidate replaces a simpler one only if log loss falls and the Brier score does not rise.
Needs scipy: only the `fit` command imports this module.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from coolhead.answers import Method
from coolhead.errors import FitFailed
from coolhead_worker.judgement.calibration import Calibrator, Floats, Raw
from coolhead_worker.judgement.fitting import fit_heads, fit_temperature, fit_temperature_bias
from coolhead_worker.judgement.folds import fold_of
from coolhead_worker.judgement.scoring import Flags, Labels, Scores, nll, score

OUTER_FOLDS, INNER_FOLDS = 5, 4
STRENGTHS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
"""C of a head: the inverse of its penalty."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The labelled rows of one question on one tier: logits (n, k), features (n, f), labels (n,)."""

    logits: Floats
    features: Floats
    labels: Labels
    groups: tuple[Hashable, ...]

    def take(self, keep: Flags) -> Rows:
        """The rows whose flag is set."""
        groups = tuple(group for group, kept in zip(self.groups, keep, strict=True) if kept)
        return Rows(self.logits[keep], self.features[keep], self.labels[keep], groups)

    def input_of(self, method: Method) -> Floats:
        """What a calibrator of this kind reads."""
        return self.features if method is Method.HEAD else self.logits

    def splits(self, folds: int, seed: int) -> Iterator[tuple[Flags, Flags]]:
        """(train, held out) flags of each fold that holds rows on both sides."""
        place = fold_of(self.labels, self.groups, folds, seed)
        for fold in range(folds):
            out = place == fold
            if out.any() and not out.all():
                yield ~out, out


@dataclass(frozen=True, slots=True)
class Candidate:
    """One method on all fit rows: out-of-fold probabilities (n, k), or why it is refused."""

    method: Method
    out_of_fold: Floats | None
    scores: Scores | None
    refused: str | None = None


def candidates(rows: Rows, seed: int, methods: Sequence[Method] = tuple(Method)) -> list[Candidate]:
    """These methods, simplest first, each judged on rows it did not see."""
    return [_judge(method, rows, seed) for method in methods]


def _judge(method: Method, rows: Rows, seed: int) -> Candidate:
    predicted = np.zeros_like(rows.logits)
    try:
        for train, out in rows.splits(OUTER_FOLDS, seed):
            calibrator, _ = fit_method(method, rows.take(train), seed)
            predicted[out] = calibrator.probabilities(rows.input_of(method)[out])
    except FitFailed as error:
        return Candidate(method, None, None, str(error))
    return Candidate(method, predicted, score(predicted, rows.labels))


def fit_method(method: Method, rows: Rows, seed: int) -> tuple[Calibrator, float | None]:
    """A calibrator of that kind on all these rows, and C for a head.

    Raises:
        FitFailed: the rows do not determine it.
    """
    if method is Method.RAW:
        return Raw(), None
    if method is Method.TEMPERATURE:
        return fit_temperature(rows.logits, rows.labels), None
    if method is Method.TEMPERATURE_BIAS:
        return fit_temperature_bias(rows.logits, rows.labels), None
    k = rows.logits.shape[1]
    strength = _strength(rows, k, seed)
    upto = STRENGTHS[: STRENGTHS.index(strength) + 1]
    return fit_heads(rows.features, rows.labels, k, upto)[-1], strength


def _strength(rows: Rows, k: int, seed: int) -> float:
    """The C of least log loss over inner folds; the smallest of equals."""
    total = np.zeros(len(STRENGTHS))
    for train, out in rows.splits(INNER_FOLDS, seed + 1):
        heads = fit_heads(rows.features[train], rows.labels[train], k, STRENGTHS)
        losses = [nll(head.probabilities(rows.features[out]), rows.labels[out]) for head in heads]
        total += np.array(losses) * out.sum()
    return STRENGTHS[int(total.argmin())]


def choose(tried: Sequence[Candidate]) -> tuple[Candidate, str]:
    """The candidate that counts, and why in one line.

    Args:
        tried: simplest first.

    Raises:
        FitFailed: the rows do not determine even the simplest.
    """
    best = tried[0]
    if best.refused is not None:
        raise FitFailed(best.refused)
    for candidate in tried[1:]:
        if _beats(candidate, best):
            best = candidate
    assert best.scores is not None
    first = tried[0].scores
    assert first is not None
    if len(tried) == 1:
        return best, f"nothing else was tried (NLL {first.nll:.4f})"
    if best is tried[0]:
        return best, f"nothing beats {best.method.value} on held-out rows (NLL {first.nll:.4f})"
    return best, (
        f"held-out NLL {best.scores.nll:.4f} against {first.nll:.4f} {tried[0].method.value}, "
        f"Brier {best.scores.brier:.4f} against {first.brier:.4f}"
    )


def _beats(candidate: Candidate, best: Candidate) -> bool:
    mine, its = candidate.scores, best.scores
    return mine is not None and its is not None and mine.nll < its.nll and mine.brier <= its.brier
