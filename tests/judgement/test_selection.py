"""The choice between methods is made on rows the candidates did not see."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from coolhead.answers import Method
from coolhead_worker.judgement.scoring import Scores, nll
from coolhead_worker.judgement.selection import Candidate, Rows, candidates, choose, fit_method


def rows_of(n: int, *, signal: float, text: float, seed: int = 0, liking: float = 0.0) -> Rows:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, n)
    features = rng.normal(size=(n, 10))
    features[:, :3] += signal * np.eye(3)[labels]
    logits = rng.normal(size=(n, 3)) + text * np.eye(3)[labels] + liking * np.eye(3)[0]
    return Rows(logits, features, labels, tuple(range(n)))


def by_method(rows: Rows, seed: int = 0) -> dict[Method, Candidate]:
    return {tried.method: tried for tried in candidates(rows, seed)}


def test_features_that_carry_the_label_win():
    tried = candidates(rows_of(120, signal=3, text=0.3), 0)
    best, why = choose(tried)
    assert best.method is Method.HEAD
    assert best.scores.nll < tried[0].scores.nll / 2
    assert best.scores.accuracy > 0.9
    assert "held-out NLL" in why


def test_features_of_noise_lose_to_a_good_text_readout():
    best, _ = choose(candidates(rows_of(120, signal=0, text=4), 0))
    assert best.method is not Method.HEAD


def test_a_liking_for_one_option_calls_for_a_bias():
    rows = rows_of(200, signal=0, text=3, liking=4)
    best, _ = choose(candidates(rows, 0))
    assert best.method is Method.TEMPERATURE_BIAS


def test_pure_noise_never_looks_better_than_chance_by_much():
    # 12 features of noise on 60 rows: fitted and judged on the same rows a head would look good
    tried = by_method(rows_of(60, signal=0, text=0))
    assert tried[Method.HEAD].scores.nll > np.log(3) - 0.1


def test_out_of_fold_figures_are_worse_than_in_sample_ones():
    rows = rows_of(80, signal=1, text=0.5)
    head, _ = fit_method(Method.HEAD, rows, 0)
    assert by_method(rows)[Method.HEAD].scores.nll > nll(head.probabilities(rows.features), rows.labels)


def test_copies_in_one_group_do_not_leak_into_the_judgement():
    rows = rows_of(40, signal=0, text=0)
    copies = Rows(
        np.repeat(rows.logits, 4, axis=0),
        np.repeat(rows.features, 4, axis=0),
        np.repeat(rows.labels, 4),
        tuple(np.repeat(range(40), 4).tolist()),
    )
    honest = by_method(copies)[Method.HEAD].scores
    torn = by_method(replace(copies, groups=tuple(range(160))))[Method.HEAD].scores
    assert torn.nll < honest.nll - 0.1


def test_a_temperature_at_its_bound_is_refused_with_the_reason():
    labels = np.arange(60) % 3
    rows = Rows(np.eye(3)[labels] * 0.5, np.zeros((60, 2)), labels, tuple(range(60)))
    tried = by_method(rows)
    assert tried[Method.TEMPERATURE].scores is None
    assert "end of its range" in tried[Method.TEMPERATURE].refused
    assert choose(list(tried.values()))[0].method in (Method.RAW, Method.HEAD)


def scored(method: Method, nll_: float, brier: float) -> Candidate:
    return Candidate(method, np.zeros((1, 2)), Scores(1, nll_, 0.5, brier, 0.0, 0.0))


@pytest.mark.parametrize(
    ("later", "chosen"),
    [
        ([(0.9, 0.4)], 1),
        ([(0.9, 0.5)], 1),  # Brier may stay
        ([(0.9, 0.51)], 0),  # but not rise
        ([(1.0, 0.4)], 0),  # log loss must fall
        ([(0.9, 0.4), (0.8, 0.41)], 1),  # each is compared with the best before it
        ([(0.9, 0.4), (0.8, 0.39)], 2),
    ],
)
def test_a_method_replaces_a_simpler_one_only_if_both_figures_allow(later, chosen):
    tried = [scored(Method.RAW, 1.0, 0.5)] + [
        scored(method, *figures)
        for method, figures in zip((Method.TEMPERATURE, Method.HEAD), later, strict=False)
    ]
    best, why = choose(tried)
    assert best is tried[chosen]
    assert ("nothing beats raw" in why) == (chosen == 0)


def test_the_same_seed_gives_the_same_figures():
    rows = rows_of(60, signal=1, text=1)
    first, second = by_method(rows, 3), by_method(rows, 3)
    assert all(first[m].scores == second[m].scores for m in Method)
    assert by_method(rows, 4)[Method.HEAD].scores != first[Method.HEAD].scores
