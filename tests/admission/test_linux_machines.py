"""What the Linux sensor says about machines of many shapes."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from coolhead_worker.admission.gate import Mode, admit
from coolhead_worker.admission.sensors_linux import LinuxSensor
from coolhead_worker.clock import ManualClock
from tests.admission.machines import (
    EAGAIN,
    ENODATA,
    FakeMachine,
    Tree,
    chip,
    pressure,
    profile,
    supply,
    throttled,
    zone,
)

INTEL = (("passive", 95_000), ("critical", 105_000))
WIFI = zone(7, "iwlwifi_1", 99_000)
MOUSE = supply("hidpp_battery_0", "Battery", scope="Device", capacity=5, status="Discharging")
LAPTOP_ON_MAINS = (
    supply("AC", "Mains", online=1)
    | supply("BAT0", "Battery", capacity=81, status="Charging", scope="System")
    | MOUSE
)
LAPTOP_ON_BATTERY = (
    supply("AC", "Mains", online=0) | supply("BAT0", "Battery", capacity=41, status="Discharging") | MOUSE
)

#: name: (files, files that answer with an error, what must be read)
MACHINES: dict[str, tuple[Tree, dict[str, int], dict[str, object]]] = {
    "laptop": (
        zone(0, "acpitz", 52_000, ("critical", 120_000)) | zone(1, "INT3400 Thermal", 20_000) | WIFI
        | zone(2, "x86_pkg_temp", 88_000, *INTEL) | throttled(0, 0) | throttled(1, 0)
        | LAPTOP_ON_MAINS | profile("balanced") | pressure(0.5, 0.0),
        {},
        {"thermal": "fair", "thermal_source": "x86_pkg_temp", "on_ac": True, "battery": 0.81,
         "low_power": False, "memory": "normal", "vanished": False},
    ),
    "laptop on battery": (
        zone(0, "x86_pkg_temp", 50_000, *INTEL) | LAPTOP_ON_BATTERY | profile("balanced"),
        {},
        {"thermal": "nominal", "on_ac": False, "battery": 0.41, "low_power": False},
    ),
    "laptop in the low-power profile": (
        zone(0, "x86_pkg_temp", 45_000, *INTEL) | LAPTOP_ON_BATTERY | profile("low-power"),
        {},
        {"thermal": "nominal", "low_power": True, "low_power_source": "platform_profile"},
    ),
    "laptop whose low power is called quiet": (
        zone(0, "TCPU", 45_000, *INTEL) | profile("quiet", "quiet balanced performance"),
        {},
        {"low_power": True},
    ),
    "laptop whose quiet is not its low power": (
        zone(0, "TCPU", 45_000, *INTEL) | profile("quiet", "low-power quiet balanced"),
        {},
        {"low_power": False},
    ),
    "laptop with two batteries and USB-C": (
        zone(0, "acpitz", 45_000)
        | supply("BAT0", "Battery", capacity=0, status="Not charging")
        | supply("BAT1", "Battery", capacity=90, status="Discharging")
        | supply("ucsi-source-psy-1", "USB", online=0) | supply("ucsi-source-psy-2", "USB", online=1),
        {},
        {"on_ac": True, "battery": 0.45},
    ),
    "tablet without a charger entry": (
        zone(0, "cpu-thermal", 45_000) | supply("bat", "Battery", capacity=50, status="Discharging"),
        {},
        {"on_ac": False, "battery": 0.5},
    ),
    "server": (
        zone(0, "x86_pkg_temp", 96_000, ("passive", 95_000), ("critical", 115_000))
        | zone(1, "x86_pkg_temp", 60_000) | throttled(0, 900_000) | throttled(32, 10, package=1)
        | pressure(35.0, 22.0),
        {},
        {"thermal": "serious", "thermal_source": "x86_pkg_temp", "on_ac": None, "battery": None,
         "low_power": None, "memory": "critical", "memory_source": "pressure/memory"},
    ),
    "server short of memory, not yet out of it": (
        zone(0, "x86_pkg_temp", 50_000) | pressure(12.0, 3.0),
        {},
        {"thermal": "nominal", "memory": "warn"},
    ),
    "AMD desktop with chips only": (
        chip(0, "nvme", (80_000, 84_000)) | chip(1, "k10temp", (88_000, None), (60_000, None)),
        {},
        {"thermal": "fair", "thermal_source": "k10temp", "on_ac": None},
    ),
    "Raspberry Pi": (
        zone(0, "cpu-thermal", 81_000, ("critical", 110_000)),
        {},
        {"thermal": "serious", "thermal_source": "cpu-thermal", "low_power": None},
    ),
    "GB10 with one number for every trip": (
        zone(0, "acpitz", 90_500, ("passive", 104_800), ("hot", 104_800), ("critical", 104_800))
        | zone(1, "acpitz", 70_000, ("passive", 104_800), ("critical", 104_800)),
        {},
        {"thermal": "critical", "thermal_source": "acpitz"},
    ),
    "virtual machine with nothing": (
        pressure(0.0, 0.0),
        {},
        {"thermal": "unknown", "thermal_source": "no sensor", "on_ac": None, "battery": None,
         "low_power": None, "memory": "normal", "vanished": False},
    ),
    "container without /sys": (
        {},
        {},
        {"thermal": "unknown", "thermal_source": "no sensor", "memory": "unknown", "memory_source": ""},
    ),
    "junk trips": (
        zone(0, "acpitz", 50_000, ("passive", -274_000), ("critical", 0)),
        {},
        {"thermal": "nominal", "thermal_source": "acpitz"},
    ),
    "junk temperature": (
        zone(0, "acpitz", -273_200, ("critical", 105_000)) | zone(1, "TCPU", "n/a"),
        {},
        {"thermal": "unknown", "thermal_source": "no sensor"},
    ),
    "an idle zone that answers EAGAIN beside one that speaks": (
        zone(0, "gpu-thermal", 0, ("critical", 105_000)) | zone(1, "cpu-thermal", 60_000),
        {"sys/class/thermal/thermal_zone0/temp": EAGAIN},
        {"thermal": "nominal", "thermal_source": "cpu-thermal", "vanished": False},
    ),
    "only silent zones": (
        zone(0, "gpu-thermal", 0) | zone(1, "soc-thermal", 0),
        {"sys/class/thermal/thermal_zone0/temp": EAGAIN, "sys/class/thermal/thermal_zone1/temp": ENODATA},
        {"thermal": "unknown", "thermal_source": "no sensor", "vanished": False},
    ),
}  # fmt: skip


@pytest.mark.parametrize("machine", MACHINES)
def test_a_machine_is_read_as_what_it_is(tmp_path: Path, clock: ManualClock, machine: str) -> None:
    tree, silent, expected = MACHINES[machine]
    files = FakeMachine(tmp_path, tree)
    files.silent = silent
    sensor = LinuxSensor(clock, files)
    read = asdict(sensor.read())
    assert {name: read[name] for name in expected} == expected
    assert read["read_at"] == clock.now
    sensor.close()


@pytest.mark.parametrize(
    ("machine", "lanes", "reason"),
    [
        ("laptop", 2, ""),
        ("laptop in the low-power profile", 0, "low power mode on (platform_profile)"),
        ("server", 0, "thermal serious (x86_pkg_temp)"),
        ("Raspberry Pi", 0, "thermal serious (cpu-thermal)"),
        ("virtual machine with nothing", 2, ""),
    ],
)
def test_the_gate_says_why_a_machine_rests(
    tmp_path: Path, clock: ManualClock, machine, lanes, reason
) -> None:
    tree, _, _ = MACHINES[machine]
    sensor = LinuxSensor(clock, FakeMachine(tmp_path, tree))
    admission = admit(sensor.read(), Mode.STANDARD, None, now=clock.now)
    assert (len(admission.lanes), admission.reason) == (lanes, reason)
    sensor.close()


def test_this_very_machine_can_be_read(clock: ManualClock) -> None:
    sensor = LinuxSensor(clock)
    read = sensor.read()
    assert read.thermal_source
    assert read.vanished is False
    assert read.battery is None or 0 <= read.battery <= 1
    sensor.close()


def test_a_wait_ends_by_wake(tmp_path: Path, clock: ManualClock, sleeper) -> None:
    sensor = LinuxSensor(clock, FakeMachine(tmp_path, {}))
    waiting = sleeper(lambda: sensor.wait(60))
    sensor.wake()
    assert waiting.ended()
    assert waiting.result is True
    sensor.close()
