"""The bound against scipy, the walk against its rules, and the promise against simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from coolhead_worker.judgement.guarantee import (
    GRID,
    Certificate,
    NotCertified,
    certify,
    certify_below,
    rows_at_rate,
    rows_needed,
    starting_at,
    tail,
    upper_bound,
)

DELTAS = (0.2, 0.1, 0.05, 0.025, 0.001)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("n", [1, 2, 10, 97, 1000, 20_000])
def test_the_bound_is_the_beta_quantile(n, delta):
    for errors in sorted({0, 1, n // 10, n // 2, n - 1, n}):
        expected = 1.0 if errors == n else stats.beta.ppf(1 - delta, errors + 1, n - errors)
        assert upper_bound(errors, n, delta) == pytest.approx(expected, rel=1e-7, abs=1e-9)


@given(st.integers(1, 500), st.data(), st.floats(0.001, 0.999))
def test_the_tail_is_scipys_binomial(n, data, rate):
    errors = data.draw(st.integers(0, n))
    assert tail(errors, n, rate) == pytest.approx(stats.binom.cdf(errors, n, rate), rel=1e-8, abs=1e-12)


def test_nothing_accepted_bounds_nothing():
    assert upper_bound(0, 0, 0.1) == 1.0


@pytest.mark.parametrize(
    ("alpha", "delta", "rows"),
    [
        # exact minima for 0, 1, 3 and 5 errors among the accepted rows
        (0.10, 0.10, (22, 38, 65, 91)),
        (0.10, 0.05, (29, 46, 76, 103)),
        (0.10, 0.025, (36, 54, 85, 114)),
        (0.05, 0.10, (45, 77, 132, 184)),
        (0.02, 0.05, (149, 236, 386, 523)),
        (0.01, 0.10, (230, 388, 667, 926)),
        (0.01, 0.025, (368, 555, 874, 1164)),
    ],
)
def test_the_number_of_labels_is_the_published_table(alpha, delta, rows):
    assert tuple(rows_needed(alpha, delta, errors) for errors in (0, 1, 3, 5)) == rows
    for errors, n in zip((0, 1, 3, 5), rows, strict=True):
        assert upper_bound(errors, n, delta) <= alpha < upper_bound(errors, n - 1, delta)


def test_an_error_rate_near_alpha_is_out_of_reach():
    assert rows_at_rate(0.0, 0.1, 0.1) == 22
    assert rows_at_rate(0.05, 0.1, 0.1) > 22
    assert rows_at_rate(0.1, 0.1, 0.1) is None
    assert rows_at_rate(0.0999, 0.1, 0.1) is None


samples = st.lists(st.tuples(st.integers(0, 20).map(lambda v: v / 20), st.booleans()), max_size=200)
coarse = tuple(t / 20 for t in range(20, 0, -1))


@given(samples, st.sampled_from([0.05, 0.1, 0.3]), st.sampled_from(DELTAS))
def test_a_certificate_holds_on_the_rows_it_came_from(rows, alpha, delta):
    confidence = np.array([c for c, _ in rows])
    right = np.array([r for _, r in rows], dtype=bool)
    found = certify(confidence, right, alpha, delta, coarse)
    if isinstance(found, NotCertified):
        return
    accepted = confidence >= found.threshold
    assert found.n_accepted == accepted.sum()
    assert found.errors == (accepted & ~right).sum()
    assert found.upper_bound == upper_bound(found.errors, found.n_accepted, delta) <= alpha
    for threshold in coarse[: coarse.index(found.threshold) + 1]:  # the whole chain before it passed
        above = confidence >= threshold
        assert upper_bound(int((above & ~right).sum()), int(above.sum()), delta) <= alpha


@given(samples, st.sampled_from([0.05, 0.1, 0.3]), st.sampled_from(DELTAS))
def test_below_is_the_mirror_of_above(rows, alpha, delta):
    # multiples of 1/32 mirror exactly; p < t is not c >= 1 - t at a tie, so thresholds lie between
    p = np.array([round(c * 32) / 32 for c, _ in rows])
    right = np.array([r for _, r in rows], dtype=bool)
    below = tuple((2 * t + 1) / 64 for t in range(32))
    mirrored = tuple(1 - t for t in below)
    low, high = certify_below(p, right, alpha, delta, below), certify(1 - p, right, alpha, delta, mirrored)
    if isinstance(low, Certificate):
        assert (low.n_accepted, low.errors, low.threshold) == (
            high.n_accepted,
            high.errors,
            1 - high.threshold,
        )
    else:
        assert low == high


@given(samples)
def test_a_lower_threshold_never_accepts_fewer(rows):
    confidence = np.array([c for c, _ in rows])
    counts = [int((confidence >= threshold).sum()) for threshold in GRID]
    assert counts == sorted(counts)


@given(samples, st.sampled_from(DELTAS))
def test_a_larger_alpha_never_raises_the_threshold(rows, delta):
    confidence = np.array([c for c, _ in rows])
    right = np.array([r for _, r in rows], dtype=bool)
    tight, loose = (certify(confidence, right, alpha, delta, coarse) for alpha in (0.1, 0.2))
    if isinstance(tight, Certificate):
        assert isinstance(loose, Certificate)
        assert loose.threshold <= tight.threshold


def test_rows_of_equal_confidence_are_accepted_together():
    confidence = np.full(100, 0.8)
    right = np.array([True] * 96 + [False] * 4)
    found = certify(confidence, right, 0.1, 0.1, (0.8, 0.5))
    assert found == Certificate(0.5, 0.1, 0.1, 100, 4, upper_bound(4, 100, 0.1))
    assert isinstance(certify(confidence, right, 0.1, 0.1, (0.81,)), NotCertified)


def test_a_probability_on_the_edge_is_not_below_it():
    right = np.ones(100, dtype=bool)
    assert isinstance(certify_below(np.full(100, 0.2), right, 0.1, 0.1, (0.2,)), NotCertified)
    assert isinstance(certify_below(np.full(100, np.nextafter(0.2, 0)), right, 0.1, 0.1, (0.2,)), Certificate)


def test_the_walk_ends_at_the_first_failure():
    # 40 right at 0.9, 40 wrong at 0.8, 4000 right at 0.7: 0.7 alone would pass
    confidence = np.repeat([0.9, 0.8, 0.7], [40, 40, 4000])
    right = np.repeat([True, False, True], [40, 40, 4000])
    found = certify(confidence, right, 0.1, 0.1, (0.9, 0.8, 0.7))
    assert isinstance(found, Certificate)
    assert found.threshold == 0.9
    assert isinstance(certify(confidence, right, 0.1, 0.1, (0.7,)), Certificate)


@pytest.mark.parametrize(
    ("rows", "errors", "needs"),
    [
        (0, 0, 22),  # nothing yet: 22 without error
        (10, 0, 12),  # 12 more make 22
        (10, 1, None),  # a tenth wrong: out of reach at 10 %
        (20, 10, None),
    ],
)
def test_too_few_labels_are_told_how_many_more(rows, errors, needs):
    confidence, right = np.full(rows, 0.9), np.arange(rows) >= errors
    assert certify(confidence, right, 0.1, 0.1, (0.5,)) == NotCertified(needs)


def test_the_labels_it_asks_for_are_enough():
    confidence, right = np.full(30, 0.9), np.arange(30) >= 1
    more = certify(confidence, right, 0.1, 0.1, (0.5,))
    assert isinstance(more, NotCertified)
    assert more.needs_about is not None
    n = 30 + more.needs_about
    errors = int(n / 30)
    assert isinstance(certify(np.full(n, 0.9), np.arange(n) >= errors, 0.1, 0.1, (0.5,)), Certificate)


@pytest.mark.parametrize(
    ("alpha", "delta", "grid"),
    [
        (0.0, 0.1, (0.5,)),
        (1.0, 0.1, (0.5,)),
        (0.1, 0.0, (0.5,)),
        (0.1, 1.0, (0.5,)),
        (0.1, 0.1, (0.5, 0.5)),
        (0.1, 0.1, (0.4, 0.5)),
    ],
)
def test_an_impossible_request_is_refused(alpha, delta, grid):
    with pytest.raises(ValueError, match=r"alpha|grid"):
        certify(np.zeros(1), np.ones(1, dtype=bool), alpha, delta, grid)


def test_the_start_is_the_first_threshold_with_rows_to_spare():
    # 100 rows spread evenly, all right: one error among 38 passes, so the walk starts at 1 - 0.38
    seen = np.arange(100) / 100
    chain = starting_at(GRID, lambda t: seen >= t, np.ones(100, dtype=bool), 100, 0.1, 0.1)
    assert chain == tuple(t for t in GRID if t <= 0.62)


def test_the_start_scales_with_the_rows_to_be_tested():
    seen = np.arange(100) / 100
    chain = starting_at(GRID, lambda t: seen >= t, np.ones(100, dtype=bool), 200, 0.1, 0.1)
    assert chain[0] == 0.81  # 19 of 100 are 38 of 200


def test_a_hopeless_start_is_where_it_looks_best():
    seen = np.arange(100) / 100
    chain = starting_at(GRID, lambda t: seen >= t, seen >= 0.8, 100, 0.1, 0.1)
    assert chain[0] == 0.8  # 20 rows without error: 22 would do


def test_a_start_from_no_rows_is_the_top():
    assert starting_at(GRID, lambda t: np.zeros(0) >= t, np.zeros(0, dtype=bool), 50, 0.1, 0.1) == GRID


def _violations(draws: int, risk, seed: int, n: int = 120, alpha: float = 0.1, delta: float = 0.1) -> float:
    """Share of draws that certify a threshold whose true error is above alpha.

    Confidence is uniform on (0, 1), so the true risk at t is the mean of `risk` over (t, 1).
    """
    rng = np.random.default_rng(seed)
    fine = (np.arange(20_000) + 0.5) / 20_000
    true = {t: float(risk(fine[fine >= t]).mean()) for t in coarse if t < 1}
    bad = 0
    for _ in range(draws):
        confidence = rng.uniform(size=n)
        right = rng.uniform(size=n) >= risk(confidence)
        # the start comes from rows of its own, as in a fit
        other = rng.uniform(size=n)
        other_right = rng.uniform(size=n) >= risk(other)
        chain = starting_at(coarse[1:], lambda t, other=other: other >= t, other_right, n, alpha, delta)
        found = certify(confidence, right, alpha, delta, chain)
        bad += isinstance(found, Certificate) and true[found.threshold] > alpha
    return bad / draws


@pytest.mark.parametrize(
    ("name", "risk"),
    [
        ("just too bad everywhere", lambda c: np.full_like(c, 0.1001)),
        ("worse the surer", lambda c: np.where(c > 0.7, 0.2, 0.02)),
        ("as the confidence says", lambda c: 0.5 * (1 - c)),
        ("a step at one half", lambda c: np.where(c > 0.5, 0.05, 0.4)),
    ],
)
def test_a_wrong_certificate_is_rarer_than_delta(name, risk):
    draws = 800
    # delta plus three standard errors of the simulation: 0.1 + 3 * sqrt(0.09 / 800) = 0.132
    assert _violations(draws, risk, seed=20) <= 0.1 + 3 * (0.1 * 0.9 / draws) ** 0.5


def test_the_simulation_would_notice_a_walk_without_a_test():
    rng = np.random.default_rng(1)
    bad = 0
    for _ in range(200):
        confidence, right = rng.uniform(size=120), rng.uniform(size=120) >= 0.1001
        means = [(~right[confidence >= t]).mean() for t in coarse[1:] if (confidence >= t).any()]
        bad += min(means) <= 0.1  # the threshold that merely looks good
    assert bad / 200 > 0.5


@pytest.mark.parametrize("link", ["the same rows", "unrelated rows", "opposite rows"])
def test_a_second_tier_on_what_the_first_passes_on_keeps_its_promise(link):
    """The first tier's threshold comes from the same rows; the second is just too bad everywhere."""
    rng, draws, bad = np.random.default_rng(7), 300, 0
    for _ in range(draws):
        confidence, luck = rng.uniform(size=200), rng.uniform(size=200)
        first_right = luck >= 0.02 + 0.5 * (1 - confidence) ** 2
        first = certify(confidence, first_right, 0.1, 0.1, coarse[4:])
        passed_on = confidence < (first.threshold if isinstance(first, Certificate) else 2.0)
        second_luck = {"the same rows": luck, "opposite rows": 1 - luck}.get(link, rng.uniform(size=200))
        right = (second_luck >= 0.1001)[passed_on]
        bad += isinstance(certify(rng.uniform(size=len(right)), right, 0.1, 0.1, coarse[8:]), Certificate)
    assert bad / draws <= 0.1 + 3 * (0.1 * 0.9 / draws) ** 0.5
