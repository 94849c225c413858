"""The checker of queries itself: it must see what is wrong."""

from __future__ import annotations

import pytest

from tests.ops.promql import faults, vocabulary

KNOWN = vocabulary(["lane:coolhead_job_turnaround_seconds:p95_5m"])


@pytest.mark.parametrize(
    "expr",
    [
        "vector(1)",
        'absent(up{job="coolhead-worker"} == 1)',
        'sum by (lane, node) (rate(coolhead_jobs_total{outcome="expired",node=~".*"}[5m]))',
        'rate(coolhead_jobs_total{outcome=~"expired|permanent"}[5m])',
        "histogram_quantile(0.9, sum by (lane, le) (rate(coolhead_job_duration_seconds_bucket[5m])))",
        'lane:coolhead_job_turnaround_seconds:p95_5m{lane="bulk"} > 5',
        "avg_over_time((coolhead_node_thermal_level >= bool 2)[30m:1m])",
        'coolhead_worker_state{coolhead_worker_state="idle"}',
    ],
)
def test_a_good_query_has_no_fault(expr: str) -> None:
    assert faults(expr, KNOWN) == []


@pytest.mark.parametrize(
    ("expr", "fault"),
    [
        ("sum(", "does not parse"),
        ("rate(coolhead_job_total[5m])", "nothing exports coolhead_job_total"),
        ("rate(coolhead_job_duration_seconds[5m])", "nothing exports coolhead_job_duration_seconds"),
        ("lane:coolhead_job_turnaround_seconds:p95_6m", "nothing exports lane:"),
        ('coolhead_node_safe{lane="bulk"}', "coolhead_node_safe has no label lane"),
        ('rate(coolhead_jobs_total{outcome="failed"}[5m])', "outcome is never failed"),
        ('rate(coolhead_jobs_total{outcome=~"expired|dead"}[5m])', "outcome is never dead"),
        ('rate(coolhead_jobs_total{lane="batch"}[5m])', "lane is never batch"),
        ("sum(coolhead_jobs_total)", "only rises"),
        ("sum by (tier) (rate(coolhead_jobs_total[5m]))", "no label tier to group by"),
        ("up == on (lane) up", "no label lane to group by"),
        (
            "histogram_quantile(0.9, sum by (lane) (rate(coolhead_job_duration_seconds_bucket[5m])))",
            "needs le",
        ),
        ("histogram_quantile(0.9, sum(rate(coolhead_job_duration_seconds_bucket[5m])))", "needs le"),
    ],
)
def test_a_bad_query_is_caught(expr: str, fault: str) -> None:
    assert any(fault in found for found in faults(expr, KNOWN)), faults(expr, KNOWN)
