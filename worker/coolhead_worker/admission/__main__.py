"""`python -m coolhead_worker.admission [SCRIPT]`: what the sensor reads, one JSON line a change.

For an operator who compares the readings with the system's own tools. Ends at Ctrl-C.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from coolhead_worker.admission.choose import sensor_for
from coolhead_worker.admission.gate import Mode, admit
from coolhead_worker.admission.sensor import Sensor
from coolhead_worker.admission.sensors_mac import MacSensor
from coolhead_worker.clock import Clock, SystemClock

LOOK_S = 1.0


def line(sensor: Sensor) -> dict[str, object]:
    """The newest reading, what `standard` makes of it, and on a Mac the raw thermal number."""
    conditions = sensor.read()
    admission = admit(conditions, Mode.STANDARD, None, now=conditions.read_at)
    values = asdict(conditions)
    del values["read_at"]
    raw = {"raw": sensor.raw_level} if isinstance(sensor, MacSensor) else {}
    return values | raw | {"lanes": sorted(admission.lanes), "reason": admission.reason}


def watch(sensor: Sensor, clock: Clock, out: TextIO, rounds: int | None = None) -> None:
    """Print a line at the start and whenever a reading differs; for ever when `rounds` is None.

    `by` tells what made it look: the `start`, an `event` of the sensor, or its own `clock`.
    """
    last: dict[str, object] = {}
    by = "start"
    while rounds is None or rounds > 0:
        now = line(sensor)
        if now != last:
            stamp = time.strftime("%H:%M:%S", time.localtime(clock.wall()))
            out.write(json.dumps({"time": stamp, "by": by} | now) + "\n")
            out.flush()
            last = now
        rounds = None if rounds is None else rounds - 1
        if rounds != 0:
            by = "event" if sensor.wait(LOOK_S) else "clock"


def look(script: Path | None, rounds: int | None = None) -> None:
    """Watch this machine, or a script file, on standard output.

    Args:
        script: a file that plays the machine, or None for its own sensors.
        rounds: how many looks; None for ever.
    """
    clock = SystemClock()
    sensor = sensor_for(sys.platform, script, clock)
    try:
        watch(sensor, clock, sys.stdout, rounds)
    finally:
        sensor.close()


def main(arguments: Sequence[str]) -> int:
    """Watch this machine, or a script file, until Ctrl-C."""
    with contextlib.suppress(KeyboardInterrupt):
        look(Path(arguments[0]) if arguments else None)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
