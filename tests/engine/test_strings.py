"""Names that begin alike are told apart by the tokens in which they differ, and by no more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from coolhead_worker.engine.strings import (
    DEEPEST,
    MOST,
    Path,
    distinguished,
    leaves_of,
    log_likelihoods,
    places_of,
)

STOP = 0
TOKENS = 4  # of the small language models below; 0 ends an answer

words = st.lists(st.integers(1, TOKENS - 1), min_size=1, max_size=4).map(tuple)
several = st.lists(words, min_size=2, max_size=7, unique=True)
seeds = st.integers(0, 2**32 - 1)


class Language:
    """A language model as a table: after each beginning, a distribution over the next token."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.after = cache(self._after)

    def _after(self, before: Path) -> list[float]:
        return list(np.random.default_rng([self._seed, *before, len(before)]).dirichlet(np.ones(TOKENS)))

    def likelihood(self, path: Path) -> float:
        """Probability that a sample begins like this, token by token."""
        return math.prod(self.after(path[:at])[token] for at, token in enumerate(path))

    def rows(self, paths: Sequence[Path]) -> dict[int, np.ndarray]:
        """What the engine reads: the row after the prompt, then one after each token of each leaf."""
        befores = [(), *(leaf[:size] for leaf in leaves_of(paths) for size in range(1, len(leaf) + 1))]
        return {at: np.log(self.after(before)) for at, before in enumerate(befores)}


def begins(path: Path, other: Path) -> bool:
    return other[: len(path)] == path


@given(several, st.sampled_from([STOP, None]))
def test_paths_are_different_and_none_begins_another(names: list[Path], stop: int | None) -> None:
    paths = distinguished(names, stop)
    assume(paths is not None)
    assert len(paths) == len(names)
    assert not any(begins(one, other) or begins(other, one) for one, other in combinations(paths, 2))


@given(several)
def test_a_path_is_the_shortest_beginning_that_no_other_name_shares(names: list[Path]) -> None:
    paths = distinguished(names, STOP)
    for path, name in zip(paths, names, strict=True):
        said, others = (*name, STOP), [(*other, STOP) for other in names if other != name]
        assert begins(path, said)
        assert not any(begins(path, other) for other in others)
        assert any(begins(path[:-1], other) for other in others)


@given(several, st.randoms())
def test_the_path_of_a_name_does_not_depend_on_the_order(names: list[Path], random) -> None:
    mixed = random.sample(names, len(names))
    paths = dict(zip(names, distinguished(names, STOP), strict=True))
    assert distinguished(mixed, STOP) == tuple(paths[name] for name in mixed)


@pytest.mark.parametrize(
    ("names", "stop", "paths"),
    [
        ([(1,), (2,)], None, ((1,), (2,))),
        ([(1, 2, 9), (1, 3)], None, ((1, 2), (1, 3))),
        ([(1,), (1, 2)], STOP, ((1, STOP), (1, 2))),
        ([(1,), (1, 2)], None, None),
        ([(1, 2), (1, 2)], STOP, None),
        ([(1,), (1, STOP, 2)], STOP, None),
        ([(1, 2, 3), (1, 2, 4), (5,)], None, ((1, 2, 3), (1, 2, 4), (5,))),
    ],
    ids=str,
)
def test_names_are_told_apart_like_this(
    names: list[Path], stop: int | None, paths: tuple[Path, ...] | None
) -> None:
    assert distinguished(names, stop) == paths


@pytest.mark.parametrize(("length", "told"), [(DEEPEST, True), (DEEPEST + 1, False)])
def test_names_that_part_too_late_are_not_told_apart(length: int, told: bool) -> None:
    names = [(*[1] * (length - 1), 2), (*[1] * (length - 1), 3)]
    assert (distinguished(names, STOP) is not None) is told


@pytest.mark.parametrize(("pairs", "told"), [(MOST, True), (MOST + 1, False)])
def test_leaves_have_a_bound_in_tokens(pairs: int, told: bool) -> None:
    names = [(10 + number, end) for number in range(pairs) for end in (1, 2)]
    assert (distinguished(names, STOP) is not None) is told


@given(several)
def test_leaves_hold_every_place_where_paths_go_on_and_nothing_twice(names: list[Path]) -> None:
    paths = distinguished(names, STOP)
    leaves = leaves_of(paths)
    inner = {path[:size] for path in paths for size in range(1, len(path))}
    assert {leaf[:size] for leaf in leaves for size in range(1, len(leaf) + 1)} == inner
    assert not any(begins(one, other) or begins(other, one) for one, other in combinations(leaves, 2))
    assert leaves == tuple(sorted(leaves))


@given(several)
def test_every_beginning_is_found_at_the_row_that_follows_it(names: list[Path]) -> None:
    paths = distinguished(names, STOP)
    read = [leaf[:size] for leaf in leaves_of(paths) for size in range(1, len(leaf) + 1)]
    places = places_of(paths)
    assert places.pop(()) == 0
    assert all(read[row - 1] == before for before, row in places.items())


def test_one_token_each_needs_no_leaf() -> None:
    assert leaves_of([(1,), (2,)]) == ()
    assert places_of([(1,), (2,)]) == {(): 0}


@given(several, seeds)
def test_log_likelihoods_are_those_of_a_walk_through_the_language(names: list[Path], seed: int) -> None:
    language = Language(seed)
    paths = distinguished(names, STOP)
    said = log_likelihoods(language.rows(paths), paths)
    assert said.dtype == np.float64
    assert said == pytest.approx([math.log(language.likelihood(path)) for path in paths], abs=1e-9)


@given(st.lists(words, min_size=2, max_size=5, unique=True), seeds)
def test_all_paths_hold_the_probability_that_a_sample_begins_with_one(names: list[Path], seed: int) -> None:
    language = Language(seed)
    paths = distinguished(names, STOP)
    length = max(map(len, paths))
    samples = product(range(TOKENS), repeat=length)
    hit = math.fsum(
        language.likelihood(sample) for sample in samples if any(begins(path, sample) for path in paths)
    )
    held = math.fsum(np.exp(log_likelihoods(language.rows(paths), paths)))
    assert held == pytest.approx(hit, abs=1e-9)
    assert held <= 1.0 + 1e-9
