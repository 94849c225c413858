"""Which dialect a model is spoken to in, when its author brought one.

Guarantee: a folder is a package or an error; a plain model has none, and is never taken for one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from coolhead.errors import ModelMismatch
from coolhead_worker.engine.decision.authored import Authored
from coolhead_worker.engine.decision.gguf_dialect import GgufDialect
from coolhead_worker.engine.decision.metadata import decision_spec
from coolhead_worker.engine.decision.package import DecisionPackage, open_package
from coolhead_worker.engine.modelfile import ModelFile


class Loaded(Protocol):
    """A model in memory: its metadata and its vocabulary."""

    def meta(self, key: str) -> str | None:
        """A value of the metadata as text; None when absent."""

    def tokens(self, text: str, *, control: bool = False) -> list[int]:
        """Token ids; `control` turns names of control tokens into them."""


def package_at(file: ModelFile) -> DecisionPackage | None:
    """The package when the path is a folder, else None; its weights bear the name that `file` gives.

    Raises:
        ModelMismatch: `file` pins other weights than the package.
        ModelMissing, ModelCorrupt, ModelUnsupported: see `open_package`.
    """
    if not file.path.is_dir():
        return None
    package = open_package(file.path)
    held = package.file
    if file.sha256 is not None and file.sha256.lower() != held.sha256:
        raise ModelMismatch(
            f"{file.path}: the package has the weights {str(held.sha256)[:12]}..., "
            f"pinned are {file.sha256[:12]}...: mend the pin"
        )
    return replace(package, file=replace(held, name=file.name or held.name))


def dialect_of(model: Loaded, package: DecisionPackage | None) -> Authored | None:
    """The author's dialect; None for a plain model.

    Raises:
        ModelUnsupported: a decision model of another kind, or one that can't be followed.
        ModelCorrupt: its metadata or its package breaks the rules.
    """
    if package is not None:
        return package.dialect(model)
    spec = decision_spec(model.meta)
    return None if spec is None else GgufDialect(spec, model)
