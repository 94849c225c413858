"""Which sensor a node uses.

Guarantee: every platform gets a sensor; one that coolhead can't ask gets the one that says so.
"""

from __future__ import annotations

from pathlib import Path

from coolhead_worker.admission.sensor import NoSensor, Sensor
from coolhead_worker.admission.sensors_linux import LinuxSensor
from coolhead_worker.admission.sensors_mac import MacSensor
from coolhead_worker.admission.sensors_scripted import ScriptedSensor
from coolhead_worker.clock import Clock


def sensor_for(platform: str, scripted_path: Path | None, clock: Clock) -> Sensor:
    """The sensor for a platform.

    Args:
        platform: `sys.platform`.
        scripted_path: a script file that replaces the machine's own sensors, or None.
        clock: times the readings.
    """
    if scripted_path is not None:
        return ScriptedSensor(scripted_path, clock)
    if platform == "darwin":
        return MacSensor.open(clock)
    if platform.startswith("linux"):
        return LinuxSensor(clock)
    return NoSensor(clock)
