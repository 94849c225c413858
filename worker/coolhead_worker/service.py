"""A node as a process: log, signals, run, exit.

Guarantee: SIGTERM and SIGINT end the process with 0 after the batch in hand is settled; a second
signal changes nothing, so that an impatient supervisor can't lose a batch.
"""

from __future__ import annotations

import logging
import signal
from types import FrameType

from coolhead_worker.assembly import assembled
from coolhead_worker.logs import setup_logging
from coolhead_worker.node import Node
from coolhead_worker.settings import Settings

_log = logging.getLogger("coolhead.node")


def serve(settings: Settings) -> None:
    """Run a node until it is told to stop; errors as in `assembled`."""
    setup_logging(settings.node, as_json=settings.log_json, file=settings.log_file)
    with assembled(settings) as node:
        _stop_on_signals(node)
        _log.info("node %s is ready", settings.node)
        node.run()
    _log.info("node %s has stopped", settings.node)


def _stop_on_signals(node: Node) -> None:
    def stop(_number: int, _frame: FrameType | None) -> None:
        node.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
