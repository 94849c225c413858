"""Others who do the same: typed-gguf, and llama.cpp's own server with `/v1/systemone`.

Guarantee: a peer runs in a process of its own with the same model file and number of threads, asked the
same questions about texts of the same length; it is ended with the block that started it. One that can't
be had is told with its reason, never guessed at.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp
import psutil
from decision_gguf import TEMPLATE, decision_texts, with_texts

from coolhead.errors import CoolheadError, ModelMissing
from coolhead.questions import Question
from coolhead_worker.engine.llama import LlamaModel
from coolhead_worker.engine.modelfile import remembered_digest, sha256_of
from coolhead_worker.models import pip_download

TYPED_GGUF = "typed-gguf==0.3.0"
XLLAMACPP = "xllamacpp==2026.10.11549"
PINNED = {"typed-gguf==0.3.0": "356261149bb7284e7921fd62d1dae26f5e0d35e2b6baf4b05fcbc4c7fe7069e3"}
"""sha256 of wheels that are the same for every platform; pip checks the others against its index."""
SLOTS = 4
_START_S = 120.0
_ANSWER_S = 600.0
_HERE = Path(__file__).parent

Ask = Callable[[str, Mapping[str, Question]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Peer:
    """`ask(state, questions)` returns the raw answer; `cpu()` is the process's CPU time in seconds.
    `what` tells version and build."""

    name: str
    what: str
    ask: Ask
    cpu: Callable[[], float]


class Missing(CoolheadError):
    """A peer can't be had."""


def cpu_clock(pid: int) -> Callable[[], float]:
    """CPU time of all threads of a process, in seconds: to the nanosecond on Linux."""
    if sys.platform == "linux":
        clock = (~pid << 3) | 2  # what clock_getcpuclockid(3) returns
        return lambda: time.clock_gettime(clock)
    process = psutil.Process(pid)

    def read() -> float:
        times = process.cpu_times()
        return float(times.user + times.system)

    return read


def unpacked(requirement: str, cache: Path) -> Path:
    """The folder of a wheel's content, fetched once and kept.

    Raises:
        Missing: it can't be fetched, or is not the pinned one.
    """
    folder = cache / "peers" / requirement.replace("==", "-")
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        try:
            wheel = pip_download(requirement, Path(scratch))
        except ModelMissing as error:
            raise Missing(str(error)) from None
        if requirement in PINNED and sha256_of(wheel) != PINNED[requirement]:
            raise Missing(f"{requirement} arrived with another sha256 than the pinned one")
        whole = Path(scratch) / "whole"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(whole)
        whole.rename(folder)
    return folder


def start_typed_gguf(model: Path, threads: int, cache: Path, stack: ExitStack) -> Peer:
    """typed-gguf on the very libraries of llama.cpp that the worker uses.

    Raises:
        Missing: it can't be fetched.
    """
    package = unpacked(TYPED_GGUF, cache)
    home = stack.enter_context(tempfile.TemporaryDirectory())
    libraries = Path(llama_cpp.__file__).parent / "lib"
    process = _started(
        [str(_HERE / "peer_typed_gguf.py")], package, stack,
        {"TYPED_GGUF_RUNTIME_DIR": str(libraries), "HOME": home, "XDG_DATA_HOME": home},
    )  # fmt: skip

    def ask(state: str, questions: Mapping[str, Question]) -> dict[str, Any]:
        wanted = {"model": str(model), "state": state, "questions": wire(questions)}
        return _line(process, wanted | {"options": {"threads": threads}})

    return Peer("typed-gguf", f"{TYPED_GGUF} on the worker's llama.cpp", ask, cpu_clock(process.pid))


