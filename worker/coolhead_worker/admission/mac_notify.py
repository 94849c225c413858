"""Apple's notify(3) through ctypes: one descriptor for several keys, state by key.

Not run on a Mac: signatures come from Apple's public headers and from public programs that use them;
the logic is tested against a recording stub.

Guarantee: the descriptor is registered before the first state is read, so no change can fall in
between; a key that could not be registered has no state, never state 0; posts only say *that*
something changed, the state is always read anew. Registration belongs to this process: make it
after any fork.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence
from typing import Any

from coolhead_worker.admission.waker import drain

_OK = 0
_NEW = 0
_REUSE = 1
_TOKEN = struct.Struct(">i")


class NotifyKeys:
    """A set of notify(3) keys that share one descriptor; `fd` is None when none was registered."""

    def __init__(self, system: Any, keys: Sequence[str]) -> None:
        """`system` is libSystem, a stand-in, or None where it could not be loaded."""
        self._system = system
        self._tokens: dict[str, int] = {}
        self._rest = b""
        self.fd: int | None = None
        for key in keys:
            self._register(key)
        if self.fd is not None:
            os.set_blocking(self.fd, False)

    def state(self, key: str) -> int | None:
        """The number behind a key, 0..2**64-1; None when the key can't be read."""
        if key not in self._tokens:
            return None
        value = ctypes.c_uint64()
        if self._system.notify_get_state(self._tokens[key], ctypes.byref(value)) != _OK:
            return None
        return value.value

    def posted(self) -> frozenset[str]:
        """The keys posted since the last call; never blocks. Posts may be merged by the system."""
        if self.fd is None:
            return frozenset()
        data = self._rest + drain(self.fd)
        whole = len(data) - len(data) % _TOKEN.size
        self._rest = data[whole:]
        tokens = {token for (token,) in _TOKEN.iter_unpack(data[:whole])}
        return frozenset(key for key, token in self._tokens.items() if token in tokens)

    def close(self) -> None:
        """Cancel every key; the system closes the descriptor with the last one."""
        for token in self._tokens.values():
            self._system.notify_cancel(token)
        self._tokens.clear()
        self.fd = None

    def _register(self, key: str) -> None:
        fd, token = ctypes.c_int(-1 if self.fd is None else self.fd), ctypes.c_int(-1)
        flags = _NEW if self.fd is None else _REUSE
        register = getattr(self._system, "notify_register_file_descriptor", None)
        if register is None:
            return
        if register(key.encode(), ctypes.byref(fd), flags, ctypes.byref(token)) == _OK:
            self.fd = fd.value
            self._tokens[key] = token.value


def sysctl_int(system: Any, name: str) -> int | None:
    """A 32-bit integer from `sysctlbyname`; None when there is no such name."""
    call = getattr(system, "sysctlbyname", None)
    if call is None:
        return None
    value = ctypes.c_int()
    size = ctypes.c_size_t(ctypes.sizeof(value))
    status = call(name.encode(), ctypes.byref(value), ctypes.byref(size), None, 0)
    return value.value if status == 0 and size.value == ctypes.sizeof(value) else None


def load_system(path: str = "/usr/lib/libSystem.B.dylib") -> Any:
    """libSystem with its signatures declared; None where it does not exist."""
    try:
        system = ctypes.CDLL(path)
        declare(system)
    except (OSError, AttributeError):
        return None
    return system


def declare(system: Any) -> None:
    """Set argument and result types.

    Raises:
        AttributeError: the library has not all of these functions.
    """
    text, out_int = ctypes.c_char_p, ctypes.POINTER(ctypes.c_int)
    for name, arguments in {
        "notify_register_file_descriptor": [text, out_int, ctypes.c_int, out_int],
        "notify_get_state": [ctypes.c_int, ctypes.POINTER(ctypes.c_uint64)],
        "notify_cancel": [ctypes.c_int],
    }.items():
        function = getattr(system, name)
        function.argtypes, function.restype = arguments, ctypes.c_uint32
    out_size = ctypes.POINTER(ctypes.c_size_t)
    system.sysctlbyname.argtypes = [text, ctypes.c_void_p, out_size, ctypes.c_void_p, ctypes.c_size_t]
    system.sysctlbyname.restype = ctypes.c_int
