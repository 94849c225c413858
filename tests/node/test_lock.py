"""One worker a node, whatever happens to the one that held the lock."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from coolhead.errors import NodeBusy, NodeError
from coolhead_worker.lock import NodeLock

HOLDER = """
import sys
from pathlib import Path
from coolhead_worker.lock import NodeLock
NodeLock(Path(sys.argv[1])).acquire()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path):
    """Another process that holds the lock."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "node.lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.mark.process
def test_a_second_worker_is_refused_at_once_and_told_who_holds_the_node(holder, tmp_path: Path) -> None:
    with pytest.raises(NodeBusy, match=f"pid {holder.pid}"):
        NodeLock(tmp_path / "node.lock").acquire()


@pytest.mark.process
def test_a_killed_worker_leaves_the_node_free(holder, tmp_path: Path) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with NodeLock(tmp_path / "node.lock"):
        pass


def test_a_released_lock_can_be_taken_again(tmp_path: Path) -> None:
    first, second = NodeLock(tmp_path / "n.lock"), NodeLock(tmp_path / "n.lock")
    with first, pytest.raises(NodeBusy):
        second.acquire()
    with second:
        pass


def test_a_lock_that_cannot_be_opened_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NodeError, match="can't open the lock") as caught:
        NodeLock(tmp_path / "file" / "node.lock").acquire()
    assert "\n" not in str(caught.value)
