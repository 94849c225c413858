"""Folds against plain arithmetic: what is divided by the temperature gives the author's probabilities."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coolhead_worker.engine.decision.fold import Mean, by_label, by_rating, one_by_one, over_orders

temperatures = st.floats(0.2, 20)
values = st.floats(-20, 20)


def softmax(row, temperature: float = 1.0) -> list[float]:
    peak = max(row)
    weight = [math.exp((value - peak) / temperature) for value in row]
    return [one / math.fsum(weight) for one in weight]


def rows(least: int = 1, most: int = 5):
    return st.integers(2, 8).flatmap(
        lambda k: st.lists(st.lists(values, min_size=k, max_size=k), min_size=least, max_size=most)
    )


def probabilities(logits, temperature: float):
    return softmax(list(logits), temperature)


@given(rows(), temperatures)
def test_a_mean_of_probabilities_is_what_lev_answers(given_, temperature: float) -> None:
    said = [softmax(row, temperature) for row in given_]
    wanted = [math.fsum(column) / len(said) for column in zip(*said, strict=True)]
    folded = over_orders([np.array(row) for row in given_], Mean.PROBABILITY, temperature)
    assert probabilities(folded, temperature) == pytest.approx(wanted, abs=1e-9)


@given(rows(), temperatures)
def test_a_geometric_mean_cancels_a_liking_for_places(given_, temperature: float) -> None:
    said = [softmax(row, temperature) for row in given_]
    weight = [
        math.exp(math.fsum(math.log(max(p, 1e-12)) for p in c) / len(said)) for c in zip(*said, strict=True)
    ]
    wanted = [one / math.fsum(weight) for one in weight]
    folded = over_orders([np.array(row) for row in given_], Mean.LOG, temperature)
    if len(given_) == 1:
        wanted = said[0]
    assert probabilities(folded, temperature) == pytest.approx(wanted, abs=1e-9)


def test_a_liking_for_the_first_place_alone_leaves_two_orders_even() -> None:
    forward, backward = by_label(np.array([9.0, 0.0]), (0, 1)), by_label(np.array([9.0, 0.0]), (1, 0))
    assert probabilities(over_orders([forward, backward], Mean.PROBABILITY, 1.0), 1.0) == pytest.approx(
        [0.5, 0.5]
    )


@given(st.lists(values, min_size=9, max_size=9), temperatures)
def test_ratings_give_their_expected_value_as_yes(row: list[float], temperature: float) -> None:
    wanted = math.fsum(p * rating / 8 for rating, p in enumerate(softmax(row, temperature)))
    yes, no = probabilities(by_rating(np.array(row), temperature), temperature)
    assert yes == pytest.approx(wanted, abs=1e-9)
    assert no == pytest.approx(1 - wanted, abs=1e-9)


@pytest.mark.parametrize(("sure", "yes"), [(0, 0.0), (8, 1.0), (4, 0.5)])
def test_a_sure_rating_is_a_sure_answer_and_stays_finite(sure: int, yes: float) -> None:
    row = np.full(9, -900.0)
    row[sure] = 900.0
    folded = by_rating(row, 1.0)
    assert np.isfinite(folded).all()
    assert probabilities(folded, 1.0)[0] == pytest.approx(yes, abs=1e-9)


@given(rows(least=2), temperatures)
def test_levels_asked_one_by_one_share_the_sum_of_their_yes(given_, temperature: float) -> None:
    fit = [softmax(row, temperature)[1] for row in given_]
    folded = one_by_one([np.array(row) for row in given_], 1, temperature)
    wanted = [one / math.fsum(fit) for one in fit]
    assert probabilities(folded, temperature) == pytest.approx(wanted, abs=1e-9)


@given(st.permutations(range(6)))
def test_places_are_turned_back_into_labels(order: list[int]) -> None:
    row = np.array([float(index) for index in order])  # the value of a place is the label shown there
    assert list(by_label(row, order)) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
