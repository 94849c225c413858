"""Bringing a model into memory: locked where allowed, warm, sound, and told step by step."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from coolhead.errors import ModelCorrupt, ModelMissing
from coolhead.policy import Tier
from coolhead_worker.assembly import Readiness
from coolhead_worker.clock import ManualClock, SystemClock
from coolhead_worker.engine.fake import FakeEngine
from coolhead_worker.engine.goldens import SHIPPED, load_goldens, record
from coolhead_worker.engine.llama_engine import LlamaEngine
from coolhead_worker.engine.modelfile import ModelFile
from coolhead_worker.engine.selfcheck import Golden, Verdict
from coolhead_worker.loading import (
    MIB,
    Loader,
    LoadOrder,
    Progress,
    backend_of,
    failed,
    lock_request,
    refused,
    subject_of,
    weights_size,
)
from coolhead_worker.metrics import Metrics
from coolhead_worker.model_report import ModelReporter
from coolhead_worker.models import DemoModels
from coolhead_worker.selfcheck_command import selfcheck
from coolhead_worker.settings import load_settings
from tests.engine.decision.packages import write_package

GIB = 1 << 30
OTHER = Golden("ff" * 32, "another / model / 1", "plan", "", (((0.0,),),))


@pytest.mark.parametrize(
    ("size", "available", "asked", "lock", "says"),
    [
        (2 * GIB, 8 * GIB, True, True, ""),
        (4 * GIB, 8 * GIB, True, True, ""),
        (5 * GIB, 8 * GIB, True, False, "its 5120 MiB are more than half of the 8192 MiB that are free"),
        (5 * GIB, 8 * GIB, False, False, ""),
        (0, 0, True, True, ""),
    ],
)
def test_a_lock_is_asked_for_when_it_leaves_half_of_the_free_memory(
    size: int, available: int, asked: bool, lock: bool, says: str
) -> None:
    assert lock_request(size, available, asked=asked) == (lock, says)


@pytest.mark.parametrize(
    ("size", "limit", "says"),
    [
        (
            258 * MIB,
            8 * MIB,
            "it takes 259 MiB, RLIMIT_MEMLOCK is 8 MiB: raise it (ulimit -l, LimitMEMLOCK=)",
        ),
        (258 * MIB, -1, "the system refused to lock 259 MiB"),  # no limit on Linux
        (258 * MIB, 2**63 - 1, "the system refused to lock 259 MiB"),  # no limit on macOS
    ],
)
def test_a_refused_lock_is_one_line_with_the_number_that_is_needed(size: int, limit: int, says: str) -> None:
    said = refused(size, limit)
    assert said.startswith(says)
    assert said.endswith("mlock = false")
    assert "\n" not in said


def test_the_size_that_counts_is_that_of_the_weights(tmp_path: Path) -> None:
    file, package = tmp_path / "model.gguf", write_package(tmp_path / "package")
    file.write_bytes(b"x" * 100)
    assert weights_size(ModelFile(file, None, "")) == 100
    assert weights_size(ModelFile(package, None, "")) == (package / "model.gguf").stat().st_size > 0
    assert weights_size(ModelFile(tmp_path / "gone.gguf", None, "")) == 0


def test_a_long_load_is_told_every_few_seconds_and_a_short_one_not_at_all() -> None:
    clock, told = ManualClock(), []
    progress = Progress(clock, told.append)
    for step in range(101):
        progress(step / 100)
        clock.advance(0.02)
    assert told == []
    for step in range(101):
        progress(step / 100)
        clock.advance(0.1)
    assert len(told) == 3  # in 12 s
    assert told == sorted(told)


@pytest.mark.parametrize(("pin", "hints"), [(None, True), ("aa" * 32, False)])
@pytest.mark.parametrize("golden", [True, False])
def test_a_failed_check_says_what_to_do(pin: str | None, hints: bool, golden: bool) -> None:
    file = ModelFile(Path("model.gguf"), pin, "m")
    said = failed(file, Verdict(passed=False, golden=golden, reason="its numbers are not finite"))
    assert said.startswith("model.gguf: the model fails its self-check: its numbers are not finite: fetch")
    assert ("pin its sha256" in said) == (hints and golden)


@pytest.mark.parametrize(
    ("plan", "backend"), [("v2.cpu-1.x", "cpu"), ("v2.metal-1.x", "metal"), ("v2.gpu-1.x", "gpu")]
)
def test_the_backend_is_what_the_plan_says(plan: str, backend: str) -> None:
    assert backend_of(FakeEngine(plan=plan)) == backend


def test_readiness_is_the_step_at_hand_then_ready_then_for_good_why_not() -> None:
    ready = Readiness()
    assert ready() == (False, "starting")
    ready.waiting_for("warming up the fast model")
    assert ready() == (False, "warming up the fast model")
    ready.done()
    ready.waiting_for("loading the deep model")  # again, later: the fast one serves
    assert ready() == (True, "ready")
    ready.broken("the fast model is damaged")
    assert ready() == (False, "the fast model is damaged")


class Desk:
    """A loader with its metrics and what it told."""

    def __init__(self, file: ModelFile, cache: Path | None = None, **order: object) -> None:
        self.metrics, self.steps = Metrics(CollectorRegistry()), []
        known = LoadOrder(threads=1, mlock=False, golden=(), cache=cache)
        self.load = Loader(
            Tier.FAST,
            file,
            replace(known, **order),
            SystemClock(),
            ModelReporter(self.metrics),
            self.steps.append,
        )  # type: ignore[arg-type]

    def value(self, name: str, **labels: str) -> float:
        return (
            self.metrics.registry.get_sample_value(f"coolhead_model_{name}", {"tier": "fast"} | labels) or 0.0
        )


@pytest.fixture(scope="module")
def known_fast(
    fast: LlamaEngine, demo_models: DemoModels, tmp_path_factory: pytest.TempPathFactory
) -> list[Golden]:
    """The fast model's numbers, recorded now."""
    path = tmp_path_factory.mktemp("golden") / "golden.json"
    record(fast, subject_of(fast, demo_models.fast), path)
    return load_goldens(path)


