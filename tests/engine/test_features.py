"""The choice of features is the same for ever."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coolhead_worker.engine.features import feature_ids, ids_digest


@given(st.integers(1, 3000), st.integers(1, 200))
def test_ids_are_different_ascending_and_in_range(n_vocab: int, n_embd: int) -> None:
    ids = feature_ids(n_vocab, n_embd).tolist()
    assert len(ids) == min(2 * n_embd, n_vocab)
    assert ids == sorted(set(ids))
    assert ids[0] >= 0
    assert ids[-1] < n_vocab


def test_the_choice_for_the_two_demo_models_never_moves() -> None:
    assert ids_digest(feature_ids(49152, 576)) == "84426eb1528c07bc4285633ec38e4a6e"
    assert ids_digest(feature_ids(262144, 640)) == "f22e933ce755d962404bd7bd3bf2be1c"
