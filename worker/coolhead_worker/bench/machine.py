"""The machine that figures come from, in a few words.

Guarantee: no name of a host or a user; what can't be found out is left empty.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    """`cores`: logical ones that this process may use. `flags`: of those that matter to matrices."""

    system: str
    processor: str
    cores: int
    flags: tuple[str, ...]
    python: str

    def wire(self) -> dict[str, object]:
        """Plain data."""
        return asdict(self)

    def __str__(self) -> str:
        extras = f" ({' '.join(self.flags)})" if self.flags else ""
        return f"{self.processor or 'unknown processor'}{extras}, {self.cores} cores, {self.system}"


_MATTER = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "asimddp", "i8mm", "bf16")


def this_machine(cpuinfo: Path = Path("/proc/cpuinfo")) -> Machine:
    """What the system tells of itself."""
    fields = _fields(cpuinfo)
    said = set(fields.get("flags", fields.get("Features", "")).split())
    return Machine(
        system=f"{platform.system()} {platform.machine()}",
        processor=fields.get("model name") or _brand(),
        cores=_cores(),
        flags=tuple(flag for flag in _MATTER if flag in said),
        python=platform.python_version(),
    )


def _cores() -> int:
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _fields(cpuinfo: Path) -> dict[str, str]:
    """The first processor's lines."""
    try:
        lines = cpuinfo.read_text().split("\n\n")[0].splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _brand() -> str:
    if sys.platform != "darwin":
        return platform.processor()
    command = ["sysctl", "-n", "machdep.cpu.brand_string"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    return done.stdout.strip()
