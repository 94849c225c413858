"""The dashboard of the whole fleet: is it well, where does the time go, what does it decide."""

from __future__ import annotations

from dashboards.panels import (
    GREEN,
    ORANGE,
    RED,
    YELLOW,
    Panel,
    dashboard,
    graph,
    query_variable,
    row,
    source_variable,
    stat,
    steps,
    table,
    target,
    targets,
    timeline,
)
from dashboards.queries import LANE, MOVING, WORKER, mean, per_second, quantile, share

LEVELS = (("nominal", GREEN), ("fair", YELLOW), ("serious", ORANGE), ("critical", RED))
UNANSWERED = per_second("coolhead_jobs_total", "", LANE + ',outcome=~"permanent|quarantined|expired"')
ENDED = per_second(
    "coolhead_jobs_total", "", LANE + ',outcome=~"succeeded|rejected|permanent|quarantined|expired"'
)


OVERVIEW = [
    row("Overview"),
    stat(
        "Nodes up",
        "Workers that answered the last scrape.",
        "none",
        f"sum(up{{{WORKER}}})",
        steps((RED, None), (GREEN, 1)),
    ),
    stat(
        "Jobs ended",
        "Jobs that came to an end per second, whatever the outcome.",
        "ops",
        ENDED,
        steps((GREEN, None)),
    ),
    stat(
        "Interactive p95",
        "95 % of interactive jobs have their answer this long after the first enqueue.",
        "s",
        quantile(0.95, "coolhead_job_turnaround_seconds", "lane", WORKER + ',lane="interactive"'),
        steps((GREEN, None), (ORANGE, 2.5), (RED, 5)),
    ),
    stat(
        "Escalated",
        "Share of the answers for which the deep tier was asked.",
        "percentunit",
        share(per_second("coolhead_escalations_total"), per_second("coolhead_decisions_total")),
        steps((GREEN, None), (ORANGE, 0.35), (RED, 0.6)),
    ),
    stat(
        "Not answered",
        "Share of the ended jobs that failed, expired or were quarantined.",
        "percentunit",
        share(UNANSWERED, ENDED),
        steps((GREEN, None), (ORANGE, 0.01), (RED, 0.05)),
    ),
    stat(
        "Nodes unsafe",
        "Nodes that refuse some work: too hot, in low-power mode or short of memory.",
        "none",
        f"sum(1 - coolhead_node_safe{{{WORKER}}})",
        steps((GREEN, None), (ORANGE, 1)),
    ),
]

LANES = [
    row("Lanes"),
    graph(
        "Jobs by outcome",
        "Ended jobs per second, and those that went back to their queue.",
        "ops",
        targets((per_second("coolhead_jobs_total", "lane, outcome", LANE) + MOVING, "{{lane}} {{outcome}}")),
        stacked=True,
    ),
    graph(
        "Queue wait",
        "From the first enqueue to the claim.",
        "s",
        targets(
            (quantile(0.5, "coolhead_job_queue_wait_seconds", "lane", LANE), "{{lane}} p50"),
            (quantile(0.95, "coolhead_job_queue_wait_seconds", "lane", LANE), "{{lane}} p95"),
        ),
    ),
    graph(
        "Turnaround",
        "From the first enqueue to the result: what a caller waits.",
        "s",
        targets(
            (quantile(0.5, "coolhead_job_turnaround_seconds", "lane", LANE), "{{lane}} p50"),
            (quantile(0.95, "coolhead_job_turnaround_seconds", "lane", LANE), "{{lane}} p95"),
        ),
    ),
    graph(
        "Nodes that take jobs",
        "How many nodes have the lane open.",
        "none",
        targets((f"sum by (lane) (coolhead_node_lane_open{{{LANE}}})", "{{lane}}")),
    ),
    graph(
        "Put back",
        "Jobs that went back to their queue per second, by reason.",
        "ops",
        targets(
            (
                per_second("coolhead_job_requeues_total", "reason, phase", LANE) + MOVING,
                "{{reason}} {{phase}}",
            )
        ),
        stacked=True,
    ),
    graph(
        "Wait of jobs that were put back",
        "From the first enqueue to the last claim of jobs the gate put back.",
        "s",
        targets((quantile(0.95, "coolhead_job_admission_wait_seconds", "lane", LANE), "{{lane}} p95")),
    ),
]

LATENCY = [
    row("Latency"),
    graph(
        "Model calls",
        "One call of a tier for a whole batch. A point on the graph names a job of a slow call.",
        "s",
        targets(
            (quantile(0.5, "coolhead_inference_duration_seconds", "tier"), "{{tier}} p50"),
            (quantile(0.95, "coolhead_inference_duration_seconds", "tier"), "{{tier}} p95"),
            exemplar=True,
        ),
    ),
    graph(
        "Where the time goes",
        "Mean seconds of a job: waiting in the queue, and from claim to result.",
        "s",
        targets(
            (mean("coolhead_job_queue_wait_seconds", LANE), "queue"),
            (mean("coolhead_job_duration_seconds", LANE), "claim to result"),
        ),
        stacked=True,
    ),
    graph(
        "Tokens read",
        "Tokens of prompts per second; no token is ever generated.",
        "ops",
        targets((per_second("coolhead_inference_prompt_tokens_total", "tier"), "{{tier}}")),
    ),
]

