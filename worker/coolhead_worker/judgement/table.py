"""The labelled rows of one question on one tier, as arrays.

Guarantee: row i of every array speaks of the same labelled row, whose place in the label set is
`at[i]`; rows that are not labelled for the question or too long for the tier are not in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coolhead.questions import Question
from coolhead_worker.judgement.calibration import Floats
from coolhead_worker.judgement.labels import LabelRow, Split
from coolhead_worker.judgement.readings import Reading
from coolhead_worker.judgement.scoring import Flags
from coolhead_worker.judgement.selection import Rows


@dataclass(frozen=True, slots=True)
class Table:
    """n rows: what calibrators read, the option mass (n,), and places in the label set (n,)."""

    rows: Rows
    mass: Floats
    at: NDArray[np.int64]

    def take(self, keep: Flags) -> Table:
        """The rows whose flag is set."""
        return Table(self.rows.take(keep), self.mass[keep], self.at[keep])

    def __len__(self) -> int:
        return len(self.at)


def table_of(
    name: str,
    question: Question,
    split: Split,
    labelled: Sequence[LabelRow],
    readings: Mapping[str, Reading | None],
) -> Table:
    """The rows of a split that are labelled for the question and readable on the tier."""
    picked: list[tuple[int, LabelRow, Reading]] = []
    for place, row in enumerate(labelled):
        reading = readings[row.state]
        if row.split is split and name in row.labels and reading is not None:
            picked.append((place, row, reading))
    key, k = question.fingerprint, len(question.labels)
    unread = np.full(k, np.nan)  # a fit of heads alone asks no question by text
    width = next((len(reading.features) for reading in readings.values() if reading), 0)
    rows = Rows(
        logits=np.array([reading.logits.get(key, unread) for _, _, reading in picked]).reshape(
            len(picked), k
        ),
        features=np.array([reading.features for _, _, reading in picked]).reshape(len(picked), width),
        labels=np.array([row.labels[name] for _, row, _ in picked], dtype=np.int64),
        groups=tuple(row.group for _, row, _ in picked),
    )
    mass = np.array([reading.mass.get(key, 1.0) for _, _, reading in picked], dtype=np.float64)
    return Table(rows, mass, np.array([place for place, _, _ in picked], dtype=np.int64))
