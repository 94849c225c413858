"""Named evaluation plans: everything beside the weights that can move a number, as a short id.

Guarantee: pure; two plans have the same id exactly when they lay out and read alike, so a fit that
is bound to an id is only ever used with numbers that were made in the same way.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from coolhead_worker.engine.layout import ALIGN, TAIL
from coolhead_worker.engine.protocol import PinnedSet, PlanKind

VERSIONS = {PlanKind.ISOLATED: 2, PlanKind.PINNED: 1, PlanKind.TRUNK: 1}


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """How numbers are made.

    `backend`: where matrices are multiplied, and by which build. `ubatch`: rows of one physical
    batch. `dialect`: digest of all prompt text. `reading`: what is read: "text" for label tokens,
    else the digest of the features. `pinned`: digest of what stands before the state, of a pinned plan. Flash
    attention is off and the cache holds 16-bit floats in every plan of this version.
    """

    kind: PlanKind
    backend: str
    ubatch: int
    dialect: str
    reading: str = "text"
    pinned: str = ""

    @property
    def id(self) -> str:
        """Such as `isolated-v2.a16t4.ub512.fa0.f16.cpu-0.3.36.0a1b2c3d.text`."""
        parts = [
            f"{self.kind}-v{VERSIONS[self.kind]}", f"a{ALIGN}t{TAIL}", f"ub{self.ubatch}", "fa0.f16",
            self.backend, self.dialect, self.reading, *([f"s{self.pinned}"] if self.pinned else []),
        ]  # fmt: skip
        return ".".join(parts)


def set_digest(pinned: PinnedSet) -> str:
    """8 hex digits over the questions of a task, their ids, texts and order, and over its examples."""
    asked = [(name, question.fingerprint) for name, question in pinned.questions.items()]
    shown = [(one.state, list(one.answers.items())) for one in pinned.examples]
    return hashlib.sha256(repr((asked, shown)).encode("utf-8", "surrogatepass")).hexdigest()[:8]
