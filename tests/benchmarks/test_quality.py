"""Quality: folds never leak, intervals and scores agree with oracles, a stopped run goes on."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import quality
from datasets import YES, DataSet, bastion, jevbench, spam
from hypothesis import given, settings
from hypothesis import strategies as st
from quality_fetch import SetMissing
from quality_reading import Read, read_set
from quality_scoring import (
    CURVE,
    FIGURES,
    PARTS,
    QUICK,
    READOUTS,
    SPREAD,
    Effort,
    Judged,
    Kind,
    by_kind,
    curve_splits,
    few,
    figures_of,
    judge,
    judge_parts,
    learning_curve,
    resampled,
    wilson,
)
from quality_table import tables
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss

from coolhead.answers import Method
from coolhead.errors import DecodeFailed
from coolhead.policy import Tier
from coolhead_worker.engine.fake import FakeEngine
from coolhead_worker.judgement.selection import Rows
from tests.benchmarks.mails import mail

ROWS = 60
WORDS = ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliet"]
SMALL = Effort(repeats=1, draws=20, curve_repeats=1)


def a_few_mails() -> DataSet:
    """Sixty mails, every third spam, of which the first forty are read by text."""
    subjects = [f"{one} {other}" for one in WORDS for other in WORDS]
    mails = [
        ("spam-1" if at % 3 == 0 else "easy-ham-1", mail(subjects[at], f"{subjects[at]} body"))
        for at in range(ROWS)
    ]
    return replace(spam(mails), by_text=40)


def a_few_prompts() -> DataSet:
    labels = ("benign", "malicious")
    lines = [
        {"id": str(at), "text": f"prompt {at}", "label": labels[at % 2], "category": "jailbreak"}
        for at in range(ROWS)
    ]
    return bastion(map(json.dumps, lines))


def a_few_texts() -> DataSet:
    domains = ["agent_logs", "logistics", "finance_ops"]
    lines = [{"state": f"text {at}", "domain": domains[at % 3]} for at in range(ROWS)]
    return jevbench(map(json.dumps, lines))


def rows(labels: Sequence[int], groups: Sequence[object], width: int = 6, signal: float = 2.0) -> Rows:
    """Features that carry the label, under unit noise; logits that do not."""
    count = max(labels, default=0) + 1
    rng = np.random.default_rng(0)
    features = rng.normal(size=(len(labels), width))
    features[np.arange(len(labels)), np.array(labels) % width] += signal
    logits = np.log(rng.dirichlet(np.ones(max(count, 2)), size=len(labels)))
    return Rows(logits, features, np.array(labels, dtype=np.int64), tuple(groups))


labelled = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 25)), min_size=40, max_size=120)


@given(labelled, st.integers(1, 3))
def test_a_learning_curve_never_judges_on_a_group_that_it_was_fitted_on(pairs, repeats):
    groups = [group for _, group in pairs]
    splits = list(curve_splits(rows([label for label, _ in pairs], groups), repeats, (5, 25)))
    for train, out, _seed in splits:
        assert int(train.sum()) in (5, 25)
        assert not train[out].any()
        inside, outside = (
            {g for g, flag in zip(groups, flags, strict=True) if flag} for flags in (train, out)
        )
        assert not inside & outside


@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(0, 60), st.integers(0, 9))
def test_few_rows_are_drawn_from_the_flagged_ones_and_a_larger_draw_holds_a_smaller(flags, count, seed):
    train = np.array(flags)
    picked = few(train, count, seed)
    if picked is None:
        assert train.sum() < count
        return
    assert picked.sum() == count
    assert not (picked & ~train).any()
    more = few(train, count + 1, seed)
    assert more is None or not (picked & ~more).any()


@given(labelled)
def test_a_group_is_resampled_whole(pairs):
    groups = [group for _, group in pairs]
    for chosen in resampled(rows([0] * len(pairs), groups), 5):
        times = np.bincount(chosen, minlength=len(groups))
        for group in set(groups):
            assert len({int(times[at]) for at, one in enumerate(groups) if one == group}) == 1


def test_as_many_groups_are_drawn_as_there_are():
    for chosen in resampled(rows([0, 1] * 30, range(60)), 10):
        assert len(chosen) == 60


@pytest.mark.parametrize(
    ("share", "n", "low", "high"),
    [(1.0, 10, 0.7225, 1.0), (0.5, 100, 0.4038, 0.5962), (0.0, 10, 0.0, 0.2775), (0.9, 50, 0.7864, 0.9565)],
)
def test_wilson_s_interval_is_the_one_of_the_books(share, n, low, high):
    assert wilson(share, n) == pytest.approx((low, high), abs=1e-4)


@given(st.integers(1, 500), st.floats(0, 1))
def test_wilson_s_interval_holds_the_share(n, share):
    low, high = wilson(share, n)
    assert 0 <= low <= share + 1e-12
    assert share - 1e-12 <= high <= 1


def test_scores_are_those_of_scikit_learn():
    given_rows = rows([0, 1] * 50, range(100))
    p = np.random.default_rng(1).dirichlet([1, 1], size=100)
    found = figures_of([p], given_rows, draws=10)
    labels = given_rows.labels
    assert found["accuracy"].value == pytest.approx(accuracy_score(labels, p.argmax(axis=1)))
    assert found["nll"].value == pytest.approx(log_loss(labels, p))
    assert found["brier"].value == pytest.approx(2 * brier_score_loss(labels, p[:, 1]))
    assert found["ece"].low <= found["ece"].value <= found["ece"].high
    assert all(one.low <= one.high for one in found.values())


def test_figures_are_means_over_the_repeats():
    given_rows = rows([0, 1] * 20, range(40))
    right, wrong = np.eye(2)[given_rows.labels], np.eye(2)[1 - given_rows.labels]
    found = figures_of([right, right, right, wrong], given_rows, draws=10)
    assert found["accuracy"].value == 0.75
    assert found["brier"].value == pytest.approx(0.5)


def test_an_interval_narrows_with_more_rows_and_holds_errors_that_were_not_seen():
    few_rows, many = rows([0, 1] * 20, range(40)), rows([0, 1] * 500, range(1000))
    found = [figures_of([np.eye(2)[one.labels]], one, 20)["accuracy"] for one in (few_rows, many)]
    assert found[0].low < found[1].low < 1.0 == found[0].high == found[1].high


def test_a_readout_that_the_product_refuses_is_told_with_its_reason():
    alike = rows([0, 1] * 30, range(60))
    flat = Rows(np.full((60, 2), np.log(0.5)), alike.features, alike.labels, alike.groups)
    found = judge(flat, Method.TEMPERATURE, SMALL)
    assert found.figures == {}
    assert "temperature" in (found.refused or "")


def test_the_part_that_carries_the_label_is_found():
    carried = rows([at % 3 for at in range(120)], range(120), width=6, signal=3.0)
    found = judge_parts(Read(carried, carried, 0, ()), SMALL)
    assert set(found) == set(PARTS)
    assert found["mean of the state"].figures["accuracy"].value > 0.8
    assert found["probe"].figures["accuracy"].value < 0.6


def test_copies_of_a_row_on_both_sides_look_better_than_they_are():
    noise = rows([at % 2 for at in range(120)], [at // 2 % 30 for at in range(120)], signal=0.0)
    copies = np.random.default_rng(1).normal(size=(120, 6))[[at % 60 for at in range(120)]]
    told = replace(noise, features=copies, groups=tuple(at % 60 for at in range(120)))
    honest = judge(told, Method.HEAD, SMALL).figures["nll"].value
    assert judge_parts(Read(told, told, 0, ()), SMALL)[SPREAD].figures["nll"].value < honest


def test_more_labels_make_a_better_head_and_counts_out_of_reach_are_left_out():
    found = learning_curve(rows([at % 3 for at in range(120)], range(120)), SMALL)
    assert [point.labels for point in found] == [25, 50]
    assert found[0].nll > found[1].nll


def test_rows_beyond_those_asked_by_text_are_read_by_the_fast_trunk_alone():
    engine, found = FakeEngine(), a_few_mails()
    fast = read_set(engine, Tier.FAST, found, None, lambda _done, _total: None)
    assert (len(fast.text.labels), len(fast.trunk.labels), fast.too_long) == (40, ROWS, 0)
    assert [len(call[0].questions) for call in engine.calls] == [1] * 40 + [0] * 20
    deep = read_set(FakeEngine("deep"), Tier.DEEP, found, None, lambda _done, _total: None)
    assert (len(deep.text.labels), len(deep.trunk.labels)) == (40, 40)


def test_a_row_that_is_too_long_is_counted():
    found = a_few_prompts()
    long = replace(found.rows[0], state="word " * 3000)
    read = read_set(
        FakeEngine(), Tier.FAST, replace(found, rows=(long, *found.rows[1:])), None, lambda _d, _t: None
    )
    assert (read.too_long, len(read.trunk.labels), len(read.kinds)) == (1, ROWS - 1, ROWS - 1)


def test_each_row_keeps_its_kind():
    found = a_few_mails()
    read = read_set(FakeEngine(), Tier.FAST, found, None, lambda _done, _total: None)
    assert set(read.kinds) == {"spam-1", "easy-ham-1"}
    assert [kind == "spam-1" for kind in read.kinds] == [label == YES for label in read.trunk.labels]


def test_the_share_that_is_right_is_told_by_kind():
    judged = Judged(4, 2, {}, np.array([1.0, 0.5, 0.0, 0.0]))
    assert by_kind(judged, ["a", "a", "b", ""]) == {"a": Kind(2, 0.75), "b": Kind(1, 0.0)}
    assert by_kind(replace(judged, right=None, refused="why"), ["a"] * 4) == {}


@settings(max_examples=10)
@given(st.integers(1, ROWS))
def test_a_run_that_was_stopped_goes_on_where_it_was(tmp_path_factory, stop):
    cache, found = tmp_path_factory.mktemp("readings"), a_few_mails()
    stopped = FakeEngine(effects={stop: DecodeFailed("stopped")})
    with pytest.raises(DecodeFailed):
        read_set(stopped, Tier.FAST, found, cache, lambda _done, _total: None)
    going_on = FakeEngine()
    resumed = read_set(going_on, Tier.FAST, found, cache, lambda _done, _total: None)
    assert len(going_on.calls) == ROWS - (stop - 1)
    whole = read_set(FakeEngine(), Tier.FAST, found, None, lambda _done, _total: None)
    for one, other in ((resumed.text, whole.text), (resumed.trunk, whole.trunk)):
        assert np.array_equal(one.features, other.features)
        assert np.array_equal(one.logits, other.logits, equal_nan=True)
        assert (one.labels == other.labels).all()
        assert one.groups == other.groups
    idle = FakeEngine()
    read_set(idle, Tier.FAST, found, cache, lambda _done, _total: None)
    assert not idle.calls


def unreachable(_cache: Path) -> list[DataSet]:
    raise SetMissing("no npm on PATH")


@pytest.fixture
def fakes(monkeypatch, tmp_path):
    """The program with small sets, one of which can't be had, and models that answer at once."""
    made = [a_few_prompts(), a_few_texts(), a_few_mails()]
    loaders = {one.name: lambda _cache, one=one: [one] for one in made} | {"lost": unreachable}
    monkeypatch.setattr(quality, "sources", lambda _demo, _tasks: loaders)
    engines = {Tier.FAST: FakeEngine("fast"), Tier.DEEP: FakeEngine("deep")}
    monkeypatch.setattr(
        quality, "_engines", lambda _options: {tier: lambda one=one: one for tier, one in engines.items()}
    )

    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["quality.py", "--cache", str(tmp_path), *arguments])
        return quality.main()

    run.engines = engines
    return run


