"""Writes the Grafana dashboards: `python -m dashboards.build` from the root of the repository.

Guarantee: the same source, the same bytes. A test refuses a committed file that is not current and
a query that names what no worker exports.
"""

from __future__ import annotations

import json
from pathlib import Path

from dashboards.fleet import FLEET
from dashboards.panels import Panel

BOARDS: dict[str, Panel] = {"fleet.json": FLEET}


def render(board: Panel) -> str:
    """The content of a file."""
    return json.dumps(board, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def write(folder: Path = Path(__file__).parent) -> None:
    """Write every dashboard."""
    for name, board in BOARDS.items():
        (folder / name).write_text(render(board))
        print(folder / name)


if __name__ == "__main__":
    write()