def start_server(model: Path, threads: int, cache: Path, binary: Path | None, stack: ExitStack) -> Peer:
    """llama.cpp's server on a copy of the model that carries decision metadata.

    Args:
        model: the file that the others read too.
        threads: of the server.
        cache: keeps the copy and the fetched package.
        binary: a `llama-server` of b11361 or later; None for the prebuilt one of xllamacpp.
        stack: ends it.

    Raises:
        Missing: no binary that serves decisions can be had.
    """
    copy = _decision_model(model, cache)
    process: subprocess.Popen[Any]
    if binary is not None:
        process, address = _serve_binary(binary, copy, threads, stack)
        what = f"llama-server {_version(binary)}"
    else:
        package = unpacked(XLLAMACPP, cache)
        script = [str(_HERE / "peer_xllamacpp.py"), str(copy), str(threads), str(SLOTS)]
        process = _started(script, package, stack, {})
        address, what = _said(process).strip(), f"{XLLAMACPP}, prebuilt for any x86-64 with AVX2"
    url = f"{address}/v1/systemone"

    def ask(state: str, questions: Mapping[str, Question]) -> dict[str, Any]:
        return _post(url, {"state": state, "questions": wire(questions)})

    return Peer("llama-server", what, ask, cpu_clock(process.pid))


def wire(questions: Mapping[str, Question]) -> dict[str, Any]:
    """Questions in the System One form."""
    return {name: question.model_dump(mode="json", exclude_none=True) for name, question in questions.items()}


def _decision_model(model: Path, cache: Path) -> Path:
    """The copy with decision metadata, made once for a model's content and a template."""
    made_of = hashlib.sha256(f"{remembered_digest(model, cache)} {TEMPLATE}".encode()).hexdigest()
    copy = cache / "peers" / f"{model.stem}.{made_of[:8]}.decision.gguf"
    if not copy.exists():
        weights = LlamaModel(model)
        architecture = weights.meta("general.architecture") or ""
        weights.close()
        copy.parent.mkdir(parents=True, exist_ok=True)
        with_texts(model, copy, decision_texts(architecture))
    return copy


def _started(
    script: list[str], package: Path, stack: ExitStack, environment: dict[str, str]
) -> subprocess.Popen[str]:
    """A Python process with a package on its path; ended with the stack."""
    process = subprocess.Popen(
        [sys.executable, *script], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True, env=os.environ | environment | {"PYTHONPATH": str(package)},
    )  # fmt: skip
    stack.callback(_end, process)
    return process


def _end(process: subprocess.Popen[Any]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):  # what was still to be written to one that is gone
                pipe.close()


def _said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise Missing(f"the process ended with code {process.wait()} and no answer")
    return line


def _line(process: subprocess.Popen[str], message: dict[str, Any]) -> dict[str, Any]:
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        raise Missing(f"the process ended with code {process.wait()}") from None
    answer: dict[str, Any] = json.loads(_said(process))
    return answer


def _serve_binary(
    binary: Path, model: Path, threads: int, stack: ExitStack
) -> tuple[subprocess.Popen[Any], str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(binary), "-m", str(model), "--host", "127.0.0.1", "--port", str(port)]
    command += ["-t", str(threads), "-tb", str(threads), "-np", str(SLOTS), "-c", "8192"]
    try:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except OSError as error:
        raise Missing(f"{binary} does not start: {error.strerror}") from None
    stack.callback(_end, process)
    address = f"http://127.0.0.1:{port}"
    until = time.monotonic() + _START_S
    while not _healthy(address):
        if process.poll() is not None or time.monotonic() > until:
            raise Missing(f"{binary} did not come up: code {process.poll()}")
        time.sleep(0.2)
    return process, address


def _healthy(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
            return bool(answer.status == http.client.OK)
    except (urllib.error.URLError, OSError):
        return False


def _post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:
            said: dict[str, Any] = json.load(answer)
            return said
    except urllib.error.HTTPError as error:
        with error:
            raise Missing(f"the server refuses decisions: HTTP {error.code}") from None
    except (urllib.error.URLError, OSError) as error:
        raise Missing(f"the server does not answer: {error}") from None


def _version(binary: Path) -> str:
    done = subprocess.run([str(binary), "--version"], capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).strip().splitlines()
    return next((line for line in lines if line.startswith("version")), "of unknown version")
