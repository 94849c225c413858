"""The smallest useful call: it brings weights, caches and a GPU's kernels to where they are needed.

Guarantee: pure; the numbers of the call are thrown away.
"""

from __future__ import annotations

from coolhead.questions import Noul, NoulCriteria
from coolhead_worker.engine.protocol import EvalItem

WARM = EvalItem(
    "ok",
    {"warm": Noul(instructions="Is this fine?", criteria=NoulCriteria(true="yes", false="no"))},
    trunk=False,
)

KEEP_WARM_GPU_S = 30.0
"""A GPU lowers its clock and gives up residency of weights when nothing runs; a CPU has nothing to
lose that mlock does not keep, and a call now and then only costs power."""


def keep_warm_s(asked: float | None, plan: str) -> float:
    """Seconds of idleness after which a model is kept warm; 0 for never.

    Args:
        asked: what the operator chose; None for what suits the backend.
        plan: id of any plan of the engine: it names the backend.
    """
    if asked is not None:
        return asked
    return 0.0 if ".cpu-" in plan else KEEP_WARM_GPU_S