@pytest.fixture
def spoilt(demo_models: DemoModels, tmp_path: Path) -> Iterator[ModelFile]:
    """The fast model, not pinned, with the sign bits of 524,288 weights flipped."""
    data = np.fromfile(demo_models.fast.path, dtype=np.uint8)
    middle = len(data) // 4 * 2
    data[middle + 1 : middle + (1 << 20) : 2] ^= 0x80  # the high byte of a bfloat16 is its second
    path = tmp_path / "spoilt.gguf"
    data.tofile(path)
    yield ModelFile(path, None, "SmolLM2")
    path.unlink()


@pytest.mark.model
@pytest.mark.parametrize("tier", ["fast", "deep"])
def test_the_demo_models_pass_against_the_shipped_goldens(demo_models: DemoModels, tier: str) -> None:
    desk = Desk(getattr(demo_models, tier), golden=load_goldens(SHIPPED))
    desk.load().close()
    assert desk.value("self_checks_total", result="golden") == 1, "record them anew: see docs/runbook.md"


@pytest.mark.model
def test_a_model_whose_weights_were_flipped_is_refused_without_a_pin(
    spoilt: ModelFile, known_fast: list[Golden], tmp_path: Path
) -> None:
    desk = Desk(spoilt, tmp_path, golden=known_fast)
    with pytest.raises(ModelCorrupt, match=r"self-check: probabilities differ by .*pin its sha256"):
        desk.load()
    assert desk.value("loaded") == 0


@pytest.mark.model
def test_without_known_numbers_a_flipped_model_is_only_held_against_itself(
    spoilt: ModelFile, tmp_path: Path
) -> None:
    desk = Desk(spoilt, tmp_path)
    desk.load().close()
    assert desk.load.verdict == Verdict(passed=True, golden=False, moved=0.0)  # the same, to the bit
    assert desk.value("self_checks_total", result="structural") == 1


@pytest.mark.model
def test_a_model_is_loaded_then_warmed_then_checked_and_counted(
    demo_models: DemoModels, known_fast: list[Golden]
) -> None:
    desk = Desk(demo_models.fast, golden=known_fast)
    engine = desk.load()
    engine.close()
    assert desk.steps == ["loading the fast model", "warming up the fast model", "checking the fast model"]
    assert desk.value("loaded") == 1
    assert desk.value("load_duration_seconds") > 0
    assert desk.value("warmup_duration_seconds") > 0
    assert desk.value("self_checks_total", result="golden") == 1


@pytest.mark.model
def test_a_lock_is_shown_or_refused_in_one_line(
    demo_models: DemoModels, known_fast: list[Golden], caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(demo_models.fast, mlock=True, golden=known_fast)
    desk.load().close()
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    if desk.value("locked"):
        assert lines == []
    else:
        assert len(lines) == 1
        assert "not locked into memory" in lines[0]


@pytest.mark.model
def test_a_golden_file_that_says_nothing_of_the_model_is_told(
    demo_models: DemoModels, known_fast: list[Golden], caplog: pytest.LogCaptureFixture
) -> None:
    Desk(demo_models.fast, golden=[*known_fast, OTHER], own=[OTHER]).load().close()
    assert "no golden in the file given fits the fast model" in caplog.text


@pytest.mark.model
def test_a_model_that_fails_its_check_does_not_stay_in_memory(
    demo_models: DemoModels, known_fast: list[Golden]
) -> None:
    wrong = [replace(one, logits=((one.logits[0][0],) * 3,) * 3) for one in known_fast]
    desk = Desk(demo_models.fast, golden=wrong)
    with pytest.raises(ModelCorrupt, match="fails its self-check"):
        desk.load()
    assert desk.value("loaded") == 0
    assert desk.value("self_checks_total", result="failed") == 1


@pytest.mark.model
def test_a_model_of_ones_own_is_recorded_once_and_known_from_then_on(
    demo_models: DemoModels, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    golden = tmp_path / "golden.json"
    flags = {"fast": {"path": demo_models.fast.path}, "threads": 1}
    selfcheck(load_settings(flags, None, {}), golden)
    assert capsys.readouterr().out.endswith(f"recorded in {golden}\n")
    selfcheck(load_settings(flags | {"golden": golden}, None, {}), None)
    tier, model, passed = capsys.readouterr().out.split("\t")
    assert (tier, model) == ("fast", f"{demo_models.fast.path.stem}@{demo_models.fast.verify()[:12]}")
    assert passed.startswith("passed (golden, moved ")


def test_a_missing_file_is_told_before_anything_is_warmed(tmp_path: Path) -> None:
    desk = Desk(ModelFile(tmp_path / "no.gguf", None, "m"), tmp_path, mlock=True)
    with pytest.raises(ModelMissing, match=r"(?i)no such file"):
        desk.load()
    assert desk.steps == ["loading the fast model"]
