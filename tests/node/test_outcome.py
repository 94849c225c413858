"""What is written about a job, by the type of what happened to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coolhead.answers import Outcome
from coolhead.errors import (
    DecodeFailed,
    DecodeInterrupted,
    DecodeTimeout,
    InvalidJob,
    JobRejected,
    ModelCorrupt,
    ModelMissing,
    NotFinite,
    StateTooLong,
    TierUnloaded,
    UnknownTask,
)
from coolhead.policy import Lane
from coolhead_worker.claim.settlement import Claimed, Failed, Released, Retried
from coolhead_worker.outcome import BACKOFF_CAP_S, Patience, unanswered


def claimed(attempts: int = 0) -> Claimed:
    return Claimed(Lane.INTERACTIVE, "j", "e", b"", 1, attempts, 0, 0.0, 1.0, 60, 60)


@pytest.mark.parametrize(
    ("error", "attempts", "kind", "outcome"),
    [
        (JobRejected("no"), 0, Failed, Outcome.REJECTED),
        (StateTooLong(), 0, Failed, Outcome.PERMANENT),
        (UnknownTask(), 0, Failed, Outcome.PERMANENT),
        (InvalidJob(), 0, Failed, Outcome.PERMANENT),
        (DecodeFailed(), 0, Retried, None),
        (DecodeTimeout(), 4, Retried, None),
        (DecodeFailed(), 5, Failed, Outcome.PERMANENT),
        (RuntimeError("secret text"), 0, Retried, None),
        (RuntimeError("secret text"), 5, Failed, Outcome.PERMANENT),
        (ModelCorrupt(), 0, Released, None),
        (ModelMissing(), 5, Released, None),
        (DecodeInterrupted("thermal serious (fake) during the call"), 5, Released, None),
        (TierUnloaded(), 0, Released, None),
        (NotFinite(), 0, Retried, None),
        (NotFinite(), 5, Failed, Outcome.PERMANENT),
    ],
)
def test_the_type_decides(error: Exception, attempts: int, kind: type, outcome: Outcome | None) -> None:
    settlement = unanswered(claimed(attempts), error, Patience(6), 0.5)
    assert type(settlement) is kind
    assert getattr(settlement, "outcome", None) == outcome
    assert "secret" not in repr(settlement)


@given(st.integers(0, 1000), st.floats(0, 1, exclude_max=True))
def test_a_retry_never_waits_longer_than_the_cap(attempts: int, draw: float) -> None:
    assert 0 <= Patience().delay_s(attempts, draw) <= BACKOFF_CAP_S


@given(st.integers(0, 6), st.floats(0.001, 1, exclude_max=True))
def test_the_span_of_the_back_off_doubles_until_the_cap(attempts: int, draw: float) -> None:
    before, after = Patience().delay_s(attempts, draw), Patience().delay_s(attempts + 1, draw)
    assert after == pytest.approx(min(2 * before, draw * BACKOFF_CAP_S))