def test_a_quick_run_prints_every_key(fakes, capsys):
    assert fakes("--quick", "--json") == 0
    out, err = capsys.readouterr()
    told = json.loads(out.splitlines()[-1])
    assert out.count("\n") == 1
    assert set(told["sets"]) == {"bastion", "jevbench", "spam"}
    for tiers in told["sets"].values():
        assert set(tiers) == {"fast", "deep"}
        for readouts in tiers.values():
            assert set(readouts) == set(READOUTS)
            for one in readouts.values():
                assert {"n", *FIGURES} <= set(one)
                assert one["n"] == quality.QUICK_ROWS
                assert ("refused" in one) == (one["accuracy"] is None)
    assert told["missing"] == {"lost": "no npm on PATH"}
    assert told["quick"] is True
    assert "trunk_head" in told["head"]
    assert "| spam | fast | trunk_head | 30 |" in err
    assert all(engine.closed for engine in fakes.engines.values())


def test_a_whole_run_has_curves_and_parts(fakes, capsys, monkeypatch):
    monkeypatch.setattr(quality, "WHOLE", SMALL)
    assert fakes("--json", "--sets", "spam") == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(told["curves"]["spam"]["fast"]) == {str(count) for count in CURVE if count <= ROWS * 0.8}
    assert set(told["kinds"]["spam"]["fast"]) == {"spam-1", "easy-ham-1"}
    assert set(told["parts"]["spam"]["deep"]) >= {"mean of the state", "probe"}
    assert told["sets"]["spam"]["fast"]["trunk_head"]["n"] == ROWS
    assert told["sets"]["spam"]["fast"]["raw"]["n"] == 40
    assert told["missing"] == {}


