"""Every series the worker exports, as data: name, labels, closed label values, meaning.

Guarantee: what is not in `CATALOGUE` is not exported; the documentation, the label pre-initialisation
and the name checks of dashboards and rules all read this one table. Base units only.
"""

from __future__ import annotations

from typing import NamedTuple

from coolhead_worker import metrics_labels as sets

CALL_S = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
WAIT_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
SHARE = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
TRIES = (1.0, 2.0, 3.0, 5.0, 8.0, 13.0)
QUESTIONS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)

#: Stands for the tasks known at start, which this table cannot know.
TASKS = ("<tasks>",)
#: The verdicts of one task: yes, no, scored, option names.
VERDICTS = ("<verdicts>",)
#: Known only once a model or a fit is loaded; such a series is born late on purpose.
LATE: tuple[str, ...] = ()


class Label(NamedTuple):
    """A label and the values it can have."""

    name: str
    values: tuple[str, ...]


class Series(NamedTuple):
    """One family. `kind` is counter, gauge, histogram, info or stateset; `name` as in queries.

    A family that is `read` is sampled at the scrape by a collector of `metrics_node`.
    """

    name: str
    kind: str
    help: str
    labels: tuple[Label, ...] = ()
    buckets: tuple[float, ...] = ()
    read: bool = False

    @property
    def label_names(self) -> tuple[str, ...]:
        """The labels of each sample, without `le`."""
        return tuple(label.name for label in self.labels)

    @property
    def sample_names(self) -> tuple[str, ...]:
        """The names that a query may use."""
        if self.kind != "histogram":
            return (self.name,)
        return tuple(self.name + suffix for suffix in ("_bucket", "_sum", "_count"))


_LANE = Label("lane", sets.LANES)
_TIER = Label("tier", sets.TIERS)
_TASK = Label("task", TASKS)
_PHASE = Label("phase", sets.PHASES)


def _late(*names: str) -> tuple[Label, ...]:
    return tuple(Label(name, LATE) for name in names)


_WORKER = (
    Series("coolhead_build_info", "info", "What runs here; always 1.",
           _late("version", "llama_cpp", "python", "platform")),
    Series("coolhead_worker_state", "stateset", "What the worker is doing.",
           (Label("coolhead_worker_state", sets.STATES),)),
    Series("coolhead_worker_start_time_seconds", "gauge", "When the process began, seconds since 1970.",
           read=True),
    Series("coolhead_worker_resident_memory_bytes", "gauge", "Resident memory of the process.", read=True),
    Series("coolhead_worker_cpu_seconds_total", "counter", "Processor time of the process.", read=True),
    Series("coolhead_errors_total", "counter", "Errors, by kind.", (Label("kind", sets.ERROR_KINDS),)),
)  # fmt: skip

_JOBS = (
    Series("coolhead_jobs_total", "counter",
           "Runs of jobs, by how they ended; a job that goes back counts each time and again when it ends.",
           (_LANE, Label("outcome", sets.OUTCOMES))),
    Series("coolhead_jobs_in_progress", "gauge", "Jobs this node holds now."),
    Series("coolhead_job_requeues_total", "counter", "Jobs that went back to their queue.",
           (_LANE, Label("reason", sets.PUT_BACK_REASONS), _PHASE)),
    Series("coolhead_job_attempts", "histogram", "Tries of an ended job; putting back is no try.",
           (_LANE,), TRIES),
    Series("coolhead_job_defers", "histogram", "How often an ended job had been put back.",
           (_LANE,), (0.0, *TRIES)),
    Series("coolhead_job_questions", "histogram", "Questions of an answered job.", (_LANE,), QUESTIONS),
    Series("coolhead_job_queue_wait_seconds", "histogram",
           "First enqueue to claim, or to the end of a job that never ran.",
           (_LANE,), WAIT_S),
    Series("coolhead_job_admission_wait_seconds", "histogram",
           "First enqueue to last claim, only of jobs the gate had put back.",
           (_LANE,), WAIT_S),
    Series("coolhead_job_duration_seconds", "histogram", "Claim to result written.", (_LANE,), CALL_S),
    Series("coolhead_job_turnaround_seconds", "histogram",
           "First enqueue to result written: what a caller waits.",
           (_LANE,), WAIT_S),
)  # fmt: skip

