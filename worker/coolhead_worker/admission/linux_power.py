"""Power and memory of a Linux machine.

Guarantee: what is not there is None or unknown: a desktop without a power supply entry is neither
on mains nor on battery, a kernel without pressure information has no memory level.
"""

from __future__ import annotations

import re
from pathlib import Path

from coolhead_worker.admission.conditions import Conditions, Memory
from coolhead_worker.admission.sysfs import SysFiles

_SUPPLIES = "sys/class/power_supply/*"
_MAINS = frozenset({"Mains", "USB", "Wireless"})
_PROFILE = "sys/firmware/acpi/platform_profile"
_PRESSURE = "proc/pressure/memory"
PROFILE_SOURCE = "platform_profile"
PRESSURE_SOURCE = "pressure/memory"
#: Share of the last 10 s, in percent, in which some task, or every task, waited for memory.
_SOME_WARN = 10.0
_FULL_CRITICAL = 20.0


def power(files: SysFiles) -> Conditions:
    """Mains, charge and low-power profile."""
    low_power = _low_power(files)
    return Conditions(
        on_ac=_on_ac(files),
        battery=_charge(files),
        low_power=low_power,
        low_power_source="" if low_power is None else PROFILE_SOURCE,
    )


def memory(files: SysFiles) -> Conditions:
    """Memory pressure from PSI: warn when some tasks wait, critical when all do."""
    text = files.text(_PRESSURE) or ""
    averages = {kind: float(value) for kind, value in re.findall(r"(some|full) avg10=(\d+\.?\d*)", text)}
    if "some" not in averages:
        return Conditions()
    level = Memory.WARN if averages["some"] >= _SOME_WARN else Memory.NORMAL
    if averages.get("full", 0.0) >= _FULL_CRITICAL:
        level = Memory.CRITICAL
    return Conditions(memory=level, memory_source=PRESSURE_SOURCE)


def _on_ac(files: SysFiles) -> bool | None:
    """True when any charger is online; without a charger entry, what the battery does."""
    online = [
        files.number(folder / "online")
        for folder in files.folders(_SUPPLIES)
        if files.text(folder / "type") in _MAINS and _is_ours(files, folder)
    ]
    known = [value for value in online if value is not None]
    if known:
        return any(known)
    states = {files.text(folder / "status") for folder in _batteries(files)}
    if "Discharging" in states:
        return False
    return True if states & {"Charging", "Full", "Not charging"} else None


def _charge(files: SysFiles) -> float | None:
    """Mean charge of the machine's own batteries, 0..1."""
    charges = [files.number(folder / "capacity") for folder in _batteries(files)]
    known = [charge for charge in charges if charge is not None and 0 <= charge <= 100]
    return sum(known) / len(known) / 100 if known else None


def _batteries(files: SysFiles) -> list[Path]:
    return [
        folder
        for folder in files.folders(_SUPPLIES)
        if files.text(folder / "type") == "Battery" and _is_ours(files, folder)
    ]


def _is_ours(files: SysFiles, folder: Path) -> bool:
    """False for the battery of a mouse or a headset."""
    return files.text(folder / "scope") != "Device"


def _low_power(files: SysFiles) -> bool | None:
    """The firmware's power saver: `low-power`, or `quiet` on machines that have no `low-power`."""
    profile = files.text(_PROFILE)
    if profile is None:
        return None
    choices = (files.text(_PROFILE + "_choices") or "").split()
    return profile == "low-power" or (profile == "quiet" and "low-power" not in choices)
