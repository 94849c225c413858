"""Packages exported from SmolLM2 pass NoulXP's own check when this engine answers.

The exporter, the model's "own code" that writes the expected answers and the check are NoulXP's. Every
case takes seconds, so a dozen of its 52 are asked; `COOLHEAD_TEST_CONFORMANCE=all` asks all of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from coolhead.answers import Status
from coolhead.errors import ContractError, StateTooLong
from coolhead.job import Job
from coolhead.policy import Tier
from coolhead.questions import Noul, Question, Questions
from coolhead.task import TaskBook
from coolhead_worker.clock import SystemClock
from coolhead_worker.engine.decision.fold import softmax
from coolhead_worker.engine.decision.package import open_package
from coolhead_worker.engine.decision.wording import state_text
from coolhead_worker.engine.llama_engine import LlamaEngine
from coolhead_worker.engine.modelfile import ModelFile
from coolhead_worker.engine.protocol import EvalItem, Evaluation
from coolhead_worker.judgement.artefact import FitBook
from coolhead_worker.judgement.judge import Judge, Judged, JudgeItem
from coolhead_worker.loading import Loader, LoadOrder
from coolhead_worker.metrics import Metrics
from coolhead_worker.model_report import ModelReporter
from tests.engine.decision.packages import TokenizerFile, export_listed, export_typed, requests

pytestmark = [pytest.mark.model, pytest.mark.timeout(1800), pytest.mark.usefixtures("noulxp")]

# All types, letters up to 20 options, 2 and 5 levels, an emoji, an empty and a reserved state, Spanish.
CHOSEN = ("r01", "r04", "r05", "r11", "r15", "r19", "r20", "r21", "r22", "r37", "r50", "r51")


class Ours:
    """What NoulXP's check asks of a runtime, answered by our engine over the folder of a package."""

    load_ms = 0.0

    def __init__(self, folder: Path) -> None:
        self.engine = LlamaEngine(
            ModelFile(folder, None, ""), threads=1, max_state_tokens=8192, cache=folder.parent
        )
        self._form = open_package(folder).prompt.state

    def describe(self) -> dict[str, Any]:
        return {"backend": "coolhead"}

    def distributions(self, state: Any, questions: dict[str, Any]) -> tuple[list[Any], dict[str, int]]:
        from noulxp.errors import RequestError
        from noulxp.request import parse_questions

        try:
            asked = Questions.parse(questions).root
            item = EvalItem(state_text(self._form, state), asked, trunk=False)
            (said,) = self.engine.evaluate([item], 300.0)
        except ContractError as refusal:
            raise RequestError(str(refusal)) from None
        if isinstance(said, StateTooLong):
            raise RequestError(str(said))
        return [
            (theirs, in_their_order(asked[theirs.id], self._answer(asked[theirs.id], said, theirs.id)))
            for theirs in parse_questions(questions)
        ], {"input_tokens": 0}

    def _answer(self, question: Question, said: Evaluation, name: str) -> list[float]:
        temperature = self.engine.temperature(question)
        assert temperature is not None
        answer: list[float] = softmax(said.readouts[name].logits, temperature).tolist()
        return answer

    def close(self) -> None:
        self.engine.close()


def in_their_order(question: Question, answer: list[float]) -> list[float]:
    return answer[::-1] if isinstance(question, Noul) else answer


@pytest.fixture(scope="module")
def listed(noulxp: None, half: Path, tmp_path_factory) -> Iterator[Path]:
    folder: Path = tmp_path_factory.mktemp("listed")
    package = export_listed(half, folder, isolated=True)
    expect(package, folder / "checkpoint")
    yield package
    (package / "model.gguf").unlink()


def expect(package: Path, checkpoint: Path) -> None:
    """Let the model's own code answer, as `noulxp conformance generate` does."""
    from noulxp import conformance
    from noulxp.native import NativeModel, decider

    with pytest.MonkeyPatch.context() as patch:
        # It would load its tokenizer with transformers, which reads the same file.
        config = json.loads((checkpoint / "decider_config.json").read_text())
        prompter = decider.Prompter(TokenizerFile(checkpoint / "tokenizer.json"))
        patch.setattr(decider, "load_prompter", lambda _folder: (prompter, config))
        own = decider.Decider(checkpoint, threads=1)
    every = os.environ.get("COOLHEAD_TEST_CONFORMANCE") == "all"
    chosen = [
        one for one in conformance.read_jsonl(conformance.DEFAULT_REQUESTS) if every or one["id"] in CHOSEN
    ]
    native = NativeModel("decider", own.system_one, own.close)
    conformance.generate(package, native, chosen, log=lambda _line: None)
    native.close()


def test_the_check_of_noulxp_passes_within_its_tolerance(listed: Path) -> None:
    from noulxp import conformance
    from noulxp.package import open_package as open_theirs
    from noulxp.validate import validate_package

    # With a dozen cases the file says less than NoulXP asks of a published one; nothing else is amiss.
    assert [said for said in validate_package(listed) if "coverage below the minimum" not in said] == []
    ours = Ours(listed)
    theirs = open_theirs(listed)
    report = conformance.replay(theirs, ours, device="cpu", threads=1, problems=theirs.verify())
    ours.close()
    assert report["passed"], json.dumps(report["failures"], indent=1)
    assert report["tolerance"]["max_abs_dp"] == 0.01
    assert report["max_abs_dp"] < 0.01
    assert report["questions"] >= 18


def test_a_package_serves_under_its_own_name_with_its_author_s_temperatures(listed: Path) -> None:
    from noulxp.package import open_package as open_theirs
    from noulxp.runtime import load

    loader = Loader(
        Tier.FAST,
        ModelFile(listed, None, ""),
        LoadOrder(threads=1, mlock=False, golden=(), cache=listed.parent),
        SystemClock(),
        ModelReporter(Metrics(CollectorRegistry())),
    )
    engine = loader()  # warm, and passed by its self-check
    judge = Judge(engine, None, FitBook(()), TaskBook({}), "node", SystemClock())
    wire = {"late": {"type": "noul", "instructions": "Is it late?"}}
    (said,) = judge.judge([JudgeItem(Job.make("It came a week too late.", questions=wire))], 60.0)
    engine.close()
    assert isinstance(said, Judged)
    assert said.model.startswith("test/smollm2@")
    assert said.answers["late"].status is Status.MODEL
    theirs = load(open_theirs(listed), device="cpu", threads=1, max_tokens=512)
    ((_, (no, yes)),), _ = theirs.distributions("It came a week too late.", wire)
    theirs.close()
    assert list(said.answers["late"].probabilities.values()) == pytest.approx([yes, no], abs=0.01)


def test_a_typed_package_answers_as_their_own_runtime_does(half: Path, tmp_path: Path) -> None:
    from noulxp.runtime import load

    package = export_typed(half, tmp_path / "typed")
    theirs = load(package, device="cpu", threads=1, max_tokens=1024)
    ours = Ours(package)
    asked = [one for one in requests() if 0 < len(one["state"]) < 200][:2]
    for request in asked:
        wanted = theirs.distributions(request["state"], request["questions"])[0]
        for (question, said), (_, mine) in zip(
            wanted, ours.distributions(request["state"], request["questions"])[0], strict=True
        ):
            assert mine == pytest.approx(said, abs=0.01), question.id
    ours.close()
    theirs.close()
    (package / "model.gguf").unlink()
