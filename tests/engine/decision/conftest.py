"""SmolLM2 with 16-bit floats as weights, and NoulXP's own tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import llama_cpp
import pytest

from coolhead_worker.engine.llama import requantise
from coolhead_worker.models import DemoModels
from tests.conftest import missing


@pytest.fixture(scope="session")
def half(demo_models: DemoModels, tmp_path_factory) -> Iterator[Path]:
    """The demo's BF16 weights would round what passes through them so coarsely that a small model's
    answers move by 0.01 with the shape of the batch alone; these move by 0.003."""
    path: Path = tmp_path_factory.mktemp("half") / "SmolLM2.F16.gguf"
    requantise(demo_models.fast.path, path, llama_cpp.LLAMA_FTYPE_MOSTLY_F16, threads=1)
    yield path
    path.unlink()


@pytest.fixture(scope="session")
def noulxp() -> Iterator[None]:
    """NoulXP's package is installed, and leaves llama.cpp's log to the engine."""
    try:
        from noulxp.native import decider
        from noulxp.profiles import causal_letters
    except ImportError as error:
        missing(f"no NoulXP tools: {error}")
        raise
    with pytest.MonkeyPatch.context() as patch:
        for module in (decider, causal_letters):
            patch.setattr(module, "_silence", _leave)
        yield


def _leave(_library: object) -> None:
    """Do nothing to the log."""