CASCADE = [
    row("Decisions"),
    graph(
        "Answers by tier",
        "Answers per second, by the tier that gave them.",
        "ops",
        targets((per_second("coolhead_decisions_total", "tier"), "{{tier}}")),
        stacked=True,
    ),
    graph(
        "Escalations",
        "Questions the deep tier was asked per second, and how often it said something else.",
        "ops",
        targets(
            (per_second("coolhead_escalations_total", "reason"), "{{reason}}"),
            (per_second("coolhead_tier_flips_total"), "reversed"),
        ),
    ),
    graph(
        "Probability of the likeliest label",
        "The median: half of the answers are surer. A fall is a drift.",
        "percentunit",
        targets((quantile(0.5, "coolhead_decision_probability", "task"), "{{task}} median")),
    ),
    graph(
        "Verdicts",
        "Answers per second, by task and what they say.",
        "ops",
        targets((per_second("coolhead_decisions_total", "task, verdict") + MOVING, "{{task}} {{verdict}}")),
        stacked=True,
        width=12,
    ),
    table(
        "Fits",
        "Which calibration a task uses, by tier. Value 1; a fit that does not match is an alert.",
        [target(f"coolhead_calibration_info{{{WORKER}}}", "{{task}}", instant=True)],
        ("Time", "Value", "__name__", "instance", "job"),
    ),
]

NODES = [
    row("Nodes"),
    timeline(
        "Thermal level",
        "What the system says about heat; a gap is a machine that can't tell.",
        targets((f"max by (node) (coolhead_node_thermal_level{{{WORKER}}})", "{{node}}")),
        LEVELS,
    ),
    timeline(
        "Safe",
        "Whether the gate found the node safe at its last look.",
        targets((f"min by (node) (coolhead_node_safe{{{WORKER}}})", "{{node}}")),
        (("unsafe", RED), ("safe", GREEN)),
    ),
    graph(
        "Paused",
        "Share of the time with every lane closed, by reason.",
        "percentunit",
        targets(
            (per_second("coolhead_node_paused_seconds_total", "node, reason") + MOVING, "{{node}} {{reason}}")
        ),
        stacked=True,
    ),
    graph(
        "Workers by state",
        "How many workers are in each state.",
        "none",
        targets(
            (
                f"sum by (coolhead_worker_state) (coolhead_worker_state{{{WORKER}}})",
                "{{coolhead_worker_state}}",
            )
        ),
        stacked=True,
    ),
    graph(
        "Memory of the worker",
        "Resident memory of each worker, models included.",
        "bytes",
        targets((f"sum by (node) (coolhead_worker_resident_memory_bytes{{{WORKER}}})", "{{node}}")),
    ),
    graph(
        "Models in memory",
        "Workers that have the tier's model in memory; fewer than nodes means that it was given up.",
        "none",
        targets((f"sum by (tier) (coolhead_model_loaded{{{WORKER}}})", "{{tier}}")),
    ),
    graph(
        "Models brought and given up",
        "Cold starts and unloads per second, by tier and reason; a saw tooth is a model too large.",
        "ops",
        targets(
            (
                per_second("coolhead_model_cold_starts_total", "tier, reason") + MOVING,
                "{{tier}} brought {{reason}}",
            ),
            (
                per_second("coolhead_model_unloads_total", "tier, reason") + MOVING,
                "{{tier}} given up {{reason}}",
            ),
        ),
    ),
    table(
        "Models",
        "The model of each tier on each node.",
        [target(f"coolhead_model_info{{{WORKER}}}", "{{node}} {{tier}}", instant=True)],
        ("Time", "Value", "__name__", "instance", "job"),
    ),
    graph(
        "Errors",
        "Errors per second, by kind.",
        "ops",
        targets((per_second("coolhead_errors_total", "kind"), "{{kind}}")),
        stacked=True,
        width=12,
    ),
]

FLEET: Panel = dashboard(
    "coolhead-fleet",
    "coolhead / fleet",
    "Is the fleet well, where does the time go, what does it decide.",
    [
        source_variable(),
        query_variable("job", "Job", "label_values(coolhead_build_info, job)"),
        query_variable("node", "Node", 'label_values(coolhead_build_info{job=~"$job"}, node)'),
        query_variable("lane", "Lane", 'label_values(coolhead_jobs_total{job=~"$job"}, lane)'),
    ],
    [*OVERVIEW, *LANES, *LATENCY, *CASCADE, *NODES],
)
