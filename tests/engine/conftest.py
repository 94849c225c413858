"""The demo models, prepared once in the user's cache, and one loaded engine for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import platformdirs
import pytest
from hypothesis import settings

from coolhead.errors import ModelMissing
from coolhead_worker.engine.llama_engine import LlamaEngine
from coolhead_worker.models import DemoModels, prepare
from tests.conftest import missing

# Property tests are judged by what they find, not by how fast a shared machine is.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@pytest.fixture(scope="session")
def demo_models() -> DemoModels:
    folder: Path = platformdirs.user_cache_path("coolhead") / "models"
    try:
        return prepare(folder, lambda step, share: None)
    except ModelMissing as error:
        missing(f"no demo models: {error}")
        raise


@pytest.fixture(scope="session")
def fast(demo_models: DemoModels) -> Iterator[LlamaEngine]:
    engine = LlamaEngine(demo_models.fast, threads=1)
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def deep(demo_models: DemoModels) -> Iterator[LlamaEngine]:
    engine = LlamaEngine(demo_models.deep, threads=1)
    yield engine
    engine.close()
