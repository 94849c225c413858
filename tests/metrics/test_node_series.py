"""What the scrape reads from the machine and the process."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil
import pytest
from prometheus_client import CollectorRegistry

from coolhead_worker.admission.conditions import Conditions, Memory, Thermal
from coolhead_worker.metrics import Metrics
from coolhead_worker.metrics_node import ProcessCollector
from tests.metrics.samples import samples, value

NODE = {
    "coolhead_node_thermal_level",
    "coolhead_node_thermal_unknown",
    "coolhead_node_on_ac_power",
    "coolhead_node_battery_charge_ratio",
    "coolhead_node_low_power_mode",
    "coolhead_node_memory_pressure_level",
}


def read(conditions: Conditions | None) -> dict[str, float]:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    if conditions is not None:
        metrics.conditions(conditions)
    return {name: found for (name, _), found in samples(registry).items() if name in NODE}


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        (None, {}),
        (Conditions(), {"thermal_unknown": 1}),
        (Conditions(Thermal.NOMINAL), {"thermal_unknown": 0, "thermal_level": 0}),
        (Conditions(Thermal.CRITICAL), {"thermal_unknown": 0, "thermal_level": 3}),
        (
            Conditions(Thermal.SERIOUS, on_ac=False, battery=0.25, low_power=True, memory=Memory.CRITICAL),
            {
                "thermal_unknown": 0,
                "thermal_level": 2,
                "on_ac_power": 0,
                "battery_charge_ratio": 0.25,
                "low_power_mode": 1,
                "memory_pressure_level": 2,
            },
        ),
    ],
)
def test_what_nobody_can_read_is_absent(conditions: Conditions | None, expected: dict[str, float]) -> None:
    assert read(conditions) == {f"coolhead_node_{name}": found for name, found in expected.items()}


def test_a_level_that_becomes_unknown_disappears() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    metrics.conditions(Conditions(Thermal.FAIR))
    assert value(registry, "coolhead_node_thermal_level") == 1
    metrics.conditions(Conditions())
    assert value(registry, "coolhead_node_thermal_level") is None
    assert value(registry, "coolhead_node_thermal_unknown") == 1


def test_the_process_tells_its_start_memory_and_processor_time() -> None:
    registry = CollectorRegistry()
    Metrics(registry)
    own = psutil.Process(os.getpid())
    assert value(registry, "coolhead_worker_start_time_seconds") == pytest.approx(own.create_time(), abs=1)
    started = value(registry, "coolhead_worker_start_time_seconds")
    assert started is not None
    assert started <= time.time()
    assert (value(registry, "coolhead_worker_resident_memory_bytes") or 0) > 1e6
    assert (value(registry, "coolhead_worker_cpu_seconds_total") or 0) > 0


def test_a_process_that_cannot_be_read_costs_only_its_own_series() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        gone = psutil.Process(child.pid)
        child.communicate(b"\n")
    registry = CollectorRegistry()
    registry.register(ProcessCollector(gone))
    assert samples(registry) == {}
    assert len(list(registry.collect())) == 3
