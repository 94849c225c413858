"""Others beside the engine: fetched once, started, asked, ended; stand-ins play their parts.

No network here: packages and the server are small programs with the interfaces of the real ones.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import peers
import pytest
from decision_gguf import TEMPLATE
from peers import Missing, cpu_clock, start_server, start_typed_gguf, unpacked, wire

from coolhead.errors import ModelMissing
from coolhead_worker.bench.workload import asked
from tests.bench.tiny_model import tiny_at
from tests.engine.decision.gguf_file import metadata

PACKAGE = "some-package==1.0"

TYPED_CLI = """
import os
class Prepared:
    model_path = "m"
def prepare_decision(request, fit_enabled):
    assert fit_enabled is False
    return Prepared()
def decide_on_handle(prepared, request, handle):
    if request["state"] == "die":
        os._exit(3)
    return {"state": request["state"], "handle": handle, "threads": request["options"]["threads"],
            "libraries": os.environ["TYPED_GGUF_RUNTIME_DIR"], "questions": sorted(request["questions"])}
"""
TYPED_SESSION = """
from contextlib import contextmanager
opened = 0
@contextmanager
def open_model(path, fit_disabled):
    global opened
    opened += 1
    yield f"{path} opened {opened}"
"""
SERVER = """
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.reply(200, {"status": "ok"})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        refused = asked["state"] == "refuse me"
        self.reply(501 if refused else 200, {"path": self.path, "asked": asked, "arguments": sys.argv[1:]})

    def reply(self, code, body):
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass
"""
BINARY = (
    """#!/usr/bin/env python3
import sys
if "--version" in sys.argv:
    sys.stderr.write("loading\\nversion: 11434 (abc)\\n")
    sys.exit(0)
"""
    + SERVER
    + """
HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""
)
XLLAMACPP = (
    SERVER
    + """
import threading

class Plain:
    pass

class CommonParams:
    def __init__(self):
        self.model, self.cpuparams, self.cpuparams_batch = Plain(), Plain(), Plain()

class Server:
    def __init__(self, params):
        assert params.cpuparams.n_threads == params.cpuparams_batch.n_threads == 2
        assert params.n_parallel == 4
        server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.listening_address = f"http://127.0.0.1:{server.server_port}"
"""
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_at(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def package(cache: Path, requirement: str, files: dict[str, str]) -> None:
    """Lay out what would have been fetched."""
    for name, text in files.items():
        path = cache / "peers" / requirement.replace("==", "-") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def binary(folder: Path, text: str = BINARY) -> Path:
    path = folder / "llama-server"
    path.write_text(text)
    path.chmod(0o755)
    return path


def fetching(monkeypatch: pytest.MonkeyPatch, content: bytes = b"content") -> list[str]:
    seen: list[str] = []

    def fetch(requirement: str, folder: Path) -> Path:
        seen.append(requirement)
        with zipfile.ZipFile(folder / "a.whl", "w") as archive:
            archive.writestr(zipfile.ZipInfo("inside/file"), content)
        return folder / "a.whl"

    monkeypatch.setattr(peers, "pip_download", fetch)
    return seen


def test_a_wheel_is_fetched_and_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = fetching(monkeypatch)
    folders = {unpacked(PACKAGE, tmp_path) for _ in range(3)}
    (folder,) = folders
    assert (folder / "inside/file").read_bytes() == b"content"
    assert seen == [PACKAGE]
    assert [path.name for path in folder.parent.iterdir()] == ["some-package-1.0"]


def test_a_wheel_with_another_content_than_the_pinned_one_is_refused_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetching(monkeypatch)
    monkeypatch.setitem(peers.PINNED, PACKAGE, hashlib.sha256(b"another").hexdigest())
    with pytest.raises(Missing, match="another sha256"):
        unpacked(PACKAGE, tmp_path)
    assert list((tmp_path / "peers").iterdir()) == []


def test_what_cannot_be_fetched_is_missing_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(requirement: str, folder: Path) -> Path:
        raise ModelMissing("no network: connect")

    monkeypatch.setattr(peers, "pip_download", fetch)
    with pytest.raises(Missing, match="no network"):
        unpacked(PACKAGE, tmp_path)


def test_typed_gguf_is_asked_again_and_again_on_one_loaded_model(tmp_path: Path, stack: ExitStack) -> None:
    files = {
        "__init__.py": "",
        "cli.py": TYPED_CLI,
        "engine/__init__.py": "",
        "engine/session.py": TYPED_SESSION,
    }
    package(tmp_path, peers.TYPED_GGUF, {f"typed_gguf/{name}": text for name, text in files.items()})
    peer = start_typed_gguf(tmp_path / "model.gguf", 2, tmp_path, stack)
    answers = [peer.ask(state, asked(3)) for state in ("one", "two")]
    assert [answer["state"] for answer in answers] == ["one", "two"]
    assert {answer["handle"] for answer in answers} == {"m opened 1"}
    assert answers[0]["threads"] == 2
    assert any("llama" in file.name for file in Path(answers[0]["libraries"]).iterdir())
    assert answers[0]["questions"] == sorted(asked(3))
    assert peer.cpu() > 0
    with pytest.raises(Missing, match="ended with code 3"):
        peer.ask("die", asked(1))
    with pytest.raises(Missing, match="ended with code 3"):
        peer.ask("are you there?", asked(1))


def test_a_package_that_does_not_start_is_missing(tmp_path: Path, stack: ExitStack) -> None:
    package(tmp_path, peers.TYPED_GGUF, {"typed_gguf/__init__.py": "raise SystemExit(7)"})
    peer = start_typed_gguf(tmp_path / "model.gguf", 1, tmp_path, stack)
    with pytest.raises(Missing, match="ended with code 7"):
        peer.ask("Hello", asked(1))


@pytest.mark.model
def test_a_server_is_started_on_a_copy_with_decision_metadata_and_asked(
    tiny: Path, tmp_path: Path, stack: ExitStack
) -> None:
    peer = start_server(tiny, 2, tmp_path, binary(tmp_path), stack)
    assert peer.what == "llama-server version: 11434 (abc)"
    said = peer.ask("a state", asked(3))
    assert said["path"] == "/v1/systemone"
    assert said["asked"] == {"state": "a state", "questions": wire(asked(3))}
    arguments = said["arguments"]
    assert arguments[arguments.index("-t") + 1] == arguments[arguments.index("-tb") + 1] == "2"
    copy = Path(arguments[arguments.index("-m") + 1])
    assert copy.parent == tmp_path / "peers"
    assert metadata(copy)["tokenizer.chat_template.systemone"] == TEMPLATE


@pytest.mark.model
def test_a_server_that_refuses_or_is_gone_is_missing(tiny: Path, tmp_path: Path) -> None:
    with ExitStack() as stack:
        peer = start_server(tiny, 1, tmp_path, binary(tmp_path), stack)
        with pytest.raises(Missing, match="HTTP 501"):
            peer.ask("refuse me", asked(1))
    with pytest.raises(Missing, match="does not answer"):
        peer.ask("are you there?", asked(1))


@pytest.mark.model
def test_without_a_binary_the_prebuilt_server_is_taken(tiny: Path, tmp_path: Path, stack: ExitStack) -> None:
    package(tmp_path, peers.XLLAMACPP, {"xllamacpp.py": XLLAMACPP})
    peer = start_server(tiny, 2, tmp_path, None, stack)
    assert peers.XLLAMACPP in peer.what
    assert peer.ask("a state", asked(1))["path"] == "/v1/systemone"


@pytest.mark.model
def test_models_of_one_name_and_other_content_have_copies_of_their_own(
    tiny: Path, tmp_path: Path, stack: ExitStack
) -> None:
    from tests.bench.tiny_model import write_tiny

    (tmp_path / "other").mkdir()
    other = write_tiny(tiny, tmp_path / "other" / tiny.name, seed=1)
    server = binary(tmp_path)
    copies = set()
    for model in (tiny, other, tiny):
        arguments = start_server(model, 1, tmp_path, server, stack).ask("x", asked(1))["arguments"]
        copies.add(arguments[arguments.index("-m") + 1])
    assert len(copies) == 2


@pytest.mark.model
@pytest.mark.parametrize(
    ("text", "says"),
    [("not a program", "does not start"), ("#!/bin/sh\nexit 5\n", "did not come up: code 5")],
)
def test_a_binary_that_does_not_serve_is_missing(
    tiny: Path, tmp_path: Path, stack: ExitStack, text: str, says: str
) -> None:
    with pytest.raises(Missing, match=says):
        start_server(tiny, 1, tmp_path, binary(tmp_path, text), stack)


def test_the_clock_of_a_process_counts_its_cpu_time_alone() -> None:
    clock = cpu_clock(os.getpid())
    before, own = clock(), time.process_time()
    sum(range(300_000))
    used, ours = clock() - before, time.process_time() - own
    assert used == pytest.approx(ours, rel=0.5, abs=0.05)


def test_questions_are_sent_in_the_public_form() -> None:
    sent = json.loads(json.dumps(wire(asked(3))))
    assert {name: one["type"] for name, one in sent.items()} == {
        "injection": "noul", "queue": "choice", "urgency": "score",
    }  # fmt: skip
    assert list(sent["queue"]["criteria"]) == ["Billing", "Technical", "Account", "Sales", "Delivery"]
    assert "criteria" not in sent["injection"]
