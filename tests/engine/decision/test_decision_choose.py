"""Plain models, decision models and packages are told apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coolhead.errors import ModelMismatch, ModelMissing, ModelUnsupported
from coolhead_worker.engine.decision.choose import dialect_of, package_at
from coolhead_worker.engine.decision.gguf_dialect import GgufDialect
from coolhead_worker.engine.decision.listed_dialect import ListedDialect
from coolhead_worker.engine.modelfile import ModelFile
from tests.engine.decision.packages import entry, write_package
from tests.engine.decision.prompts import OPENJEV
from tests.engine.vocabulary import SmallVocabulary


class Model(SmallVocabulary):
    def __init__(self, **said: str) -> None:
        super().__init__()
        self.said = {"general.architecture": "llama", **said}

    def meta(self, key: str) -> str | None:
        return self.said.get(key)


DECISION = {"llama.decision.type": "openjev", "tokenizer.chat_template.systemone": OPENJEV}


def test_a_plain_model_has_no_dialect_of_its_author() -> None:
    assert dialect_of(Model(), None) is None


def test_a_decision_model_has_its_author_s_dialect() -> None:
    assert isinstance(dialect_of(Model(**DECISION), None), GgufDialect)


def test_an_unsupported_decision_model_is_never_taken_for_a_plain_one() -> None:
    with pytest.raises(ModelUnsupported, match="'kev'"):
        dialect_of(Model(**{"llama.decision.type": "kev"}), None)


def test_a_package_goes_before_what_its_weights_say(tmp_path: Path) -> None:
    package = package_at(ModelFile(write_package(tmp_path), None, ""))
    assert package is not None
    assert isinstance(dialect_of(Model(**DECISION), package), ListedDialect)


def test_a_file_is_no_package_and_a_folder_must_be_one(tmp_path: Path) -> None:
    assert package_at(ModelFile(tmp_path / "model.gguf", None, "")) is None
    with pytest.raises(ModelMissing, match=r"no noulxp\.json"):
        package_at(ModelFile(tmp_path, None, ""))


def test_a_package_keeps_its_name_unless_another_is_given_and_its_pin_always(tmp_path: Path) -> None:
    file = ModelFile(write_package(tmp_path), None, "")
    pinned = entry(tmp_path, "model.gguf")["sha256"]
    named = [package_at(one) for one in (file, replace(file, name="fast", sha256=pinned.upper()))]
    assert [one.file.name for one in named if one] == ["test/letters", "fast"]
    assert [one.file.sha256 for one in named if one] == [pinned, pinned]
    with pytest.raises(ModelMismatch, match="mend the pin"):
        package_at(replace(file, sha256="0" * 64))
