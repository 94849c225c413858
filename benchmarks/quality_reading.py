"""What the models say about the rows of a set, as the fit command reads them.

Guarantee: every number comes from the product's own reading, and is kept under the model, the plans and
the text it belongs to: a run that was stopped goes on where it was, and one that is repeated reads nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from datasets import DataSet

from coolhead.policy import Tier
from coolhead_worker.engine.protocol import Engine
from coolhead_worker.judgement.labels import Split
from coolhead_worker.judgement.readings import Reading, Wanted, read_states
from coolhead_worker.judgement.selection import Rows
from coolhead_worker.judgement.table import table_of

TIMEOUT_S = 600.0

Told = Callable[[int, int], None]
"""Told how many states of how many are read."""


@dataclass(frozen=True, slots=True)
class Read:
    """A set as one tier read it: `trunk` has all rows, `text` those that were asked by text too (the
    logits of the others are NaN), `kinds` the kind of each of these. `too_long`: rows that the model can't
    take."""

    text: Rows
    trunk: Rows
    too_long: int
    kinds: tuple[str, ...]


def read_set(engine: Engine, tier: Tier, found: DataSet, cache: Path | None, told: Told) -> Read:
    """Read what the tier has to read of a set.

    Args:
        engine: the tier's model.
        tier: the deep one reads only the rows that are asked by text.
        found: the set.
        cache: keeps readings; None for none.
        told: the progress.

    Raises:
        DecodeFailed, DecodeTimeout, DecodeInterrupted, TierUnloaded: from the engine.
    """
    rows = found.rows if tier is Tier.FAST else found.rows[: found.by_text]
    states = [row.state for row in rows]

    def some(chosen: Sequence[str], wanted: Wanted, before: int) -> dict[str, Reading | None]:
        return read_states(
            engine, chosen, wanted, cache=cache, timeout_s=TIMEOUT_S,
            read=lambda done: told(before + done, len(states)),
        )  # fmt: skip

    readings = some(states[: found.by_text], found.wanted, 0)
    readings |= some(states[found.by_text :], Wanted({}), found.by_text)
    table = table_of(found.question, found.asked, Split.FIT, rows, readings)
    trunk = table.rows
    asked = np.asarray(np.isfinite(trunk.logits).all(axis=1), dtype=np.bool_)
    kinds = tuple(found.kinds.get(states[at], "") for at in table.at)
    return Read(trunk.take(asked), trunk, len(states) - len(table), kinds)
