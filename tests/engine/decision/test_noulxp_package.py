"""Packages on disk: what is read, and what is refused with which error."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coolhead.errors import ModelCorrupt, ModelMismatch, ModelMissing, ModelUnsupported, NodeError
from coolhead.questions import Choice, Noul, Score
from coolhead_worker.engine.decision.listed_dialect import ListedDialect
from coolhead_worker.engine.decision.package import open_package
from coolhead_worker.engine.decision.typed_dialect import TypedDialect
from coolhead_worker.engine.protocol import PlanKind
from tests.engine.decision.packages import LISTED, TYPED, entry, write_package
from tests.engine.vocabulary import SmallVocabulary

WORDS = SmallVocabulary()


def test_a_package_gives_its_weights_prompt_and_temperatures(tmp_path: Path) -> None:
    package = open_package(write_package(tmp_path))
    assert package.file.path == tmp_path / "model.gguf"
    assert package.file.verify(tmp_path / "cache") == entry(tmp_path, "model.gguf")["sha256"]
    assert (package.file.name, package.limits.max_tokens) == ("test/letters", 512)
    assert isinstance(package.dialect(WORDS), ListedDialect)


def test_a_package_made_before_the_rename_is_read_too(tmp_path: Path) -> None:
    write_package(tmp_path, {**TYPED, "standard": "odxp/0.2"})
    (tmp_path / "noulxp.json").rename(tmp_path / "odxp.json")
    assert isinstance(open_package(tmp_path).dialect(WORDS), TypedDialect)


@pytest.mark.parametrize(
    ("question", "temperature"),
    [
        (Choice(criteria=["a", "b"]), 2.0),
        (Choice(criteria=["a", "b", "c"]), 3.0),
        (Choice(criteria=["a", "b", "c", "d"]), 3.0),
        (Choice(criteria=["a", "b", "c", "d", "e"]), 4.0),
        (Noul(instructions="?"), 1.5),
        (Score(criteria=("a", "b")), 1.0),
    ],
)
def test_the_first_range_goes_before_the_type_and_what_is_not_named_is_divided_by_1(
    tmp_path: Path, question, temperature
) -> None:
    assert open_package(write_package(tmp_path)).dialect(WORDS).temperature(question) == temperature


def test_weights_that_are_not_the_pinned_ones_are_refused_before_they_load(tmp_path: Path) -> None:
    package = open_package(write_package(tmp_path))
    package.file.path.write_bytes(b"GGUF of another model")
    with pytest.raises(ModelMismatch, match="sha256"):
        package.file.verify(tmp_path / "cache")


@pytest.mark.parametrize("name", ["prompt.json", "calibration.json"])
def test_a_file_that_was_changed_is_refused(tmp_path: Path, name: str) -> None:
    write_package(tmp_path)
    path = tmp_path / name
    path.write_text(path.read_text() + " ")
    with pytest.raises(ModelMismatch, match=name):
        open_package(tmp_path)


def test_a_folder_without_a_manifest_is_no_package(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match=r"no noulxp\.json"):
        open_package(tmp_path)


@pytest.mark.parametrize(
    ("manifest", "error", "why"),
    [
        (
            {"profile": "encoder-markers"},
            ModelUnsupported,
            "'encoder-markers' can't be read here, only causal",
        ),
        ({"standard": "noulxp/0.3"}, ModelUnsupported, r"'noulxp/0\.3' can't be read here, only noulxp/0\.1"),
        ({"limits": {"max_tokens": 1}}, ModelCorrupt, "max_options"),
        ({"weights": {"path": "model.gguf", "sha256": "0" * 64, "format": "onnx"}}, ModelCorrupt, "format"),
        ({"prompt": {"path": "prompt.json"}}, ModelCorrupt, "sha256"),
        ({"prompt": {"path": "../prompt.json", "sha256": "0" * 64}}, ModelCorrupt, "not inside the package"),
        ({"prompt": {"path": "/etc/hosts", "sha256": "0" * 64}}, ModelCorrupt, "not inside the package"),
        (
            {"weights": {"path": "a/../../x", "sha256": "0" * 64, "format": "gguf"}},
            ModelCorrupt,
            "not inside",
        ),
        ({"calibration": {"path": "no.json", "sha256": "0" * 64}}, ModelMissing, r"no\.json"),
    ],
)
def test_a_manifest_that_can_not_be_followed_is_refused(tmp_path: Path, manifest, error, why) -> None:
    refused(lambda: open_package(write_package(tmp_path, **manifest)), error, why)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"standard": 1}', "\ufeff{}", "[" * 100_000])
def test_a_manifest_that_is_none_is_corrupt(tmp_path: Path, text: str) -> None:
    (tmp_path / "noulxp.json").write_text(text)
    refused(lambda: open_package(tmp_path), ModelCorrupt, r"noulxp\.json")


def without(prompt: dict[str, Any], *path: str) -> dict[str, Any]:
    changed = copy.deepcopy(prompt)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return changed


def with_(prompt: dict[str, Any], value: Any, *path: str) -> dict[str, Any]:
    changed = copy.deepcopy(prompt)
    inner: Any = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed


@pytest.mark.parametrize(
    ("prompt", "why"),
    [
        (without(LISTED, "context"), "context"),
        (with_(LISTED, "no state", "context", "template"), r"exactly one \{state\}"),
        (with_(LISTED, "{label}", "question", "option"), r"one \{label\} and a \{text\}"),
        (with_(LISTED, ["A", "A", "B", "C"], "labels"), "labels must differ"),
        (with_(LISTED, ["A", "B", "C"], "labels"), "one for each option"),
        (with_(LISTED, "whole", "layouts", 0, "encoding"), "encoding"),
        (with_(LISTED, {"mode": "isolated", "read": 5}, "score"), "beyond score"),
        (with_(LISTED, {"mode": "sideways"}, "score"), "mode"),
        (with_(LISTED, {"mode": "isolated", "read": 1}, "score"), r"score\.question is needed"),
        (with_(TYPED, 512, "context", "max_tokens"), r"no context\.max_tokens"),
        (with_(LISTED, {"template": "{user}"}, "chat"), "need types"),
        (without(LISTED, "labels"), "needs question, labels and layouts"),
        (with_(LISTED, "first", "slot"), "slot"),
        (with_(LISTED, 3, "question", "extra"), "extra"),
        (with_(TYPED, ["A"], "labels"), "labels"),
        (with_(TYPED, {"mode": "list"}, "score"), "no question, labels"),
        (with_(TYPED, "{system}", "chat", "template"), r"exactly one \{user\}"),
        (with_(TYPED, ["true", "maybe"], "types", "noul", "listing"), "by key"),
        (with_(TYPED, ["A", "B"], "types", "score", "layouts", 0, "labels"), "a different label"),
        (with_(TYPED, "{name}", "types", "score", "layouts", 0, "head"), "only"),
        (with_(LISTED, "(", "score"), "score"),
    ],
)
def test_a_prompt_that_breaks_the_standard_is_corrupt(tmp_path: Path, prompt, why: str) -> None:
    refused(lambda: open_package(write_package(tmp_path, prompt)), ModelCorrupt, why)


def test_a_strip_that_is_no_expression_is_corrupt(tmp_path: Path) -> None:
    levels = {
        "mode": "isolated",
        "question": "{level}?",
        "options": ["no", "yes"],
        "read": 1,
        "level_strip": "(",
    }
    package = open_package(write_package(tmp_path, with_(LISTED, levels, "score")))
    refused(lambda: package.dialect(WORDS), ModelCorrupt, "level_strip")


def test_a_content_free_prior_is_refused(tmp_path: Path) -> None:
    prior = {"prior": {"kind": "content-free", "probes": ["N/A"], "strength": 1.0}}
    package = open_package(write_package(tmp_path, with_(TYPED, prior, "rotations")))
    refused(lambda: package.dialect(WORDS), ModelUnsupported, "content-free prior")


def test_a_model_that_takes_two_labels_for_one_is_refused(tmp_path: Path) -> None:
    class Deaf(SmallVocabulary):
        def tokens(self, text: str, *, control: bool = False) -> list[int]:
            return super().tokens("A" if text == "B" else text, control=control)

    package = open_package(write_package(tmp_path))
    refused(lambda: package.dialect(Deaf()), ModelUnsupported, "the same token")


@pytest.mark.parametrize("prompt", [LISTED, TYPED], ids=["listed", "typed"])
def test_a_model_without_a_label_of_the_package_is_refused(tmp_path: Path, prompt) -> None:
    class Torn(SmallVocabulary):
        def tokens(self, text: str, *, control: bool = False) -> list[int]:
            return [1, 2] if text == "C" else super().tokens(text, control=control)

    package = open_package(write_package(tmp_path, prompt))
    refused(lambda: package.dialect(Torn()), ModelUnsupported, "'C' is not one token")


def test_the_digest_changes_with_prompt_and_temperatures(tmp_path: Path) -> None:
    changed = with_(LISTED, "\nReply: (", "question", "tail")
    digests = [
        open_package(write_package(tmp_path / name, prompt)).dialect(WORDS).digest(PlanKind.ISOLATED)
        for name, prompt in (("a", LISTED), ("b", changed), ("c", TYPED), ("d", LISTED))
    ]
    assert digests[0] == digests[3]
    assert len(set(digests)) == 3
    path = tmp_path / "a" / "calibration.json"
    path.write_text(json.dumps({"temperature": {"choice": 9.0}}))
    manifest = json.loads((tmp_path / "a" / "noulxp.json").read_text())
    manifest["calibration"] = entry(tmp_path / "a", "calibration.json")
    (tmp_path / "a" / "noulxp.json").write_text(json.dumps(manifest))
    assert open_package(tmp_path / "a").dialect(WORDS).digest(PlanKind.ISOLATED) not in digests


def refused(act: Callable[[], object], error: type[NodeError], why: str) -> None:
    with pytest.raises(error, match=why) as caught:
        act()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
