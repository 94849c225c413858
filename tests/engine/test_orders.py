"""Options are shown in several orders so that a liking for a place cancels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coolhead.policy import Debias
from coolhead.questions import Choice, Noul, Question, Score
from coolhead_worker.engine.orders import MOST, averaged, is_near_tie, orders_of
from coolhead_worker.engine.protocol import Readout

NOUL = Noul(instructions="?")
SCORE = Score(criteria=("none", "some", "much"))


def choice(count: int) -> Choice:
    return Choice(criteria=[f"o{number}" for number in range(count)])


questions = st.one_of(st.just(NOUL), st.just(SCORE), st.integers(2, 40).map(choice))
numbers = st.floats(-20, 20)


def log_softmax(values: np.ndarray) -> np.ndarray:
    return values - np.logaddexp.reduce(values)


def readout(*values: float, mass: float = 0.5) -> Readout:
    return Readout(log_softmax(np.array(values)), mass, "letters")


def tie(apart: float) -> Readout:
    """Two labels whose probabilities are so far apart, and a third one with next to nothing."""
    return readout(np.log(0.5 + apart / 2), np.log(0.5 - apart / 2), -60.0)


@given(questions, st.sampled_from(Debias))
def test_every_order_is_a_permutation_and_the_first_is_as_written(question: Question, level: Debias) -> None:
    orders = orders_of(question, level)
    forward = tuple(range(len(question.labels)))
    assert orders[0] == forward
    assert all(sorted(order) == list(forward) for order in orders)
    assert len(set(orders)) == len(orders) <= MOST


@pytest.mark.parametrize(
    ("question", "level", "orders"),
    [
        (choice(3), Debias.RAW, [(0, 1, 2)]),
        (choice(3), Debias.REVERSED, [(0, 1, 2), (2, 1, 0)]),
        (choice(3), Debias.ROTATED, [(0, 1, 2), (1, 2, 0), (2, 0, 1)]),
        (NOUL, Debias.RAW, [(0, 1)]),
        (NOUL, Debias.REVERSED, [(0, 1), (1, 0)]),
        (NOUL, Debias.ROTATED, [(0, 1), (1, 0)]),
        (SCORE, Debias.ROTATED, [(0, 1, 2), (2, 1, 0)]),
    ],
)
def test_levels_mean_these_orders(question: Question, level: Debias, orders: list[tuple[int, ...]]) -> None:
    assert orders_of(question, level) == tuple(orders)


@given(st.integers(2, MOST))
def test_full_rotation_puts_every_label_in_every_place_once(count: int) -> None:
    orders = np.array(orders_of(choice(count), Debias.ROTATED))
    assert all(sorted(column) == list(range(count)) for column in orders.T.tolist())


@given(st.integers(MOST + 1, 255))
def test_more_rotations_than_eight_are_thinned_out_evenly(count: int) -> None:
    shifts = [order[0] for order in orders_of(choice(count), Debias.ROTATED)]
    steps = np.diff([*shifts, count])
    assert len(shifts) == MOST
    assert steps.max() - steps.min() <= 1


@given(st.integers(2, MOST), st.data())
def test_a_liking_for_places_cancels_under_full_rotation(count: int, data: st.DataObject) -> None:
    drawn = st.lists(numbers, min_size=count, max_size=count).map(np.array)
    real, liking = data.draw(drawn), data.draw(drawn)
    heard = []
    for order in orders_of(choice(count), Debias.ROTATED):
        values = np.empty(count)
        values[list(order)] = real[list(order)] + liking  # what stands at place p gains liking[p]
        heard.append(Readout(log_softmax(values), 0.5, "letters"))
    assert averaged(heard).logits == pytest.approx(log_softmax(real), abs=1e-9)


@given(st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=2, max_size=5))
def test_an_average_is_a_distribution_in_the_ratio_of_geometric_means(rows: list[list[float]]) -> None:
    heard = [readout(*row) for row in rows]
    mean = averaged(heard).logits
    assert np.exp(mean).sum() == pytest.approx(1.0)
    means = np.mean([one.logits for one in heard], axis=0)
    assert mean - mean[0] == pytest.approx(means - means[0], abs=1e-9)


def test_an_average_tells_its_kind_and_the_mean_mass() -> None:
    mean = averaged([readout(1, 2, mass=0.2), readout(2, 1, mass=0.6)])
    assert mean.kind == "letters"
    assert mean.mass == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("count", "level"),
    [(1, Debias.RAW), (2, Debias.REVERSED), (3, Debias.ROTATED), (8, Debias.ROTATED)],
)
def test_a_readout_tells_in_how_many_orders_it_was_read(count: int, level: Debias) -> None:
    assert averaged([readout(1, 2)] * count).debias is level


def test_one_order_is_given_back_as_it_was_heard() -> None:
    alone = readout(1, 2)
    assert averaged([alone]) is alone
    assert alone.debias is Debias.RAW


@pytest.mark.parametrize(
    ("apart", "margin", "near"),
    [
        (0.05, 0.1, True),
        (0.15, 0.1, False),
        (0.0, 0.0, False),
        (0.0, 0.01, True),
        (0.99, 1.0, True),
        (0.99, 0.999, True),
    ],
)
def test_a_near_tie_is_one_below_the_margin(apart: float, margin: float, near: bool) -> None:
    assert is_near_tie(tie(apart), margin) is near


def test_only_the_two_likeliest_labels_count_for_a_tie() -> None:
    assert not is_near_tie(readout(np.log(0.8), np.log(0.1), np.log(0.1)), 0.5)
    assert is_near_tie(readout(np.log(0.1), np.log(0.46), np.log(0.44)), 0.05)
