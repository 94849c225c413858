"""Every platform gets a sensor."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from coolhead_worker.admission.choose import sensor_for
from coolhead_worker.clock import ManualClock


@pytest.mark.parametrize(
    ("platform", "name"),
    [("linux", "linux"), ("darwin", "macos"), ("freebsd14", "none"), ("win32", "none")],
)
def test_a_platform_has_its_sensor(platform: str, name: str, clock: ManualClock) -> None:
    sensor = sensor_for(platform, None, clock)
    assert sensor.name == name
    assert sensor.read().read_at == clock.now
    sensor.close()


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_a_script_replaces_the_sensor_of_any_platform(
    platform: str, tmp_path: Path, clock: ManualClock
) -> None:
    sensor = sensor_for(platform, tmp_path / "conditions", clock)
    assert sensor.name == "scripted"
    sensor.close()


def test_on_another_platform_the_mac_sensor_is_unknown_and_does_not_fall(clock: ManualClock) -> None:
    if sys.platform == "darwin":
        pytest.skip("this is a Mac")
    sensor = sensor_for("darwin", None, clock)
    read = sensor.read()
    assert (read.thermal, read.on_ac, read.low_power, read.memory) == ("unknown", None, None, "unknown")
    sensor.close()
