"""Sources of heat that come, fall silent and go."""

from __future__ import annotations

from pathlib import Path

import pytest

from coolhead_worker.admission.conditions import Conditions
from coolhead_worker.admission.linux_heat import LinuxHeat
from coolhead_worker.admission.sysfs import SysFiles
from tests.admission.machines import EAGAIN, FakeMachine, chip, throttled, zone

CPU = zone(0, "x86_pkg_temp", 50_000, ("passive", 95_000), ("critical", 105_000))
GPU = zone(1, "gpu-thermal", 50_000)
GPU_TEMP = "sys/class/thermal/thermal_zone1/temp"


def told(read: Conditions) -> tuple[str, bool, str]:
    return read.thermal.value, read.vanished, read.vanished_source


def test_a_zone_that_is_taken_away_is_vanished_until_it_is_back(tmp_path: Path) -> None:
    files = FakeMachine(tmp_path, CPU | GPU)
    heat = LinuxHeat(files)
    assert told(heat.read(0)) == ("nominal", False, "")
    files.remove("sys/class/thermal/thermal_zone1")
    assert told(heat.read(1)) == ("nominal", True, "gpu-thermal")
    files.write(GPU)
    assert told(heat.read(2)) == ("nominal", False, "")


def test_a_zone_that_moved_to_another_number_is_still_there(tmp_path: Path) -> None:
    files = FakeMachine(tmp_path, CPU | GPU)
    heat = LinuxHeat(files)
    heat.read(0)
    files.remove("sys/class/thermal/thermal_zone1")
    files.write(zone(4, "gpu-thermal", 50_000))
    assert told(heat.read(1)) == ("nominal", False, "")


def test_a_zone_that_falls_silent_beside_another_is_only_skipped(tmp_path: Path) -> None:
    files = FakeMachine(tmp_path, CPU | zone(1, "gpu-thermal", 99_000))
    heat = LinuxHeat(files)
    assert told(heat.read(0)) == ("serious", False, "")
    files.silent = {GPU_TEMP: EAGAIN}
    assert told(heat.read(1)) == ("nominal", False, "")


def test_when_every_known_source_is_silent_the_machine_has_gone_blind(tmp_path: Path) -> None:
    files = FakeMachine(tmp_path, GPU)
    heat = LinuxHeat(files)
    heat.read(0)
    files.silent = {GPU_TEMP: EAGAIN}
    assert told(heat.read(1)) == ("unknown", True, "gpu-thermal")
    files.silent = {}
    assert told(heat.read(2)) == ("nominal", False, "")


def test_a_machine_that_loses_all_of_sys_is_unknown_and_vanished(tmp_path: Path) -> None:
    files = FakeMachine(tmp_path, CPU | GPU)
    heat = LinuxHeat(files)
    heat.read(0)
    files.remove("sys")
    assert told(heat.read(1)) == ("unknown", True, "gpu-thermal + x86_pkg_temp")


def test_chips_are_read_only_where_no_zone_speaks(tmp_path: Path) -> None:
    files = FakeMachine(tmp_path, CPU | chip(0, "coretemp", (99_000, 100_000)))
    assert told(LinuxHeat(files).read(0)) == ("nominal", False, "")
    files.remove("sys/class/thermal/thermal_zone0")
    assert told(LinuxHeat(files).read(0)) == ("critical", False, "")


def test_throttling_is_heat_even_when_the_zones_are_calm(tmp_path: Path) -> None:
    files = FakeMachine(tmp_path, CPU | throttled(0, 1000))
    heat = LinuxHeat(files)
    assert heat.read(0).thermal == "nominal"
    files.write(throttled(0, 1100))
    assert (heat.read(10).thermal, heat.read(10).thermal_source) == ("fair", "throttle counter")
    files.write(throttled(0, 9000))
    assert heat.read(20).thermal == "serious"


def test_the_package_with_the_smaller_counter_is_heard_too(tmp_path: Path) -> None:
    files = FakeMachine(tmp_path, throttled(0, 900_000) | throttled(8, 10, package=1))
    heat = LinuxHeat(files)
    assert told(heat.read(0)) == ("unknown", False, "")
    assert told(heat.read(10)) == ("nominal", False, "")
    files.write(throttled(8, 5_010, package=1))
    assert told(heat.read(20)) == ("serious", False, "")
    assert told(heat.read(30)) == ("nominal", False, "")
    files.write(throttled(0, 905_000))
    assert told(heat.read(40)) == ("serious", False, "")


def test_a_processor_that_goes_offline_leaves_its_package_to_a_sibling(tmp_path: Path) -> None:
    files = FakeMachine(tmp_path, throttled(2, 0) | throttled(3, 0))
    heat = LinuxHeat(files)
    heat.read(0)
    assert heat.read(10).thermal == "nominal"
    files.remove("sys/devices/system/cpu/cpu2/thermal_throttle")
    heat.read(20)  # the sibling's first reading
    files.write(throttled(3, 9_000))
    assert told(heat.read(30)) == ("serious", False, "")


def test_trip_tables_are_read_once(tmp_path: Path) -> None:
    read: list[str] = []

    class Counting(SysFiles):
        def load(self, path: Path) -> str:
            read.append(path.name)
            return super().load(path)

    FakeMachine(tmp_path, CPU)
    heat = LinuxHeat(Counting(tmp_path))
    heat.read(0)
    assert "trip_point_0_temp" in read
    read.clear()
    heat.read(1)
    assert "temp" in read
    assert not [name for name in read if name.startswith("trip_point")]


def test_another_zone_under_an_old_number_has_its_own_trips(tmp_path: Path) -> None:
    files = FakeMachine(tmp_path, zone(0, "acpitz", 70_000, ("passive", 60_000)))
    heat = LinuxHeat(files)
    assert heat.read(0).thermal == "serious"
    files.remove("sys/class/thermal/thermal_zone0")
    files.write(zone(0, "x86_pkg_temp", 70_000, ("passive", 95_000)))
    assert told(heat.read(1)) == ("nominal", True, "acpitz")


@pytest.mark.parametrize("text", ["", "abc", "1.5", "1\x00", "٣x"])
def test_what_is_not_a_number_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "value").write_text(text)
    assert SysFiles(tmp_path).number("value") is None


def test_a_relative_root_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeMachine(tmp_path / "machine", CPU)
    monkeypatch.chdir(tmp_path)
    assert LinuxHeat(SysFiles(Path("machine"))).read(0).thermal == "nominal"


def test_binary_rubbish_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "type").write_bytes(b"\xff\xfe\x80")
    assert SysFiles(tmp_path).text("type") is None


def test_a_part_of_sys_that_is_hidden_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> bool:
        raise PermissionError(13, "hidden")

    files = FakeMachine(tmp_path, CPU)
    monkeypatch.setattr(Path, "is_dir", refuse)
    monkeypatch.setattr(Path, "exists", refuse)
    assert files.folders("sys/class/thermal/*") == []
    assert files.exists("sys") is False
