"""Folding of free words into closed sets."""

from __future__ import annotations

import pytest

from coolhead import errors
from coolhead.task import Task
from coolhead_worker.admission.gate import Kind
from coolhead_worker.metrics_labels import (
    ERROR_KINDS,
    MAX_VERDICTS,
    OTHER,
    PAUSE_REASONS,
    PUT_BACK_REASONS,
    TaskLabels,
    error_kind,
)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("StateTooLong", "context_overflow"),
        ("DecodeTimeout", "timeout"),
        ("DecodeFailed", "inference"),
        ("NoRoom", "inference"),
        ("NotFinite", "not_finite"),
        ("DecodeInterrupted", "interrupted"),
        ("TierUnloaded", "unloaded"),
        ("ModelUnsupported", "model_load"),
        ("ModelCorrupt", "model_load"),
        ("ModelMismatch", "model_load"),
        ("FitMismatch", "calibration"),
        ("JobRejected", "rejected"),
        ("QueueUnreachable", "redis"),
        ("redis", "redis"),
        ("UnknownTask", "schema"),
        ("FunctionRefused", "schema"),
        ("NodeBusy", OTHER),
        ("ZeroDivisionError", OTHER),
        ("one_line", OTHER),
        ("", OTHER),
    ],
)
def test_an_error_code_has_a_kind(code: str, kind: str) -> None:
    assert error_kind(code) == kind


def test_every_error_of_the_tree_has_a_kind() -> None:
    names = [name for name, value in vars(errors).items() if isinstance(value, type)]
    assert len(names) > 30
    assert {error_kind(name) for name in names} <= set(ERROR_KINDS)


def test_every_reason_of_the_gate_is_a_label() -> None:
    kinds = {kind.value for kind in Kind} - {""}
    assert kinds <= set(PAUSE_REASONS)
    assert kinds <= set(PUT_BACK_REASONS)


def test_option_names_beyond_the_twentieth_are_other() -> None:
    options = [f"option-{number}" for number in range(MAX_VERDICTS + 5)]
    task = Task.build({"name": "wide", "questions": {"q": {"type": "choice", "criteria": options}}})
    labels = TaskLabels({"wide": task})
    assert labels.verdict("wide", "choice", "option-19") == "option-19"
    assert labels.verdict("wide", "choice", "option-20") == OTHER
    choices = [verdict for name, kind, verdict in labels if (name, kind) == ("wide", "choice")]
    assert choices == [*options[:MAX_VERDICTS], OTHER]


def test_a_task_that_is_called_other_brings_no_names() -> None:
    task = Task.build({"name": "other", "questions": {"q": {"type": "choice", "criteria": ["a", "b"]}}})
    assert TaskLabels({"other": task}).verdict("other", "choice", "a") == OTHER
