"""Quality: every key is told, every row keeps its kind, a stopped run goes on."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import quality
from datasets import YES, DataSet, bastion, jevbench, spam
from hypothesis import given, settings
from hypothesis import strategies as st
from quality_fetch import SetMissing
from quality_reading import read_set
from quality_scoring import (
    CURVE,
    FIGURES,
    QUICK,
    READOUTS,
    Effort,
    Judged,
    Kind,
    by_kind,
)
from quality_table import tables

from coolhead.errors import DecodeFailed
from coolhead.policy import Tier
from coolhead_worker.engine.fake import FakeEngine
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
