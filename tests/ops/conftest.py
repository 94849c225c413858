"""Paths, and the tools of the Debian package `prometheus`."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import missing

ROOT = Path(__file__).parents[2]
OPS = ROOT / "ops"
RULES = OPS / "prometheus" / "rules"

Promtool = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def promtool() -> Promtool:
    """Runs promtool; output and exit code are the caller's to judge."""
    path = shutil.which("promtool")
    if path is None:
        missing(
            "no promtool: apt-get install -y --no-install-recommends prometheus, or brew install prometheus"
        )

    def run(*arguments: str | Path, text: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [str(path), *map(str, arguments)]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=60)

    return run
