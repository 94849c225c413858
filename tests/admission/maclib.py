"""Stand-ins for Apple's libraries that record every call; real pipes carry the posts."""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Any

from coolhead_worker.admission.mac_power import Pmset

NOTIFY_REUSE = 1
FAILED = 1_000_000


class StubSystem:
    """libSystem with notifyd behind it: `states` by key, `refused` keys can't be registered."""

    def __init__(self, states: dict[str, int], *, refused: set[str] | None = None) -> None:
        self.states = dict(states)
        self.refused = refused or set()
        self.sysctl = {"kern.memorystatus_vm_pressure_level": 1}
        self.sysctl_size = 4
        self.calls: list[tuple[str, str]] = []
        self.tokens: dict[int, str] = {}
        self.unreadable: set[str] = set()
        self._next = 0x01020304  # four different bytes: a wrong byte order can't pass
        self._ends: dict[int, int] = {}
        self._users: dict[int, int] = {}

    def notify_register_file_descriptor(self, name: bytes, fd: Any, flags: int, token: Any) -> int:
        key = name.decode()
        self.calls.append(("register", key))
        if key in self.refused:
            return FAILED
        if flags == NOTIFY_REUSE:
            assert fd._obj.value in self._ends, "reuse of a descriptor that is not ours"
        else:
            read_end, self_end = os.pipe()
            self._ends[read_end] = self_end
            fd._obj.value = read_end
        self._users[self._next] = fd._obj.value
        self.tokens[self._next] = key
        token._obj.value = self._next
        self._next += 0x01010101
        return 0

    def notify_get_state(self, token: int, state: Any) -> int:
        key = self.tokens[token]
        self.calls.append(("state", key))
        if key in self.unreadable:
            return FAILED
        state._obj.value = self.states.get(key, 0)
        return 0

    def notify_cancel(self, token: int) -> int:
        self.calls.append(("cancel", self.tokens.pop(token)))
        fd = self._users.pop(token)
        if fd not in self._users.values():
            os.close(fd)
            os.close(self._ends.pop(fd))
        return 0

    def sysctlbyname(self, name: bytes, value: Any, size: Any, new: Any, new_size: int) -> int:
        self.calls.append(("sysctl", name.decode()))
        if name.decode() not in self.sysctl:
            return -1
        value._obj.value = self.sysctl[name.decode()]
        size._obj.value = self.sysctl_size
        return 0

    def post(self, key: str, state: int | None = None, *, part: slice = slice(None)) -> None:
        """What notifyd does on a post; `part` cuts the four bytes."""
        if state is not None:
            self.states[key] = state
        for token, registered in self.tokens.items():
            if registered == key:
                os.write(self._ends[self._users[token]], struct.pack("!i", token)[part])

    @property
    def open_pipes(self) -> int:
        return len(self._ends)


class StubPower:
    """IOKit and CoreFoundation in one: `source` is what is providing power."""

    def __init__(self, source: str | None = "AC Power") -> None:
        self.source = source
        self.has_snapshot = True
        self.fits = True
        self.calls: list[str] = []

    def IOPSCopyPowerSourcesInfo(self) -> int | None:
        self.calls.append("copy")
        return 77 if self.has_snapshot else None

    def IOPSGetProvidingPowerSourceType(self, snapshot: int) -> int | None:
        assert snapshot == 77
        self.calls.append("type")
        return None if self.source is None else 88

    def CFStringGetCString(self, text: int, buffer: Any, size: int, encoding: int) -> bool:
        assert (text, encoding) == (88, 0x08000100)
        self.calls.append("text")
        raw = (self.source or "").encode()
        if not self.fits or len(raw) >= size:
            return False
        ctypes.memmove(buffer, raw + b"\0", len(raw) + 1)
        return True

    def CFRelease(self, reference: int) -> None:
        assert reference == 77
        self.calls.append("release")


class StubPmset(Pmset):
    """`pmset` with recorded answers."""

    def __init__(self, **told: str) -> None:
        self.told = told
        self.asked: list[str] = []

    def run(self, what: str) -> str:
        self.asked.append(what)
        return self.told.get(what, "")
