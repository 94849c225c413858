"""The demo's labelled data: support tickets and prompts, written for this project.

Guarantee: the split of a row is fixed in its file; rows of the part `held_out` are never fitted on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FOLDER = HERE.parent / "tasks"
TICKETS = HERE / "tickets.jsonl"
PROMPTS = HERE / "prompts.jsonl"
SHIPPED_FIT = HERE / "fit"


@dataclass(frozen=True, slots=True)
class Case:
    """A labelled text. `kind`: "ticket", "prompt", or "baseline" (a prompt asked without the fit)."""

    kind: str
    id: str
    text: str
    labels: dict[str, Any]

    @property
    def job_id(self) -> str:
        """One job for each kind and row."""
        return f"demo-{self.kind}-{self.id}"


def held_out(path: Path, kind: str, limit: int | None = None) -> list[Case]:
    """The held-out rows of a file, in its order."""
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    cases = [Case(kind, row["id"], row["text"], row) for row in rows if row["split"] == "held_out"]
    return cases[:limit]
