"""Interleaved measuring with clocks that tests turn by hand."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coolhead_worker.bench.measuring import Done, Measured, Rounds, Stopwatch, Variant, measure, ratio


class Hands:
    """Two clocks that stand still until work moves them."""

    def __init__(self) -> None:
        self.cpu = self.wall = 0.0
        self.watch = Stopwatch(lambda: self.cpu, lambda: self.wall)
        self.prepared: list[tuple[str, int]] = []

    def variant(
        self, name: str, cost: Callable[[int], float], jobs: int = 1, repeats: int = 1, making: float = 0.0
    ) -> Variant:
        """One whose run `number` takes `cost(number)` of CPU and twice that of wall time."""

        def prepare(number: int) -> Callable[[], Done]:
            self.prepared.append((name, number))
            self.cpu += making
            self.wall += making

            def run() -> Done:
                self.cpu += cost(number)
                self.wall += 2 * cost(number)
                return Done(new=100 * jobs, generated=3 * jobs)

            return run

        return Variant(name, prepare, jobs, repeats=repeats)


def measured(name: str, cpu: list[float], jobs: int = 1) -> Measured:
    return Measured(name, jobs, cpu=cpu, wall=cpu, new=[1.0] * len(cpu), generated=[0.0] * len(cpu))


def test_figures_are_medians_a_job_and_the_warm_up_is_not_among_them() -> None:
    hands = Hands()
    slow_start = hands.variant("a", lambda number: 1000.0 if number == 0 else float(number), jobs=4)
    found = measure([slow_start], Rounds(3, 3, 0), hands.watch, random.Random(0))["a"]
    assert found.cpu == [1.0, 2.0, 3.0]
    assert found.cpu_ms == pytest.approx(2000 / 4)
    assert found.wall_ms == pytest.approx(4000 / 4)
    assert (found.tokens, found.made) == (100, 3)
    assert found.per_second == pytest.approx(400 / 4)


def test_what_a_run_needs_is_made_before_its_clocks_start() -> None:
    hands = Hands()
    found = measure(
        [hands.variant("a", lambda _: 1.0, making=50.0)], Rounds(2, 2, 0), hands.watch, random.Random(0)
    )
    assert found["a"].cpu == [1.0, 1.0]
    assert found["a"].wall == [2.0, 2.0]


@given(repeats=st.lists(st.integers(1, 4), min_size=1, max_size=5), rounds=st.integers(1, 5))
def test_every_round_runs_each_variant_as_often_as_it_asks_with_a_number_of_its_own(
    repeats: list[int], rounds: int
) -> None:
    hands = Hands()
    variants = [hands.variant(f"v{at}", lambda _: 1.0, repeats=count) for at, count in enumerate(repeats)]
    found = measure(variants, Rounds(rounds, rounds, 0), hands.watch, random.Random(1))
    assert list(found) == [variant.name for variant in variants]
    for at, count in enumerate(repeats):
        numbers = [number for name, number in hands.prepared if name == f"v{at}"]
        assert sorted(numbers) == list(range(rounds * count + 1))
        assert len(found[f"v{at}"].cpu) == rounds
    warm, size = len(repeats), sum(repeats)
    for number in range(rounds):
        names = [name for name, _ in hands.prepared[warm + number * size : warm + (number + 1) * size]]
        assert {name: names.count(name) for name in set(names)} == {
            f"v{at}": count for at, count in enumerate(repeats)
        }


def test_the_order_is_drawn_anew_for_each_round() -> None:
    hands = Hands()
    variants = [hands.variant(name, lambda _: 1.0) for name in "abcdef"]
    measure(variants, Rounds(8, 8, 0), hands.watch, random.Random(2))
    orders = {tuple(name for name, _ in hands.prepared[at : at + 6]) for at in range(6, 54, 6)}
    assert len(orders) > 4


def test_the_median_of_repeated_runs_counts_for_a_round() -> None:
    hands = Hands()
    spiky = hands.variant("a", lambda number: 90.0 if number % 3 == 0 else 1.0, repeats=3)
    assert measure([spiky], Rounds(2, 2, 0), hands.watch, random.Random(0))["a"].cpu == [1.0, 1.0]


def test_a_variant_with_clocks_of_its_own_is_measured_by_them() -> None:
    hands, others = Hands(), Hands()
    away = Variant("away", others.variant("away", lambda _: 7.0).prepare, watch=others.watch)
    found = measure(
        [away, hands.variant("here", lambda _: 1.0)], Rounds(1, 1, 0), hands.watch, random.Random()
    )
    assert found["away"].cpu == [7.0]
    assert found["here"].cpu == [1.0]


def test_the_listener_hears_of_the_warm_up_and_of_every_run() -> None:
    hands, heard = Hands(), list[tuple[int, str]]()
    variants = [hands.variant("a", lambda _: 1.0), hands.variant("b", lambda _: 1.0, repeats=2)]
    measure(variants, Rounds(1, 1, 0), hands.watch, random.Random(0), lambda *said: heard.append(said))
    assert heard[:2] == [(0, "a"), (0, "b")]
    assert sorted(heard[2:]) == [(1, "a"), (1, "b"), (1, "b")]


def test_two_variants_of_one_name_are_refused() -> None:
    hands = Hands()
    twins = [hands.variant("a", lambda _: 1.0)] * 2
    with pytest.raises(ValueError, match="share a name"):
        measure(twins, Rounds(1, 1, 0), hands.watch, random.Random(0))
    assert hands.prepared == []


@pytest.mark.parametrize(
    ("done", "spent", "longest", "more"),
    [
        (0, 0.0, 0.0, True),
        (2, 1e9, 1e9, True),  # fewer than the least
        (3, 10.0, 5.0, True),
        (3, 95.0, 5.0, True),  # ends just in time
        (3, 95.1, 5.0, False),
        (7, 0.0, 0.0, False),  # the most
    ],
)
def test_rounds_go_on_while_the_next_one_ends_in_time(
    done: int, spent: float, longest: float, more: bool
) -> None:
    assert Rounds(least=3, most=7, seconds=100.0).more(done, spent, longest) is more


def test_no_round_begins_that_would_end_too_late() -> None:
    hands = Hands()
    found = measure([hands.variant("a", lambda _: 5.0)], Rounds(1, 99, 45.0), hands.watch, random.Random(0))
    assert len(found["a"].cpu) == 4  # of 10 s each


costs = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30)


@given(pairs=st.lists(st.tuples(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3)), min_size=1, max_size=30))
def test_a_ratio_is_the_median_of_the_rounds_with_the_quartiles_of_numpy(
    pairs: list[tuple[float, float]],
) -> None:
    first, second = (list(side) for side in zip(*pairs, strict=True))
    found = ratio(measured("a", first, jobs=2), measured("b", second))
    shares = np.array(first) / 2 / np.array(second)
    assert [found.low, found.value, found.high] == pytest.approx(np.quantile(shares, [0.25, 0.5, 0.75]))


@given(cpu=costs, factor=st.floats(0.01, 100), slow=st.lists(st.floats(0.1, 10), min_size=30, max_size=30))
def test_a_machine_that_slows_down_moves_no_ratio(cpu: list[float], factor: float, slow: list[float]) -> None:
    # Each round takes both sides alike, however slow the machine is in it.
    first = [factor * one * slower for one, slower in zip(cpu, slow, strict=False)]
    second = [one * slower for one, slower in zip(cpu, slow, strict=False)]
    found = ratio(measured("a", first), measured("b", second))
    assert [found.low, found.value, found.high] == pytest.approx([factor] * 3)


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        ([1.0], [1.0, 2.0], "same rounds"),
        ([], [], "same rounds"),
        ([1.0, 1.0], [1.0, 0.0], "too coarse"),
    ],
)
def test_what_cannot_be_compared_is_refused(first: list[float], second: list[float], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ratio(measured("a", first), measured("b", second))


def test_a_clock_that_stood_still_gives_no_rate() -> None:
    assert measured("a", [0.0]).per_second == 0
