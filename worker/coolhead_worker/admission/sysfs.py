"""Reading the small files by which Linux tells about itself.

Guarantee: a file that is missing, busy, unreadable or not text is None, never an exception; whether
it is *gone* or merely silent can be asked.
"""

from __future__ import annotations

from pathlib import Path


class SysFiles:
    """The trees /sys and /proc below `root`."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root.absolute()

    def folders(self, pattern: str) -> list[Path]:
        """Folders that match a glob below the root, sorted; `/sys/class` links are followed."""
        try:
            return sorted(path for path in self._root.glob(pattern) if path.is_dir())
        except OSError:  # a hardened container hides parts of /sys
            return []

    def exists(self, path: Path | str) -> bool:
        """Whether the file is there, readable or not."""
        try:
            return (self._root / path).exists()
        except OSError:
            return False

    def text(self, path: Path | str) -> str | None:
        """The text without white space around it; None for any failure.

        Idle devices answer EAGAIN or ENODATA: that is an answer too, only not a number.
        """
        try:
            return self.load(self._root / path).strip()
        except (OSError, UnicodeDecodeError):
            return None

    def number(self, path: Path | str) -> int | None:
        """The text as an integer; None when it is none."""
        try:
            return int(self.text(path) or "")
        except ValueError:
            return None

    def load(self, path: Path) -> str:
        """The raw text; the one place that reads, for tests to answer as a device would."""
        return path.read_text()
