"""Benchmarks are scripts that import their siblings by bare names: so do their tests."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import settings

# Property tests are judged by what they find, not by how fast a shared machine is.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

_FOLDER = str(Path(__file__).resolve().parents[2] / "benchmarks")
if _FOLDER not in sys.path:
    sys.path.insert(0, _FOLDER)