def test_without_json_the_tables_are_on_stdout(fakes, capsys):
    assert fakes("--quick", "--sets", "bastion") == 0
    out, _err = capsys.readouterr()
    assert "| bastion | deep | raw | 30 |" in out


def test_an_unknown_set_is_one_clear_line(fakes, capsys):
    assert fakes("--sets", "nonsense") == 1
    assert capsys.readouterr().err == (
        "benchmarks/quality.py: no set 'nonsense': there are bastion, jevbench, spam, lost\n"
    )


def test_a_failing_model_is_one_line_and_an_exit_code(fakes, capsys):
    fakes.engines[Tier.FAST].effects = {3: DecodeFailed("the model call returned 1")}
    assert fakes("--quick", "--sets", "bastion") == DecodeFailed.exit_code
    assert "benchmarks/quality.py: the model call returned 1" in capsys.readouterr().err


def test_an_interrupt_ends_quietly(fakes):
    fakes.engines[Tier.FAST].effects = {3: KeyboardInterrupt()}
    assert fakes("--quick", "--sets", "bastion") == 130


def test_nothing_measured_is_no_table():
    assert tables({}) == ""


def test_quick_is_less_work_than_the_whole():
    assert QUICK.repeats < quality.WHOLE.repeats
    assert QUICK.draws < quality.WHOLE.draws
    assert [quality.WHOLE.repeats_of(n) for n in (180, 650, 5000)] == [10, 3, 1]
    assert [QUICK.repeats_of(n) for n in (40, 650)] == [2, 2]
