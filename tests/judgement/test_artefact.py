"""A fit comes back as it was written, or not at all."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from pathlib import Path

import numpy as np
import pytest

from coolhead.answers import Method
from coolhead.errors import FitMismatch
from coolhead.policy import Thresholds, Tier
from coolhead.task import Task, TaskBook
from coolhead_worker.engine.fake import FakeEngine
from coolhead_worker.engine.protocol import PinnedSet, PlanKind
from coolhead_worker.judgement.artefact import FitBook, read_fit, write_fit
from coolhead_worker.judgement.calibration import Head, Raw, Temperature, TemperatureBias
from coolhead_worker.judgement.fitted import Certified, Limits, Route
from coolhead_worker.judgement.record import (
    CertificateRecord,
    EngineRecord,
    FitRecord,
    QuestionRecord,
    RouteRecord,
    RowsRecord,
)

ENGINES = {Tier.FAST: FakeEngine("small"), Tier.DEEP: FakeEngine("large")}
NOUL = {"type": "noul", "instructions": "Is it?"}
TASK = Task.build({"name": "t", "questions": {"t": NOUL, "tb": NOUL, "h": NOUL}})
TASKS = TaskBook({"t": TASK})
RNG = np.random.default_rng(0)
HEAD = Head(RNG.normal(size=(2, 16)), RNG.normal(size=2), RNG.normal(size=16), RNG.uniform(0.5, 2, 16))
GIVEN = Route(forced=False, limits=Limits(Thresholds(accept_below=0.1), closed=True))


def question(name: str, tier: Tier, method: Method, *, pinned: bool = False, **more) -> QuestionRecord:
    text = PlanKind.PINNED if pinned else PlanKind.ISOLATED
    plan = PlanKind.TRUNK if method is Method.HEAD else text
    values = {
        "id": name,
        "type": "noul",
        "fingerprint": hashlib.sha256(name.encode()).hexdigest()[:32],
        "labels": ("yes", "no"),
        "tier": tier,
        "plan": plan,
        "plan_id": ENGINES[tier].plan_id(plan, PinnedSet(TASK.questions.root)),
        "method": method,
        "rows_fit": 60,
        "rows_threshold": 40,
        "rows_reaching": 40,
        "candidates": (),
        "why": "because",
        "scores": None,
        "min_mass": 0.0,
        "certificates": (),
        "given": None,
        "guarantee": "none",
        "warnings": (),
    }
    return QuestionRecord(**{**values, **more})


QUESTIONS = (
    question("raw", Tier.FAST, Method.RAW),
    question("t", Tier.FAST, Method.TEMPERATURE, pinned=True, temperature=1.7),
    question("tb", Tier.FAST, Method.TEMPERATURE_BIAS, temperature=0.1 + 0.2, bias=(0.1, -0.1)),
    question("h", Tier.FAST, Method.HEAD, strength=0.1),
    question(
        "h",
        Tier.DEEP,
        Method.HEAD,
        min_mass=0.2,
        given=RouteRecord.of(GIVEN),
        certificates=(
            CertificateRecord(side="accept_below", alpha=0.1, delta=0.05, threshold=0.2),
            CertificateRecord(side="accept_above", alpha=0.1, delta=0.05, needs_about=7),
        ),
    ),
)


def record(**more) -> FitRecord:
    values = {
        "fitted_at": "2026-01-01T00:00:00+00:00",
        "tool": "coolhead 0",
        "task": "t",
        "seed": 0,
        "alpha": 0.1,
        "delta": 0.1,
        "label_files": (),
        "rows": RowsRecord(fit=60, threshold=40, held_out=0),
        "engines": {
            tier: EngineRecord(
                name=engine.name,
                sha256=engine.digest,
                features_digest=engine.features_digest,
            )
            for tier, engine in ENGINES.items()
        },
        "heads_sha256": "",
        "questions": QUESTIONS,
        "warnings": (),
    }
    return FitRecord(**{**values, **more})


HEADS = {(Tier.FAST, QUESTIONS[3].fingerprint): HEAD, (Tier.DEEP, QUESTIONS[4].fingerprint): HEAD}


@pytest.fixture
def folder(tmp_path) -> Path:
    write_fit(tmp_path / "fit", record(), HEADS)
    return tmp_path / "fit"


def load(folder: Path, engines=ENGINES, tasks=TASKS, **more) -> FitBook:
    return FitBook.load([folder], engines, tasks, **more)


def find(book: FitBook, at: int):
    """The entry for a job of the task."""
    pinned = ENGINES[QUESTIONS[at].tier].plan_id(PlanKind.PINNED, PinnedSet(TASK.questions.root))
    return book.find(QUESTIONS[at].fingerprint, QUESTIONS[at].tier, pinned)


def test_calibrators_come_back_bit_for_bit(folder):
    book = load(folder)
    assert len(book) == 5
    assert find(book, 0).calibrator == Raw()
    assert find(book, 1).calibrator == Temperature(1.7)
    biased = find(book, 2).calibrator
    assert isinstance(biased, TemperatureBias)
    assert biased.t == 0.1 + 0.2
    assert np.array_equal(biased.bias, [0.1, -0.1])
    for at in (3, 4):
        head = find(book, at).calibrator
        assert isinstance(head, Head)
        for part in ("weight", "bias", "mean", "scale"):
            assert np.array_equal(getattr(head, part), getattr(HEAD, part))
            assert getattr(head, part).dtype == np.float64


def test_certificates_and_the_route_come_back(folder):
    written, _ = read_fit(folder)
    entry = find(load(folder), 4)
    assert entry.certified == Certified(accept_below=0.2, min_mass=0.2)
    assert entry.given == Route(forced=False, limits=GIVEN.limits, fit=written.fit)
    assert entry.fit == written.fit
    assert find(load(folder), 3).given is None


def test_the_id_changes_with_everything_but_the_time():
    base = record().identified().fit
    assert len(base) == 12
    assert record(fitted_at="2027-01-01T00:00:00+00:00").identified().fit == base
    for change in ({"seed": 1}, {"task": "u"}, {"heads_sha256": "x"}, {"questions": QUESTIONS[:4]}):
        assert record(**change).identified().fit != base


def test_a_question_or_tier_without_an_entry_is_not_found(folder):
    book = load(folder)
    assert book.find(QUESTIONS[0].fingerprint, Tier.DEEP) is None
    assert book.find("0" * 32, Tier.FAST) is None
    assert len(FitBook()) == 0


def test_a_node_without_a_deep_tier_uses_the_fast_entries(folder):
    book = load(folder, {Tier.FAST: ENGINES[Tier.FAST]})
    assert find(book, 3) is not None
    assert find(book, 4) is None


ENGINE_MISMATCHES = [
    (Tier.FAST, FakeEngine("other"), "fast tier: model sha256"),
    (Tier.DEEP, FakeEngine("other"), "deep tier: model sha256"),
    (
        Tier.FAST,
        FakeEngine("small", plan="fake-v2"),
        "plan trunk fake-v1.trunk in the fit, fake-v2.trunk here: fit again",
    ),
    (
        Tier.FAST,
        FakeEngine("small", plan="fake-v2"),
        "fast tier: plan isolated fake-v1.isolated in the fit, fake-v2.isolated here; plan pinned ",
    ),
    (
        Tier.DEEP,
        FakeEngine("large", plan="fake-v2"),
        "deep tier: plan trunk fake-v1.trunk in the fit, fake-v2.trunk here: fit again",
    ),
    (Tier.FAST, FakeEngine("small", feature_count=8), "fast tier: features"),
]


@pytest.mark.parametrize(("tier", "engine", "what"), ENGINE_MISMATCHES)
def test_another_engine_is_refused_with_what_differs(folder, tier, engine, what):
    with pytest.raises(FitMismatch) as caught:
        load(folder, {**ENGINES, tier: engine})
    assert what in str(caught.value)
    assert str(caught.value).startswith("fit: ")
    assert str(folder.parent) not in str(caught.value)


@pytest.mark.parametrize(("tier", "engine", "what"), ENGINE_MISMATCHES)
def test_a_lenient_book_leaves_only_that_tier_out_and_says_so(folder, caplog, tier, engine, what):
    with caplog.at_level(logging.WARNING, "coolhead.judgement"):
        book = load(folder, {**ENGINES, tier: engine}, lenient=True)
    assert (find(book, 3) is None) == (tier is Tier.FAST)
    assert (find(book, 4) is None) == (tier is Tier.DEEP)
    assert what in caplog.text


def edit(folder: Path, change, *, seal: bool = False) -> None:
    """Change fit.json by hand; `seal` fills in a matching id, as a careless tool would."""
    raw = json.loads((folder / "fit.json").read_text())
    change(raw)
    if seal:
        raw["fit"] = FitRecord.model_validate(raw).expected_id()
    (folder / "fit.json").write_text(json.dumps(raw))


def cut(name: str, keep: float):
    def damage(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: int(len(data) * keep)])

    return damage


def flip(folder: Path) -> None:
    data = bytearray((folder / "heads.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "heads.safetensors").write_bytes(data)


def reseal_heads(folder: Path, data: bytes) -> None:
    (folder / "heads.safetensors").write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    edit(folder, lambda raw: raw.update(heads_sha256=digest), seal=True)


def first_question(**values):
    return lambda raw: raw["questions"][1].update(values)


DAMAGE = [
    ("no fit.json", lambda f: (f / "fit.json").unlink(), "No such file"),
    ("no heads", lambda f: (f / "heads.safetensors").unlink(), "No such file"),
    ("no folder", shutil.rmtree, "No such file"),
    ("fit.json cut short", cut("fit.json", 0.5), "cut short or not JSON"),
    ("fit.json empty", cut("fit.json", 0), "cut short or not JSON"),
    ("fit.json is a list", lambda f: (f / "fit.json").write_text("[]"), "format 'None'"),
    ("fit.json is not UTF-8", lambda f: (f / "fit.json").write_bytes(b"\xff"), "cut short or not JSON"),
    (
        "the old format",
        lambda f: edit(f, lambda raw: raw.update(format="coolhead-fit/1")),
        "format 'coolhead-fit/1' is not coolhead-fit/2: fit again",
    ),
    ("a later format", lambda f: edit(f, lambda raw: raw.update(format="coolhead-fit/3")), "coolhead-fit/3"),
    (
        "a head that says it reads text",
        lambda f: edit(f, lambda raw: raw["questions"][3].update(plan="isolated")),
        "head does not read by the plan isolated",
    ),
    (
        "a temperature that says it reads the trunk",
        lambda f: edit(f, first_question(plan="trunk")),
        "temperature does not read by the plan trunk",
    ),
    ("an unknown plan", lambda f: edit(f, first_question(plan="rotated")), "plan"),
    ("a threshold by hand", lambda f: edit(f, first_question(temperature=1.8)), "was edited"),
    ("a question gone", lambda f: edit(f, lambda raw: raw["questions"].pop()), "was edited"),
    ("a field too many", lambda f: edit(f, lambda raw: raw.update(extra=1)), "extra"),
    ("a field gone", lambda f: edit(f, lambda raw: raw.pop("seed")), "seed"),
    ("heads cut short", cut("heads.safetensors", 0.9), "not the file that was fitted"),
    ("heads empty", cut("heads.safetensors", 0), "not the file that was fitted"),
    ("one bit of the heads", flip, "not the file that was fitted"),
    ("sealed heads that do not parse", lambda f: reseal_heads(f, b"x" * 40), "heads.safetensors:"),
    (
        "sealed without its temperature",
        lambda f: edit(f, first_question(temperature=None), seal=True),
        "question 't': no temperature",
    ),
    (
        "sealed with a temperature of 0",
        lambda f: edit(f, first_question(temperature=0.0), seal=True),
        "question 't': a temperature",
    ),
    (
        "sealed with too many biases",
        lambda f: edit(f, lambda raw: raw["questions"][2].update(bias=[1, 2, 3]), seal=True),
        "question 'tb': 3 biases",
    ),
    (
        "sealed with a head for other options",
        lambda f: edit(f, lambda raw: raw["questions"][3].update(labels=["a", "b", "c"]), seal=True),
        "question 'h': a head for 2 options, the question has 3",
    ),
    (
        "sealed with the head of another question",
        lambda f: edit(f, lambda raw: raw["questions"][3].update(fingerprint="0" * 32), seal=True),
        "question 'h'",
    ),
]


@pytest.mark.parametrize(("name", "damage", "what"), DAMAGE, ids=[d[0] for d in DAMAGE])
def test_a_damaged_fit_is_refused_in_one_line(folder, caplog, name, damage, what):
    damage(folder)
    with pytest.raises(FitMismatch) as caught:
        load(folder)
    assert what in str(caught.value)
    assert "\n" not in str(caught.value)
    with caplog.at_level(logging.WARNING, "coolhead.judgement"):
        assert len(load(folder, lenient=True)) == 0
    assert what in caplog.text


def test_a_damaged_fit_does_not_hide_the_others(tmp_path):
    write_fit(tmp_path / "a", record(), HEADS)
    write_fit(tmp_path / "b", record(), HEADS)
    flip(tmp_path / "a")
    assert len(FitBook.load([tmp_path / "a", tmp_path / "b"], ENGINES, TASKS, lenient=True)) == 5


def test_a_folder_of_fits_is_read_whole_and_the_later_counts(tmp_path):
    write_fit(tmp_path / "a", record(), HEADS)
    second = write_fit(tmp_path / "b", record(seed=1, questions=QUESTIONS[:1]), {})
    book = load(tmp_path)
    assert find(book, 0).fit == second.fit
    assert find(book, 1).fit != second.fit
    assert [one.seed for one in book.records] == [0, 1]


def test_an_empty_folder_is_no_fit(tmp_path):
    with pytest.raises(FitMismatch, match=r"fit\.json"):
        load(tmp_path)


def test_writing_again_replaces_the_fit(folder):
    write_fit(folder, record(seed=1, questions=QUESTIONS[:1]), {})
    assert len(load(folder)) == 1
    assert sorted(path.name for path in folder.iterdir()) == ["fit.json", "heads.safetensors"]


def test_a_fit_stopped_between_its_two_files_is_refused(folder, tmp_path):
    other = write_fit(tmp_path / "other", record(seed=1, questions=QUESTIONS[:1]), {})
    shutil.copy(tmp_path / "other" / "heads.safetensors", folder)  # the new heads, the old fit.json
    assert other.fit
    with pytest.raises(FitMismatch, match="not the file that was fitted"):
        load(folder)


def test_a_fit_without_heads_has_an_empty_file_of_heads(tmp_path):
    write_fit(tmp_path / "fit", record(questions=QUESTIONS[:3]), {})
    assert len(load(tmp_path / "fit")) == 3
