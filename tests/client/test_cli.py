"""The command line: data on stdout, the rest on stderr, exit codes, and never a traceback."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from coolhead import cli
from coolhead.client import DecisionQueue
from coolhead.errors import CoolheadError
from coolhead.fleet import Node
from tests.client.settler import Settler, write_node
from tests.client.test_waiting import blocked, soon
from tests.conftest import Valkey

TASK = """
name = "support"
[questions.refund]
type = "noul"
instructions = "Money back?"
[questions.queue]
type = "choice"
criteria = ["billing", "other"]
[questions.urgency]
type = "score"
criteria = ["low", "high"]
"""


@pytest.fixture
def task(tmp_path: Path) -> str:
    path = tmp_path / "support.toml"
    path.write_text(TASK)
    return str(path)


class Shown:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Shown]:
    """Run `coolhead` in this process."""

    def run(*words: str, stdin: bytes = b"") -> Shown:
        monkeypatch.setattr(sys, "argv", ["coolhead", *words])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as end:
            cli.main()
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return Shown(int(end.value.code or 0), said.out, said.err)

    return run


@pytest.fixture
def url(valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COOLHEAD_REDIS_URL", valkey.url)
    return valkey.url


@pytest.fixture
def settler(valkey: Valkey) -> Iterator[Settler]:
    settler = Settler(valkey.client())
    settler.answer = lambda _job: {"refund": 0.9, "queue": [0.25, 0.75]}
    settler.start()
    yield settler
    settler.stop()


@pytest.mark.server
def test_submit_prints_the_id_and_wait_the_decision(
    run: Callable[..., Shown], url: str, task: str, settler: Settler
) -> None:
    submitted = run("submit", "hello", "--task", task, "--lane", "bulk")
    job_id = submitted.out.strip()
    assert (submitted.code, submitted.err) == (0, "")
    waited = run("wait", job_id)
    assert waited.code == 0
    assert "billing" not in waited.out
    for word in ("refund", "yes", "0.900", "queue", "other", "0.750", "uncalibrated", job_id):
        assert word in waited.out
    again = run("submit", "hello", "--task", task, "--lane", "bulk", "--json")
    assert json.loads(again.out) == {"id": job_id, "lane": "bulk", "new": False}


@pytest.mark.server
def test_decide_prints_the_official_form_as_one_line_of_json(
    run: Callable[..., Shown], url: str, task: str, settler: Settler
) -> None:
    shown = run("decide", "-", "--task", task, "--id", "j", "--json", stdin="grüße".encode())
    assert (shown.code, shown.err) == (0, "")
    assert len(shown.out.splitlines()) == 1
    reply = json.loads(shown.out)
    assert reply["answers"]["refund"]["noul"] == pytest.approx(0.9)
    assert reply["x_job_id"] == "j"
    assert settler.seen[0].state == "grüße"


@pytest.mark.server
def test_decide_shows_a_table(run: Callable[..., Shown], url: str, task: str, settler: Settler) -> None:
    shown = run("decide", "hello", "--task", task)
    assert shown.code == 0
    assert "0.50 (low)" in shown.out  # the expected level, and the likeliest


@pytest.mark.server
def test_a_timeout_is_one_line_and_exit_code_1(run: Callable[..., Shown], url: str, task: str) -> None:
    shown = run("decide", "hello", "--task", task, "--timeout", "0.05")
    assert (shown.code, shown.out) == (1, "")
    assert shown.err == "coolhead: no answer within 0.05 s: queued (place 1); no node is up\n"


@pytest.mark.server
def test_status_shows_nodes_and_lanes(run: Callable[..., Shown], url: str, valkey: Valkey) -> None:
    assert "no node" in run("status").err
    with valkey.client() as connection:
        node = Node(
            "studio-3", "paused", reason="thermal serious (scripted)", thermal="serious", source="scripted"
        )
        write_node(connection, node)
        write_node(connection, Node("mini", "busy", lanes=("interactive", "bulk"), since=1.0))
    shown = run("status")
    assert (shown.code, shown.err) == (0, "")
    for word in ("studio-3", "paused", "thermal serious (scripted)", "mini", "interactive, bulk", "queued"):
        assert word in shown.out
    fleet = json.loads(run("status", "--json").out)
    assert fleet["version"] == 1
    assert [node["state"] for node in fleet["nodes"]] == ["busy", "paused"]
    assert [lane["lane"] for lane in fleet["lanes"]] == ["interactive", "bulk"]


@pytest.mark.server
def test_queue_ls_shows_how_many_jobs_are_where(run: Callable[..., Shown], url: str, task: str) -> None:
    run("submit", "hello", "--task", task)
    assert "interactive" in run("queue", "ls").out
    lanes = json.loads(run("queue", "ls", "--json").out)["lanes"]
    assert [(lane["lane"], lane["queued"]) for lane in lanes] == [("interactive", 1), ("bulk", 0)]


def test_tasks_check_names_the_questions(run: Callable[..., Shown], task: str) -> None:
    shown = run("tasks", "check", task)
    assert (shown.code, shown.err) == (0, "")
    assert "task support: refund (noul), queue (choice), urgency (score)" in shown.out
    assert json.loads(run("tasks", "check", task, "--json").out)["questions"]["urgency"] == "score"


def test_tasks_check_says_what_is_wrong_and_where(run: Callable[..., Shown], tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text('name = "bad"\n[questions.q]\ntype = "choice"\ncriteria = ["a"]\n')
    shown = run("tasks", "check", str(path))
    assert (shown.code, shown.out) == (2, "")
    assert shown.err.startswith(f"coolhead: {path}: q")
    assert len(shown.err.splitlines()) == 1


BAD_USE = [
    (("decide", "", "--task", "support"), b"", "state is empty"),
    (("decide", "-", "--task", "support"), b"caf\xe9", "not UTF-8 at byte 3"),
    (("decide", "a\udce9", "--task", "support"), b"", "lone surrogate"),
    (("decide", "x", "--task", "support", "--lane", "express"), b"", "lane"),
    (("decide", "x", "--task", "support", "--deadline", "-1"), b"", "deadline_s"),
    (("decide", "x", "--task", "support", "--id", "a b"), b"", "job id"),
    (("decide", "x", "--task", "/nowhere/t.toml"), b"", "/nowhere/t.toml"),
    (("tasks", "check", "/nowhere/t.toml"), b"", "/nowhere/t.toml"),
    (("decide", "x"), b"", "--task"),
    (("no-such-command",), b"", "no-such-command"),
    (("decide", "x", "--task", "t", "--timeout", "soon"), b"", "--timeout"),
]


@pytest.mark.parametrize(("words", "stdin", "said"), BAD_USE)
def test_wrong_use_is_exit_code_2_without_asking_redis(
    run: Callable[..., Shown], words: tuple[str, ...], stdin: bytes, said: str
) -> None:
    shown = run(*words, stdin=stdin)
    assert (shown.code, shown.out) == (2, "")
    assert said in shown.err


@pytest.mark.parametrize(
    "words", [("status",), ("submit", "x", "--task", "t"), ("wait", "j", "--timeout", "0.1")]
)
def test_no_redis_is_one_line_and_exit_code_1(run: Callable[..., Shown], words: tuple[str, ...]) -> None:
    shown = run(*words, "--url", "unix://app:hunter2@/nowhere/valkey.sock")
    assert (shown.code, shown.out) == (1, "")
    assert "unix:///nowhere/valkey.sock" in shown.err.splitlines()[-1]
    assert "hunter2" not in shown.err


def test_what_nobody_expected_is_one_line_too(
    run: Callable[..., Shown], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args: Any) -> None:
        raise RuntimeError("a ticket's private text")

    monkeypatch.setattr(DecisionQueue, "from_url", broken)
    shown = run("status")
    assert (shown.code, shown.out) == (1, "")
    assert shown.err.startswith("coolhead: unexpected RuntimeError")
    assert len(shown.err.splitlines()) == 1
    assert "private" not in shown.err


def test_every_error_has_an_exit_code_that_the_help_promises() -> None:
    def below(kind: type[CoolheadError]) -> Iterator[type[CoolheadError]]:
        yield kind
        for child in kind.__subclasses__():
            yield from below(child)

    assert {kind.exit_code for kind in below(CoolheadError)} == {1, 2, 3}


def start(*words: str, **more: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "coolhead.cli", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **more},
    )


@pytest.mark.server
@pytest.mark.process
def test_an_interrupt_while_waiting_is_exit_code_130(valkey: Valkey, task: str) -> None:
    with valkey.client() as connection, start("decide", "x", "--task", task, "--url", valkey.url) as process:
        soon(blocked(connection))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=10)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err


@pytest.mark.server
@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_server_runs_until_it_is_told_to_stop(number: signal.Signals) -> None:
    with tempfile.TemporaryDirectory(prefix="cho") as folder:
        with start("server", folder) as process:
            assert process.stdout
            url = process.stdout.readline().strip()
            with redis.Redis.from_url(url) as connection:
                assert connection.ping()
                pid = int(connection.info("server")["process_id"])
            process.send_signal(number)
            _, err = process.communicate(timeout=10)
        assert process.returncode == 0
        assert "Traceback" not in err
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.server
@pytest.mark.process
def test_a_server_that_ends_by_itself_is_reported() -> None:
    with tempfile.TemporaryDirectory(prefix="cho") as folder, start("server", folder) as process:
        assert process.stdout
        with redis.Redis.from_url(process.stdout.readline().strip()) as connection:
            os.kill(int(connection.info("server")["process_id"]), signal.SIGKILL)
        _, err = process.communicate(timeout=10)
        assert process.returncode == 1
        assert "ended by itself" in err.splitlines()[-1]
        assert "Traceback" not in err


@pytest.mark.process
def test_the_help_imports_neither_redis_nor_pydantic() -> None:
    code = "import sys, coolhead.cli; print(sorted({'redis', 'rq', 'pydantic', 'rich'} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
