"""Writes the table of metrics for the documentation: `python -m coolhead_worker.metrics_docs`.

Guarantee: made from the catalogue alone, so it is never wrong; the same catalogue, the same bytes.
"""

from __future__ import annotations

import sys

from coolhead_worker.metrics_catalogue import CATALOGUE, LATE, TASKS, VERDICTS, Label, Series

HEAD = """\
# Metrics of a worker

Written by `python -m coolhead_worker.metrics_docs > docs/metrics.md`; a test fails when it is not current.

Served on `/metrics` (OpenMetrics or text, as the client asks) beside `/livez` and `/readyz`. Base
units only. Every closed label value is there with 0 from the first scrape on. No label carries a
job id, a text or a pid: exemplars of `coolhead_inference_duration_seconds` name a job id instead.
Prometheus adds `job`, `instance` and `node`.

- **tasks**: the tasks the worker knew at start, and `other` for inline questions and unknown names.
- **verdicts**: `yes` and `no`, the first 20 option names of a task's choices, `scored`, `other`.
- **free**: known only after start (a model, a fit, the lanes served), a handful of values.
"""

TAIL = """\
## In the words of OpenTelemetry

| here | semantic convention |
|---|---|
| `coolhead_inference_duration_seconds` | `gen_ai.server.request.duration` |
| `coolhead_inference_prompt_tokens_total` | `gen_ai.client.token.usage`, input |
| `coolhead_job_duration_seconds` | `messaging.process.duration` |
| label `kind` of `coolhead_errors_total` | `error.type` |
| label `lane` | `messaging.destination.name` |
"""


def document() -> str:
    """The whole page as Markdown."""
    rows = [_row(series) for series in CATALOGUE.values()]
    table = ["| name | type | labels | meaning |", "|---|---|---|---|", *rows]
    buckets = [_buckets(series) for series in CATALOGUE.values() if series.buckets]
    return "\n".join(
        [HEAD, *table, "", "## Buckets", "", "| histogram | upper bounds |", "|---|---|", *buckets, "", TAIL]
    )


def _row(series: Series) -> str:
    labels = "; ".join(map(_label, series.labels)) or "none"
    return f"| `{series.name}` | {series.kind} | {labels} | {series.help} |"


def _label(label: Label) -> str:
    if label.values is TASKS or label.values is VERDICTS:
        return f"`{label.name}`: **{label.values[0].strip('<>')}**"
    values = ", ".join(label.values) if label.values is not LATE else "**free**"
    return f"`{label.name}`: {values}"


def _buckets(series: Series) -> str:
    return f"| `{series.name}` | {' '.join(f'{bound:g}' for bound in series.buckets)} |"


if __name__ == "__main__":
    sys.stdout.write(document())
