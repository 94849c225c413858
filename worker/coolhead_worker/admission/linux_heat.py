"""Heat of a Linux machine: thermal zones, hwmon chips where there are no zones, throttle counters.

Guarantee: a source that was read once is remembered; when it is gone the reading says so. A source
that is merely silent (an idle device answers EAGAIN) is skipped while another one still speaks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from coolhead_worker.admission.conditions import JOINER, Conditions, Thermal, combine
from coolhead_worker.admission.sysfs import SysFiles
from coolhead_worker.admission.throttle import ThrottleMeter
from coolhead_worker.admission.zone import Zone

_ZONES = "sys/class/thermal/thermal_zone*"
_CHIPS = "sys/class/hwmon/hwmon*"
_COUNTERS = "sys/devices/system/cpu/cpu[0-9]*/thermal_throttle"
_COUNTER = "package_throttle_total_time_ms"
THROTTLE = "throttle counter"
NO_SENSOR = "no sensor"


class LinuxHeat:
    """Reads levels and remembers which sources there have been."""

    def __init__(self, files: SysFiles) -> None:
        self._files = files
        self._trips: dict[tuple[Path, str], list[tuple[str, int | None]]] = {}
        self._meters: dict[Path, ThrottleMeter] = {}
        self._known: set[str] = set()

    def read(self, now: float) -> Conditions:
        """The hottest level with the names of its sources; `now` in monotonic seconds."""
        parts = list(self._zones()) or list(self._chips())
        parts += self._throttling(now)
        speaking = [part for part in parts if part.thermal is not Thermal.UNKNOWN]
        self._known |= {part.thermal_source for part in speaking}
        gone = self._known - self._present() if speaking else self._known
        lost = Conditions(vanished=bool(gone), vanished_source=JOINER.join(sorted(gone)))
        return combine([*(speaking or parts or [Conditions(thermal_source=NO_SENSOR)]), lost])

    def _zones(self) -> Iterator[Conditions]:
        for folder in self._files.folders(_ZONES):
            kind = self._files.text(folder / "type") or ""
            zone = Zone.make(kind, self._files.number(folder / "temp"), self._zone_trips(folder, kind))
            if zone is not None:
                yield Conditions(zone.level, zone.type)

    def _zone_trips(self, folder: Path, kind: str) -> list[tuple[str, int | None]]:
        """The trip table: read once, because it stays and has many files."""
        if (folder, kind) not in self._trips:
            self._trips[folder, kind] = [
                (
                    self._files.text(path) or "",
                    self._files.number(path.with_name(path.name.replace("_type", "_temp"))),
                )
                for path in sorted(folder.glob("trip_point_*_type"))
            ]
        return self._trips[folder, kind]

    def _chips(self) -> Iterator[Conditions]:
        for folder in self._files.folders(_CHIPS):
            name = self._files.text(folder / "name") or ""
            for path in sorted(folder.glob("temp*_input")):
                critical = self._files.number(path.with_name(path.name.replace("_input", "_crit")))
                zone = Zone.make(name, self._files.number(path), [("critical", critical)])
                if zone is not None:
                    yield Conditions(zone.level, zone.type)

    def _throttling(self, now: float) -> Iterator[Conditions]:
        """One meter for each package: the larger counter may be the one that stands still."""
        for folder in self._packages():
            total = self._files.number(folder / _COUNTER)
            if total is not None:
                meter = self._meters.setdefault(folder, ThrottleMeter())
                yield Conditions(meter.update(now, total), THROTTLE)

    def _packages(self) -> list[Path]:
        """One counter folder for each package, as all processors of a package count the same."""
        if self._meters and all(self._files.exists(folder / _COUNTER) for folder in self._meters):
            return list(self._meters)
        packages: dict[str, Path] = {}
        for folder in self._files.folders(_COUNTERS):
            package = self._files.text(folder.parent / "topology/physical_package_id") or str(folder)
            packages.setdefault(package, folder)
        self._meters = {path: self._meters.get(path, ThrottleMeter()) for path in packages.values()}
        return list(self._meters)

    def _present(self) -> set[str]:
        """Names of the sources that exist, speaking or silent."""
        names = {self._files.text(folder / "type") for folder in self._files.folders(_ZONES)}
        names |= {self._files.text(folder / "name") for folder in self._files.folders(_CHIPS)}
        names |= {THROTTLE for folder in self._meters if self._files.exists(folder / _COUNTER)}
        return {name for name in names if name}
