"""A NoulXP (formerly OpenDXP) package on disk: its manifest, and the files that it names.

Guarantee: nothing in a package is executed; only files inside its folder are read, each with the
sha256 that the manifest names (the weights' is checked by the engine before it loads them); a
package of another profile or version is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from coolhead.errors import ModelCorrupt, ModelMismatch, ModelMissing, ModelUnsupported, one_line
from coolhead.questions import explain
from coolhead_worker.engine.decision.authored import Authored
from coolhead_worker.engine.decision.calibration_file import CalibrationFile
from coolhead_worker.engine.decision.listed_dialect import ListedDialect
from coolhead_worker.engine.decision.packaged import Limits
from coolhead_worker.engine.decision.prompt_file import PromptFile
from coolhead_worker.engine.decision.speech import Tokeniser
from coolhead_worker.engine.decision.typed_dialect import TypedDialect
from coolhead_worker.engine.modelfile import ModelFile, sha256_of

MANIFESTS = ("noulxp.json", "odxp.json")
VERSIONS = ("noulxp/0.1", "noulxp/0.2", "odxp/0.1", "odxp/0.2")
PROFILE = "causal-letters"

T = TypeVar("T", bound=BaseModel)


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    path: Annotated[str, Field(min_length=1)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class _Weights(_Entry):
    format: Literal["gguf"]


class _Kind(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    standard: str
    profile: str


class _Manifest(_Kind):
    name: Annotated[str, Field(min_length=1, max_length=200)]
    weights: _Weights
    prompt: _Entry
    calibration: _Entry
    limits: Limits


@dataclass(frozen=True, slots=True)
class DecisionPackage:
    """A package that can be read here; `file` is its weights."""

    file: ModelFile
    prompt: PromptFile
    calibration: CalibrationFile
    limits: Limits

    def dialect(self, tokeniser: Tokeniser) -> Authored:
        """How its model is spoken to.

        Raises:
            ModelUnsupported: the vocabulary lacks a label, or a content-free prior.
        """
        prompt, listed = self.prompt, self.prompt.listed
        if listed is not None:
            return ListedDialect(prompt, listed, self.calibration, self.limits, tokeniser)
        if prompt.types is not None:
            return TypedDialect(prompt, prompt.types, self.calibration, self.limits, tokeniser)
        raise ModelCorrupt("prompt.json has no layout")


def open_package(folder: Path) -> DecisionPackage:
    """Read a package.

    Raises:
        ModelMissing: no manifest, or a file that it names is missing.
        ModelMismatch: a file is not the one that the manifest names.
        ModelCorrupt: a file is not what the standard says.
        ModelUnsupported: another profile or version.
    """
    path = next((folder / name for name in MANIFESTS if (folder / name).is_file()), None)
    if path is None:
        raise ModelMissing(f"{folder} has no {MANIFESTS[0]}: give the folder of a NoulXP package")
    _check_kind(_parsed(_Kind, path))
    manifest = _parsed(_Manifest, path)
    prompt = _parsed(PromptFile, _verified(folder, manifest.prompt))
    calibration = _parsed(CalibrationFile, _verified(folder, manifest.calibration))
    weights = ModelFile(_inside(folder, manifest.weights.path), manifest.weights.sha256, manifest.name)
    return DecisionPackage(weights, prompt, calibration, manifest.limits)


def _check_kind(kind: _Kind) -> None:
    if kind.standard not in VERSIONS:
        raise ModelUnsupported(
            f"a package of {one_line(kind.standard)[:40]!r} can't be read here, only "
            f"{VERSIONS[0]} and {VERSIONS[1]}"
        )
    if kind.profile != PROFILE:
        raise ModelUnsupported(
            f"a package of the profile {one_line(kind.profile)[:40]!r} can't be read here, only {PROFILE}: "
            "serve it with noulxp"
        )


def _parsed(kind: type[T], path: Path) -> T:
    try:
        return kind.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        raise ModelCorrupt(f"{path.name}: {explain(error, 'file')}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelCorrupt(f"{path.name} can't be read: {one_line(str(error))[:120]}") from None


def _inside(folder: Path, relative: str) -> Path:
    parts = PurePosixPath(relative).parts
    if relative.startswith("/") or ".." in parts or "\\" in relative or ":" in relative or not parts:
        raise ModelCorrupt(f"the manifest names {one_line(relative)[:80]!r}, which is not inside the package")
    return folder / relative


def _verified(folder: Path, entry: _Entry) -> Path:
    path = _inside(folder, entry.path)
    found = sha256_of(path)
    if found != entry.sha256:
        raise ModelMismatch(
            f"{path.name}: sha256 is {found[:12]}..., the manifest says {entry.sha256[:12]}...: "
            "fetch the package again"
        )
    return path
