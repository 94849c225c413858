"""The watch that an operator runs beside the system's own tools."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from coolhead_worker.admission.__main__ import line, look, watch
from coolhead_worker.admission.conditions import Conditions, Thermal
from coolhead_worker.admission.fake import FakeSensor
from coolhead_worker.admission.mac_power import PowerSource
from coolhead_worker.admission.sensors_mac import THERMAL_KEY, MacSensor
from coolhead_worker.clock import ManualClock
from tests.admission.maclib import StubPmset, StubPower, StubSystem


def test_a_line_is_written_at_the_start_and_at_every_change(clock: ManualClock) -> None:
    course = iter([Thermal.NOMINAL, Conditions(Thermal.SERIOUS, "fake"), Thermal.NOMINAL])

    def on_wait(timeout_s: float) -> bool:
        level = next(course)
        sensor.become(level)
        return level is not Thermal.NOMINAL

    sensor = FakeSensor(clock, on_wait=on_wait)
    out = io.StringIO()
    watch(sensor, clock, out, rounds=4)
    lines = [json.loads(text) for text in out.getvalue().splitlines()]
    assert [one["by"] for one in lines] == ["start", "event", "clock"]
    assert [one["thermal"] for one in lines] == ["nominal", "serious", "nominal"]
    assert [one["reason"] for one in lines] == ["", "thermal serious (fake)", ""]
    assert [one["lanes"] for one in lines] == [["bulk", "interactive"], [], ["bulk", "interactive"]]
    sensor.close()


def test_a_mac_shows_the_raw_number_beside_the_level(clock: ManualClock) -> None:
    power = StubPower()
    system = StubSystem({THERMAL_KEY: 7})
    sensor = MacSensor(clock, system, PowerSource(power, power), StubPmset(), lambda: None)
    shown = line(sensor)
    assert (shown["thermal"], shown["raw"]) == ("unknown", 7)
    sensor.close()


def test_one_look_ends_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    look(tmp_path / "no file", rounds=1)
    shown = json.loads(capsys.readouterr().out)
    assert (shown["by"], shown["thermal"], shown["vanished"]) == ("start", "unknown", False)


@pytest.mark.process
def test_the_command_watches_a_script_until_ctrl_c(tmp_path: Path) -> None:
    script = tmp_path / "conditions"
    script.write_text('{"thermal": "fair", "battery": 0.5}')
    command = [sys.executable, "-m", "coolhead_worker.admission", str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = json.loads(process.stdout.readline())
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""
    assert (first["thermal"], first["battery"]) == ("fair", 0.5)
