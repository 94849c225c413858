"""Which constant prefixes are in memory, and where: bookkeeping alone.

Guarantee: pure; prefixes stand one after the other from the first cell on, without holes, so that a
prefix read from memory gives the same bits as one that was just decoded; when one more does not fit,
all of them are given up and the wanted one begins anew.
"""

from __future__ import annotations

from dataclasses import dataclass

from coolhead_worker.engine.chunk import Home, Tokens
from coolhead_worker.engine.layout import PREFIXES, aligned


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a prefix is. `decode`: it must be decoded first; `clear`: after emptying the memory."""

    home: Home
    decode: bool
    clear: bool


class Prefixes:
    """At most four prefixes. A masked cell costs attention time too, so no more are kept.

    Args:
        cells: of the whole memory.
    """

    def __init__(self, cells: int) -> None:
        self._cells = cells
        self._homes: dict[bytes, Home] = {}
        self.used = 0  #: cells taken by prefixes and their padding
        self.pads = 0  #: padding tokens among them

    def forget(self) -> None:
        """The memory was emptied, or is in doubt."""
        self._homes.clear()
        self.used = self.pads = 0

    def place(self, prefix: Tokens, need: int) -> Placed:
        """Find or give a place.

        Args:
            prefix: its tokens, at least one.
            need: cells that must stay free beside all prefixes.
        """
        key = prefix.tobytes()
        known = self._homes.get(key)
        if known is not None and self.used + need <= self._cells:
            return Placed(known, decode=False, clear=False)
        size = aligned(len(prefix))
        full = len(self._homes) == PREFIXES or self.used + size + need > self._cells
        clear = full or known is not None or not self._homes
        if clear:
            self.forget()
        home = Home(len(self._homes), len(prefix))
        self._homes[key] = home
        self.used += size
        self.pads += size - len(prefix)
        return Placed(home, decode=True, clear=clear)
