"""Which power a Mac draws and whether it saves it: IOKit, with `pmset` where IOKit does not answer.

Not run on a Mac: see `docs/mac-first-hour.md`.

Guarantee: what neither can tell is None. `UPS Power` is None too: it is neither mains nor the
machine's own battery, and macOS has been seen to report it wrongly.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from typing import Any

_SOURCES = {"AC Power": True, "Battery Power": False}
_FRAMEWORKS = "/System/Library/Frameworks"
_UTF8 = 0x08000100
_LOW = 1


class PowerSource:
    """IOKit's power source; `iokit` and `foundation` are libraries, stand-ins, or None."""

    def __init__(self, iokit: Any, foundation: Any) -> None:
        self._iokit = iokit
        self._foundation = foundation

    def name(self) -> str | None:
        """`AC Power`, `Battery Power`, `UPS Power`, or None when IOKit does not answer."""
        if self._iokit is None or self._foundation is None:
            return None
        snapshot = self._iokit.IOPSCopyPowerSourcesInfo()
        if not snapshot:
            return None
        try:
            # A Get function: the text belongs to the system and dies with the snapshot.
            return self._text(self._iokit.IOPSGetProvidingPowerSourceType(snapshot))
        finally:
            self._foundation.CFRelease(snapshot)

    def _text(self, reference: Any) -> str | None:
        buffer = ctypes.create_string_buffer(64)
        if not reference or not self._foundation.CFStringGetCString(reference, buffer, len(buffer), _UTF8):
            return None
        return buffer.value.decode(errors="replace")


class Pmset:
    """The command `pmset`, some ten milliseconds a call: never to be asked at every poll."""

    def run(self, what: str) -> str:
        """The output of `pmset -g WHAT`; empty when it fails."""
        try:
            done = subprocess.run(["pmset", "-g", what], capture_output=True, timeout=5, check=False)
        except (OSError, subprocess.SubprocessError):
            return ""
        return done.stdout.decode(errors="replace") if done.returncode == 0 else ""


def is_mains(source: str | None) -> bool | None:
    """Whether this power source is the mains; None for a UPS or when nobody knows."""
    return _SOURCES.get(source or "")


def source_of(batt: str) -> str | None:
    """The power source in the output of `pmset -g batt`."""
    found = re.search(r"drawing from '([^']+)'", batt)
    return found[1] if found else None


def charge_of(batt: str) -> float | None:
    """The charge of the internal battery, 0..1, in the output of `pmset -g batt`."""
    found = re.search(r"InternalBattery.*?(\d{1,3})%", batt)
    return min(int(found[1]), 100) / 100 if found else None


def low_power_of(custom: str, source: str | None) -> bool | None:
    """Low-power mode of the active source in the output of `pmset -g custom`.

    Macs with a high-power mode print `powermode` 0 automatic, 1 low, 2 high instead of
    `lowpowermode`. Without a known source all sections must agree. None when nothing is said.
    """
    said: dict[str, bool] = {}
    section = ""
    for line in custom.splitlines():
        if heading := re.fullmatch(r"(\w+ Power):\s*", line):
            section = heading[1]
        elif setting := re.fullmatch(r"\s*(?:lowpowermode|powermode)\s+(\d+)\s*", line):
            said[section] = said.get(section, False) or int(setting[1]) == _LOW
    if source in said:
        return said[source]
    answers = set(said.values())
    return answers.pop() if len(answers) == 1 else None


def load_power() -> PowerSource:
    """IOKit and CoreFoundation with signatures declared; silent where they do not exist."""
    try:
        iokit = ctypes.CDLL(f"{_FRAMEWORKS}/IOKit.framework/IOKit")
        foundation = ctypes.CDLL(f"{_FRAMEWORKS}/CoreFoundation.framework/CoreFoundation")
        _declare(iokit, foundation)
    except (OSError, AttributeError):
        return PowerSource(None, None)
    return PowerSource(iokit, foundation)


def _declare(iokit: Any, foundation: Any) -> None:
    pointer = ctypes.c_void_p
    iokit.IOPSCopyPowerSourcesInfo.argtypes, iokit.IOPSCopyPowerSourcesInfo.restype = [], pointer
    iokit.IOPSGetProvidingPowerSourceType.argtypes = [pointer]
    iokit.IOPSGetProvidingPowerSourceType.restype = pointer
    foundation.CFStringGetCString.argtypes = [pointer, ctypes.c_char_p, ctypes.c_long, ctypes.c_uint32]
    foundation.CFStringGetCString.restype = ctypes.c_bool
    foundation.CFRelease.argtypes, foundation.CFRelease.restype = [pointer], None
