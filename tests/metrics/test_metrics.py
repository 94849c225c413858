"""What each word of `Metrics` adds, and that no word opens a series without need."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics

from coolhead.answers import Outcome
from coolhead.policy import Grey, Lane, Tier
from coolhead_worker.metrics import MAX_EXEMPLAR_ID, Metrics
from coolhead_worker.metrics_catalogue import CATALOGUE, LATE
from coolhead_worker.metrics_labels import KINDS
from tests.metrics.samples import TASKS, busy, samples, value


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> Metrics:
    return Metrics(registry, tasks=TASKS)


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("coolhead_jobs_total", {"lane": "bulk", "outcome": "quarantined"}),
        ("coolhead_jobs_total", {"lane": "interactive", "outcome": "handed_back"}),
        ("coolhead_job_requeues_total", {"lane": "bulk", "reason": "drain", "phase": "after_acquire"}),
        ("coolhead_errors_total", {"kind": "context_overflow"}),
        ("coolhead_decisions_total", {"task": "support", "kind": "noul", "tier": "deep", "verdict": "no"}),
        ("coolhead_decisions_total", {"task": "other", "kind": "choice", "tier": "fast", "verdict": "other"}),
        ("coolhead_escalations_total", {"task": "support", "reason": "low_mass"}),
        ("coolhead_tier_flips_total", {"task": "other"}),
        ("coolhead_node_safety_checks_total", {"phase": "before_acquire", "result": "unknown"}),
        ("coolhead_node_paused_seconds_total", {"reason": "low_power_mode"}),
        ("coolhead_job_turnaround_seconds_count", {"lane": "bulk"}),
        ("coolhead_inference_duration_seconds_bucket", {"tier": "deep", "le": "5.0"}),
    ],
)
def test_a_closed_label_set_starts_at_zero(
    registry: CollectorRegistry, metrics: Metrics, name: str, labels: dict[str, str]
) -> None:
    assert value(registry, name, **labels) == 0.0


def test_every_label_with_known_values_is_there_before_its_first_event(
    registry: CollectorRegistry, metrics: Metrics
) -> None:
    found = {name for name, _ in samples(registry)}
    late = {s.name for s in CATALOGUE.values() if any(label.values is LATE for label in s.labels)}
    # The last six are absent until the machine has been read.
    unread = {s.name for s in CATALOGUE.values() if s.read and s.name.startswith("coolhead_node")}
    expected = {name for s in CATALOGUE.values() for name in s.sample_names} - late - unread
    assert expected - found == set()
    assert found - expected == {"coolhead_build_info"}


def test_after_everything_has_happened_once_no_series_of_the_catalogue_is_missing() -> None:
    registry = CollectorRegistry()
    busy(registry)
    found = {name for name, _ in samples(registry)}
    assert found == {name for series in CATALOGUE.values() for name in series.sample_names}


def test_labels_are_those_of_the_catalogue() -> None:
    registry = CollectorRegistry()
    busy(registry)
    declared = {name: set(s.label_names) for s in CATALOGUE.values() for name in s.sample_names}
    for name, labels in samples(registry):
        assert {key for key, _ in labels} - {"le"} == declared[name], name


def test_a_job_that_ran_is_counted_once_in_each_histogram(
    registry: CollectorRegistry, metrics: Metrics
) -> None:
    metrics.queue_wait(Lane.BULK, 1.0)
    metrics.job_ended(
        Lane.BULK, Outcome.SUCCEEDED, wait_s=1.0, turnaround_s=1.5, duration_s=0.5, attempts=2, questions=4
    )
    assert value(registry, "coolhead_jobs_total", lane="bulk", outcome="succeeded") == 1
    for name, total in {
        "job_queue_wait_seconds": 1.0,
        "job_turnaround_seconds": 1.5,
        "job_duration_seconds": 0.5,
        "job_attempts": 2,
        "job_questions": 4,
        "job_defers": 0,
    }.items():
        assert value(registry, f"coolhead_{name}_count", lane="bulk") == 1, name
        assert value(registry, f"coolhead_{name}_sum", lane="bulk") == total, name
    assert value(registry, "coolhead_job_admission_wait_seconds_count", lane="bulk") == 0


def test_the_wait_of_a_job_that_had_been_put_back_is_an_admission_wait(
    registry: CollectorRegistry, metrics: Metrics
) -> None:
    metrics.job_ended(
        Lane.BULK, Outcome.SUCCEEDED, wait_s=90.0, turnaround_s=91.0, duration_s=1.0, attempts=1, defers=2
    )
    assert value(registry, "coolhead_job_admission_wait_seconds_sum", lane="bulk") == 90.0
    assert value(registry, "coolhead_job_defers_sum", lane="bulk") == 2


def test_a_job_that_never_ran_still_has_a_queue_wait(registry: CollectorRegistry, metrics: Metrics) -> None:
    metrics.job_ended(Lane.INTERACTIVE, Outcome.EXPIRED, wait_s=7.0, turnaround_s=7.0)
    assert value(registry, "coolhead_job_queue_wait_seconds_sum", lane="interactive") == 7.0
    assert value(registry, "coolhead_job_duration_seconds_count", lane="interactive") == 0
    assert value(registry, "coolhead_job_attempts_count", lane="interactive") == 0


@pytest.mark.parametrize(
    ("kind", "reason", "outcome"),
    [
        ("thermal", "thermal", "handed_back"),
        ("drain", "drain", "handed_back"),
        ("transient", "transient", "transient"),
        ("unavailable", "unavailable", "unavailable"),
        ("", "other", "handed_back"),
        ("a word nobody knows", "other", "handed_back"),
    ],
)
def test_a_put_back_is_a_requeue_and_an_outcome(
    registry: CollectorRegistry, metrics: Metrics, kind: str, reason: str, outcome: str
) -> None:
    metrics.put_back(Lane.BULK, kind, "after_acquire")
    requeued = {"lane": "bulk", "reason": reason, "phase": "after_acquire"}
    assert value(registry, "coolhead_job_requeues_total", **requeued) == 1
    assert value(registry, "coolhead_jobs_total", lane="bulk", outcome=outcome) == 1


def test_decisions_are_told_apart_by_task_kind_tier_and_verdict(
    registry: CollectorRegistry, metrics: Metrics
) -> None:
    metrics.decided("support", "choice", Tier.FAST, "billing", 0.9)
    metrics.decided("support", "choice", Tier.FAST, "made up", 0.9)
    metrics.decided("nobody's", "noul", Tier.DEEP, "yes", 0.4)
    metrics.decided(None, "score", Tier.DEEP, "scored", 0.4, 0.75)

    def count(**labels: str) -> float | None:
        return value(registry, "coolhead_decisions_total", **labels)

    assert count(task="support", kind="choice", tier="fast", verdict="billing") == 1
    assert count(task="support", kind="choice", tier="fast", verdict="other") == 1
    assert count(task="other", kind="noul", tier="deep", verdict="yes") == 1
    assert count(task="other", kind="score", tier="deep", verdict="scored") == 1
    assert value(registry, "coolhead_decision_probability_sum", task="support", tier="fast") == 1.8
    assert value(registry, "coolhead_decision_score_ratio_sum", task="other") == 0.75
    assert value(registry, "coolhead_decision_score_ratio_count", task="support") == 0


def test_a_model_that_is_replaced_leaves_one_info_series(
    registry: CollectorRegistry, metrics: Metrics
) -> None:
    for digest, seconds in (("0123456789abcdef", 2.0), ("fedcba9876543210", 3.0)):
        metrics.models.loaded(
            Tier.FAST, "smol", digest, "metal", load_s=seconds, warm_s=seconds / 10, locked=True
        )
    infos = [dict(labels) for name, labels in samples(registry) if name == "coolhead_model_info"]
    assert infos == [{"tier": "fast", "model": "smol", "digest": "fedcba987654", "backend": "metal"}]
    assert value(registry, "coolhead_model_loaded", tier="fast") == 1
    assert value(registry, "coolhead_model_loaded", tier="deep") == 0
    assert value(registry, "coolhead_model_load_duration_seconds", tier="fast") == 3.0
    assert value(registry, "coolhead_model_warmup_duration_seconds", tier="fast") == 0.3
    assert value(registry, "coolhead_model_locked", tier="fast") == 1


def test_a_model_that_was_given_up_is_still_named_but_not_loaded(
    registry: CollectorRegistry, metrics: Metrics
) -> None:
    metrics.models.loaded(Tier.DEEP, "large", "cd" * 32, "cpu", load_s=1.0, warm_s=0.1, locked=True)
    metrics.models.unloaded(Tier.DEEP, "memory")
    assert value(registry, "coolhead_model_loaded", tier="deep") == 0
    assert value(registry, "coolhead_model_locked", tier="deep") == 0
    assert value(registry, "coolhead_model_unloads_total", tier="deep", reason="memory") == 1
    assert "coolhead_model_info" in {name for name, _ in samples(registry)}
    metrics.models.cold_start(Tier.DEEP, "memory")
    assert value(registry, "coolhead_model_cold_starts_total", tier="deep", reason="memory") == 1


def test_a_fit_for_another_model_shows_as_no_match(registry: CollectorRegistry, metrics: Metrics) -> None:
    metrics.calibrated("support", Tier.FAST, version="v1", method="head", match=False)
    assert value(registry, "coolhead_calibration_match", task="support", tier="fast") == 0
    assert value(
        registry, "coolhead_calibration_info", task="support", tier="fast", version="v1", method="head"
    )


def test_the_state_and_the_open_lanes_follow_the_last_word(
    registry: CollectorRegistry, metrics: Metrics
) -> None:
    assert value(registry, "coolhead_node_lane_open", lane="bulk") is None
    metrics.state("idle", (Lane.INTERACTIVE,))
    metrics.state("busy")
    assert value(registry, "coolhead_worker_state", coolhead_worker_state="busy") == 1
    assert value(registry, "coolhead_worker_state", coolhead_worker_state="idle") == 0
    assert value(registry, "coolhead_node_lane_open", lane="interactive") == 1
    assert value(registry, "coolhead_node_lane_open", lane="bulk") == 0
    with pytest.raises(ValueError, match="not in"):
        metrics.state("dreaming")


@pytest.mark.parametrize(("result", "safe"), [("safe", 1), ("unsafe", 0), ("unknown", 1), ("odd", 1)])
def test_the_last_look_says_whether_the_node_is_safe(
    registry: CollectorRegistry, metrics: Metrics, result: str, safe: int
) -> None:
    metrics.gate("after_acquire", result)
    assert value(registry, "coolhead_node_safe") == safe
    known = result if result != "odd" else "unknown"
    looked = {"phase": "after_acquire", "result": known}
    assert value(registry, "coolhead_node_safety_checks_total", **looked) == 1


def test_a_latency_leads_to_its_job_through_an_exemplar(
    registry: CollectorRegistry, metrics: Metrics
) -> None:
    metrics.inference(Tier.FAST, 0.03, 120, "ticket-7")
    text = openmetrics(registry).decode()
    line = next(line for line in text.splitlines() if "ticket-7" in line)
    assert line.startswith('coolhead_inference_duration_seconds_bucket{le="0.05",tier="fast"}')
    assert '# {job_id="ticket-7"} 0.03' in line
    assert "ticket-7" not in generate_latest(registry).decode()
    assert value(registry, "coolhead_inference_prompt_tokens_total", tier="fast") == 120


@pytest.mark.parametrize("length", [MAX_EXEMPLAR_ID, MAX_EXEMPLAR_ID + 1, 128])
def test_an_id_too_long_for_an_exemplar_costs_only_the_exemplar(
    registry: CollectorRegistry, metrics: Metrics, length: int
) -> None:
    metrics.inference(Tier.DEEP, 0.2, 1, "x" * length)
    assert value(registry, "coolhead_inference_duration_seconds_count", tier="deep") == 1
    assert ("x" * length in openmetrics(registry).decode()) == (length <= MAX_EXEMPLAR_ID)


def test_no_created_series_are_written(registry: CollectorRegistry, metrics: Metrics) -> None:
    assert "_created" not in generate_latest(registry).decode()


WORDS = st.text(max_size=12) | st.sampled_from(["", "thermal", "support", "yes", "DecodeFailed", "redis"])


@settings(max_examples=60, deadline=None)
@given(word=WORDS, lane=st.sampled_from(Lane), tier=st.sampled_from(Tier), kind=st.sampled_from(KINDS))
def test_no_word_from_outside_opens_a_series(word: str, lane: Lane, tier: Tier, kind: str) -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry, tasks=TASKS)
    before = set(samples(registry))
    metrics.put_back(lane, word, word)
    metrics.error(word)
    metrics.paused(word, 1.0)
    metrics.gate(word, word)
    metrics.decided(word, kind, tier, word, 0.5, 0.5)  # type: ignore[arg-type]
    metrics.escalated(word, Grey.FORCED)
    metrics.flipped(word)
    metrics.inference(tier, 0.1, 5, word)
    for outcome in Outcome:
        metrics.job_ended(lane, outcome, wait_s=1.0, turnaround_s=1.0, duration_s=1.0, defers=1)
    assert set(samples(registry)) == before
