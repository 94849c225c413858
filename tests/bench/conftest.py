"""A tiny model for tests of the bench."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from tests.bench.tiny_model import tiny_at

# Property tests are judged by what they find, not by how fast a shared machine is.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_at(tmp_path_factory.mktemp("tiny"))
