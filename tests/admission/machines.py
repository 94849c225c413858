"""Linux machines as the files that they show, for a root in a temporary folder.

The shapes follow real machines: which zones and trips they list, which supplies, which profile.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path

from coolhead_worker.admission.sysfs import SysFiles

Tree = dict[str, str]


def zone(number: int, kind: str, temp: object, *trips: tuple[str, int]) -> Tree:
    """A thermal zone; temperatures in 1/1000 C as the kernel writes them."""
    base = f"sys/class/thermal/thermal_zone{number}"
    tree = {f"{base}/type": kind, f"{base}/temp": str(temp)}
    for index, (trip, at) in enumerate(trips):
        tree |= {f"{base}/trip_point_{index}_type": trip, f"{base}/trip_point_{index}_temp": str(at)}
    return tree


def chip(number: int, name: str, *temps: tuple[int, int | None]) -> Tree:
    """A hwmon chip: (temperature, critical) pairs."""
    base = f"sys/class/hwmon/hwmon{number}"
    tree = {f"{base}/name": name}
    for index, (temp, critical) in enumerate(temps, 1):
        tree[f"{base}/temp{index}_input"] = str(temp)
        if critical is not None:
            tree[f"{base}/temp{index}_crit"] = str(critical)
    return tree


def supply(name: str, kind: str, **values: object) -> Tree:
    """A power supply."""
    base = f"sys/class/power_supply/{name}"
    return {f"{base}/type": kind} | {f"{base}/{key}": str(value) for key, value in values.items()}


def profile(now: str, choices: str = "low-power balanced performance") -> Tree:
    """The firmware's power profile."""
    base = "sys/firmware/acpi/platform_profile"
    return {base: now, f"{base}_choices": choices}


def pressure(some: float, full: float) -> Tree:
    """Memory pressure over the last 10 s, in percent."""
    rest = "avg60=0.00 avg300=0.00 total=0"
    return {"proc/pressure/memory": f"some avg10={some:.2f} {rest}\nfull avg10={full:.2f} {rest}"}


def throttled(cpu: int, milliseconds: int, package: int = 0) -> Tree:
    """The throttle counter of one processor."""
    base = f"sys/devices/system/cpu/cpu{cpu}"
    return {
        f"{base}/thermal_throttle/package_throttle_total_time_ms": str(milliseconds),
        f"{base}/topology/physical_package_id": str(package),
    }


class FakeMachine(SysFiles):
    """A root that holds a tree; some files may answer as a silent device does."""

    def __init__(self, root: Path, tree: Mapping[str, str]) -> None:
        super().__init__(root)
        self.root = root
        self.silent: dict[str, int] = {}
        self.write(tree)

    def write(self, tree: Mapping[str, str]) -> None:
        for name, text in tree.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")

    def remove(self, folder: str) -> None:
        """Take a device away."""
        for path in sorted((self.root / folder).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        (self.root / folder).rmdir()

    def load(self, path: Path) -> str:
        code = self.silent.get(str(path.relative_to(self.root)))
        if code is not None:
            raise OSError(code, os.strerror(code))
        return super().load(path)


EAGAIN = errno.EAGAIN
ENODATA = errno.ENODATA
