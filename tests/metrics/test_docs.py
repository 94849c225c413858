"""The committed documentation is the one the catalogue gives."""

from __future__ import annotations

from pathlib import Path

from coolhead_worker.metrics_catalogue import CATALOGUE
from coolhead_worker.metrics_docs import document

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_metrics_document_is_current() -> None:
    assert DOCUMENT.read_text() == document()


def test_the_metrics_document_names_every_series() -> None:
    for name in CATALOGUE:
        assert f"| `{name}` |" in document()
