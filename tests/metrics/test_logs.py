"""Log lines."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from coolhead.errors import DecodeFailed, NodeError
from coolhead_worker import logs
from coolhead_worker.logs import setup_logging

SECRET = "my card number is 4000"


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root, own = logging.getLogger(), logging.getLogger(logs.LOGGER)
    handlers, level = list(root.handlers), own.level
    yield
    for handler in set(root.handlers) - set(handlers):
        handler.close()
    root.handlers = handlers
    own.setLevel(level)


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_json_line_says_when_what_where_and_which_job(stream: io.StringIO) -> None:
    setup_logging("mac-1", as_json=True, stream=stream)
    logging.getLogger("coolhead.node").warning(
        "handed back %d", 3, extra={"job": "j-1", "reason": "thermal serious", "state": SECRET}
    )
    (line,) = lines(stream)
    assert datetime.fromisoformat(line.pop("ts")).utcoffset() is not None
    assert line == {
        "level": "warning",
        "logger": "coolhead.node",
        "node": "mac-1",
        "msg": "handed back 3",
        "job": "j-1",
        "reason": "thermal serious",
    }


def test_a_plain_line_is_short(stream: io.StringIO) -> None:
    setup_logging("mac-1", stream=stream)
    logging.getLogger("coolhead.node").info("open lanes: bulk", extra={"job": "j-1"})
    assert stream.getvalue()[12:] == " INFO    node [job j-1]: open lanes: bulk\n"


@pytest.mark.parametrize("as_json", [True, False])
def test_an_exception_is_told_without_its_text(stream: io.StringIO, as_json: bool) -> None:
    setup_logging("mac-1", as_json=as_json, stream=stream)
    try:
        raise ValueError(SECRET)
    except ValueError:
        logging.getLogger("coolhead.node").exception("the call failed")
    text = stream.getvalue()
    assert SECRET not in text
    assert "ValueError" in text
    assert "test_logs.py:" in text
    assert text.count("\n") == 1


def test_an_error_of_our_own_is_told_with_its_text(stream: io.StringIO) -> None:
    setup_logging("mac-1", as_json=True, stream=stream)
    try:
        raise DecodeFailed("llama_decode returned -3")
    except DecodeFailed:
        logging.getLogger("coolhead.node").exception("the call failed")
    assert lines(stream)[0]["error"] == "DecodeFailed: llama_decode returned -3"


@pytest.mark.parametrize("as_json", [True, False])
def test_a_record_is_one_line_whatever_is_in_it(stream: io.StringIO, as_json: bool) -> None:
    setup_logging("mac-1", as_json=as_json, stream=stream)
    logging.getLogger("coolhead.node").info("a\nb\u2028c", extra={"job": "x\ny"})
    assert len(stream.getvalue().splitlines()) == 1


def test_setting_up_twice_does_not_write_twice(stream: io.StringIO) -> None:
    setup_logging("mac-1", stream=io.StringIO())
    setup_logging("mac-1", as_json=True, stream=stream)
    logging.getLogger("coolhead.node").info("once")
    assert len(lines(stream)) == 1


def test_other_libraries_are_heard_from_warning_on(stream: io.StringIO) -> None:
    setup_logging("mac-1", as_json=True, level="DEBUG", stream=stream)
    logging.getLogger("library.part").info("chatter")
    logging.getLogger("library.part").warning("trouble")
    logging.getLogger("coolhead.node").debug("detail")
    assert [line["msg"] for line in lines(stream)] == ["trouble", "detail"]


def test_a_log_file_turns_over_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "FILE_BYTES", 400)
    file = tmp_path / "deep" / "worker.log"
    setup_logging("mac-1", as_json=True, file=file)
    for number in range(30):
        logging.getLogger("coolhead.node").info("line %d", number)
    files = sorted(file.parent.iterdir())
    assert len(files) == logs.FILES_KEPT + 1
    assert all(path.stat().st_size <= 400 for path in files)
    assert "line 29" in file.read_text()


def test_a_log_file_that_cannot_be_written_is_a_one_line_error(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    with pytest.raises(NodeError, match="can't write the log"):
        setup_logging("mac-1", file=tmp_path / "plain" / "worker.log")
