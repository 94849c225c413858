"""How the worker writes its log: one record, one line, plain or JSON.

Guarantee: a line carries when, how bad, who, which node, and for a job its id; it never carries the
text of an exception that is not coolhead's own (it may quote a state), only its type and where it
was raised; no record breaks over two lines. Extra fields other than `job` and `reason` are dropped.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType
from typing import TextIO

from coolhead.errors import CoolheadError, NodeError, one_line

LOGGER = "coolhead"
FILE_BYTES = 10 << 20
FILES_KEPT = 7
FRAMES_SHOWN = 8

_EXTRAS = ("job", "reason")


class JsonFormatter(logging.Formatter):
    """`{"ts", "level", "logger", "node", "msg"}` and, where known, `job`, `reason`, `error`, `at`.

    `ts` is UTC in RFC 3339 with milliseconds; `at` lists the innermost frames, outermost first.
    """

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        """One JSON object without line breaks."""
        line: dict[str, object] = {
            "ts": _stamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "node": self._node,
            "msg": one_line(record.getMessage()),
            **_extras(record),
        }
        error, frames = _raised(record)
        if error:
            line |= {"error": error, "at": frames}
        return json.dumps(line, ensure_ascii=False, default=str)


class PlainFormatter(logging.Formatter):
    """`12:34:56.789 WARNING claim [job 1f3a]: text` for a person at a terminal; UTC."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        name = record.name.removeprefix(LOGGER + ".")
        extras = "".join(f" [{key} {value}]" for key, value in _extras(record).items())
        line = f"{_stamp(record)[11:23]} {record.levelname:7} {name}{extras}: {one_line(record.getMessage())}"
        error, frames = _raised(record)
        return f"{line} ({error} at {' < '.join(reversed(frames))})" if error else line


def setup_logging(
    node: str,
    *,
    as_json: bool = False,
    level: int | str = logging.INFO,
    stream: TextIO | None = None,
    file: Path | None = None,
) -> None:
    """Send the log to `stream` (stderr by default) or to a file that rotates by itself.

    Calling it again replaces what an earlier call set up. Other libraries are heard from WARNING on.

    Args:
        node: the node's name, for every JSON line.
        as_json: JSON lines instead of plain ones.
        level: the least level of coolhead's own loggers.
        stream: where to write when there is no file.
        file: kept at most `FILE_BYTES` long, with `FILES_KEPT` older ones; created with mode 0640.

    Raises:
        NodeError: the file can't be written.
    """
    handler = _handler(stream, file)
    handler.setFormatter(JsonFormatter(node) if as_json else PlainFormatter())
    root = logging.getLogger()
    for old in [old for old in root.handlers if getattr(old, "coolhead", False)]:
        root.removeHandler(old)
        old.close()
    handler.coolhead = True  # type: ignore[attr-defined]  # how the next call finds it
    root.addHandler(handler)
    logging.getLogger(LOGGER).setLevel(level)


def _handler(stream: TextIO | None, file: Path | None) -> logging.Handler:
    if file is None:
        return logging.StreamHandler(stream or sys.stderr)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o640)
        return RotatingFileHandler(file, maxBytes=FILE_BYTES, backupCount=FILES_KEPT, encoding="utf-8")
    except OSError as error:
        raise NodeError(f"can't write the log {file}: {error.strerror}") from None


def _stamp(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _extras(record: logging.LogRecord) -> dict[str, str]:
    found = ((key, getattr(record, key, None)) for key in _EXTRAS)
    return {key: one_line(str(value)) for key, value in found if value is not None}


def _raised(record: logging.LogRecord) -> tuple[str, list[str]]:
    """What was raised and where; ("", []) when nothing was."""
    if not record.exc_info or record.exc_info[1] is None:
        return "", []
    error, trace = record.exc_info[1], record.exc_info[2]
    own = f": {error}" if isinstance(error, CoolheadError) else ""
    return type(error).__name__ + own, _frames(trace)


def _frames(trace: TracebackType | None) -> list[str]:
    frames = traceback.extract_tb(trace)[-FRAMES_SHOWN:]
    return [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
