"""What heads read: a mean and a probe, scaled; and a name that moves whenever either does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from coolhead_worker.engine.features import features_digest, features_of, layers_of, unit

STATES = arrays(
    np.float32, array_shapes(min_dims=2, max_dims=2, max_side=9), elements=st.floats(-1e4, 1e4, width=32)
)


@given(st.integers(1, 200))
def test_both_layers_exist_in_any_model_and_the_probe_is_never_read_below_the_mean(count: int) -> None:
    lower, upper = layers_of(count)
    assert 0 <= lower < count
    assert 0 <= upper < count
    assert lower <= upper


@pytest.mark.parametrize(("count", "layers"), [(30, (19, 24)), (18, (11, 14)), (1, (0, 0)), (2, (0, 0))])
def test_the_layers_of_known_models(count: int, layers: tuple[int, int]) -> None:
    assert layers_of(count) == layers


@given(STATES)
def test_scaled_states_have_unit_root_mean_square_or_are_next_to_nothing(states: np.ndarray) -> None:
    size = np.sqrt((unit(states) ** 2).mean(axis=-1))
    assert (size <= 1 + 1e-9).all()
    assert size[np.abs(states).max(axis=-1) > 1] == pytest.approx(1.0, abs=1e-4)


@given(STATES, st.floats(0.5, 100))
def test_the_size_of_a_token_s_state_carries_no_weight(states: np.ndarray, factor: float) -> None:
    plain, grown = states + 7, (states + 7) * np.float32(factor)
    probe = np.ones(states.shape[1], dtype=np.float32)
    assume((np.abs(plain).max(axis=-1) > 1).all())
    assert features_of(grown, probe) == pytest.approx(features_of(plain, probe), abs=1e-3)


def test_features_are_the_mean_of_the_scaled_states_beside_the_scaled_probe() -> None:
    states = np.array([[3, 4], [0, 2]], dtype=np.float32)
    mean = ((states[0] / np.sqrt(12.5)) + states[1] / np.sqrt(2)) / 2
    features = features_of(states, np.array([1, 0], dtype=np.float32))
    assert features.dtype == np.float64
    assert features == pytest.approx([*mean, np.sqrt(2), 0], abs=1e-5)


def test_a_state_without_tokens_has_features() -> None:
    empty = features_of(np.empty((0, 3), dtype=np.float32), np.ones(3, dtype=np.float32))
    assert empty == pytest.approx([0, 0, 0, 1, 1, 1], abs=1e-5)


def test_other_layers_or_another_width_are_other_features() -> None:
    named = {features_digest((19, 24), 576), features_digest((19, 25), 576), features_digest((19, 24), 640)}
    assert len(named) == 3


def test_the_features_of_the_demo_models_never_change_their_name() -> None:
    assert features_digest((19, 24), 576) == "0c2242770ba81b9fe15c631090701c40"
    assert features_digest((11, 14), 640) == "575a764ded779af6e2083a61d7088bab"