_MODELS = (
    Series("coolhead_model_info", "gauge", "The model of a tier, in memory or not; always 1.",
           _late("tier", "model", "digest", "backend")),
    Series("coolhead_model_loaded", "gauge", "1 while the tier's model is in memory.", (_TIER,)),
    Series("coolhead_model_locked", "gauge", "1 while the system keeps the tier's weights in memory.",
           (_TIER,)),
    Series("coolhead_model_cold_starts_total", "counter",
           "Times the tier's model was loaded and warmed up, by what it had been away for.",
           (_TIER, Label("reason", sets.COLD_STARTS))),
    Series("coolhead_model_load_duration_seconds", "gauge", "How long loading the tier's model took.",
           _late("tier")),
    Series("coolhead_model_warmup_duration_seconds", "gauge",
           "How long the first call of the tier's model took.",
           _late("tier")),
    Series("coolhead_model_unloads_total", "counter",
           "Times the tier's model was given up while the worker ran.",
           (_TIER, Label("reason", sets.UNLOADS))),
    Series("coolhead_model_self_checks_total", "counter",
           "Self-checks: passed against known numbers or against itself, or failed.",
           (_TIER, Label("result", sets.SELF_CHECKS))),
    Series("coolhead_model_keep_warm_total", "counter", "Calls made for warmth alone.", (_TIER,)),
    Series("coolhead_inference_duration_seconds", "histogram", "One model call; its exemplar names a job.",
           (_TIER,), CALL_S),
    Series("coolhead_inference_prompt_tokens_total", "counter", "Tokens read by the model.", (_TIER,)),
    Series("coolhead_calibration_match", "gauge",
           "0 when the task's fit was made for another model or plan; absent without a fit.",
           _late("task", "tier")),
    Series("coolhead_calibration_info", "gauge", "The fit of a task; always 1.",
           _late("task", "tier", "version", "method")),
)  # fmt: skip

_DECISIONS = (
    Series("coolhead_decisions_total", "counter", "Answers, by the tier that gave them and what they say.",
           (_TASK, Label("kind", sets.KINDS), _TIER, Label("verdict", VERDICTS))),
    Series("coolhead_decision_probability", "histogram", "Probability of the likeliest label.",
           (_TASK, _TIER), SHARE),
    Series("coolhead_decision_score_ratio", "histogram",
           "Expected level over the highest level, of score questions.",
           (_TASK,), SHARE),
    Series("coolhead_escalations_total", "counter", "Questions the deep tier was asked.",
           (_TASK, Label("reason", sets.GREYS))),
    Series("coolhead_tier_flips_total", "counter", "Answers that the deep tier reversed.", (_TASK,)),
)  # fmt: skip

_NODE = (
    Series("coolhead_node_safe", "gauge", "0 when the last check found the node unsafe."),
    Series("coolhead_node_lane_open", "gauge", "1 while this node takes jobs of the lane.",
           (Label("lane", LATE),)),
    Series("coolhead_node_thermal_level", "gauge",
           "0 nominal, 1 fair, 2 serious, 3 critical; absent when unknown.",
           read=True),
    Series("coolhead_node_thermal_unknown", "gauge", "1 while nobody can say how hot the machine is.",
           read=True),
    Series("coolhead_node_on_ac_power", "gauge", "1 on mains, 0 on battery; absent when unknown.", read=True),
    Series("coolhead_node_battery_charge_ratio", "gauge",
           "Charge of the battery, 0 to 1; absent without one.",
           read=True),
    Series("coolhead_node_low_power_mode", "gauge", "1 in low-power mode; absent when unknown.", read=True),
    Series("coolhead_node_memory_pressure_level", "gauge",
           "0 normal, 1 warn, 2 critical; absent when unknown.",
           read=True),
    Series("coolhead_node_safety_checks_total", "counter", "Looks of the gate at the machine.",
           (_PHASE, Label("result", sets.CHECKS))),
    Series("coolhead_node_paused_seconds_total", "counter", "Time in which no lane was open.",
           (Label("reason", sets.PAUSE_REASONS),)),
)  # fmt: skip

CATALOGUE: dict[str, Series] = {
    series.name: series for series in (*_WORKER, *_JOBS, *_MODELS, *_DECISIONS, *_NODE)
}
