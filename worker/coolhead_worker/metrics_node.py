"""Gauges that are read at the moment of a scrape: the machine's conditions and this process.

Guarantee: what nobody can read is absent, never 0 and never "nominal"; a failing read costs its own
series and nothing else. `process_*` of prometheus_client exists on Linux only, hence our own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import psutil
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from coolhead_worker.metrics_catalogue import CATALOGUE, Series

if TYPE_CHECKING:
    from coolhead_worker.admission.conditions import Conditions

_NODE = tuple(series for series in CATALOGUE.values() if series.read and "_node_" in series.name)
_WORKER = tuple(series for series in CATALOGUE.values() if series.read and "_worker_" in series.name)


class ConditionsCollector(Collector):
    """What the last `Conditions` said."""

    def __init__(self) -> None:
        self._conditions: Conditions | None = None

    def update(self, conditions: Conditions) -> None:
        """Show these from now on, from any thread."""
        self._conditions = conditions

    def describe(self) -> Iterator[Metric]:
        """The families, without samples."""
        return _families(_NODE, {})

    def collect(self) -> Iterator[Metric]:
        """The families, each with a sample where its value is known."""
        return _families(_NODE, {} if self._conditions is None else _levels(self._conditions))


class ProcessCollector(Collector):
    """Start, memory and processor time of a process, on every system psutil knows."""

    def __init__(self, process: psutil.Process | None = None) -> None:
        self._process = process or psutil.Process()

    def describe(self) -> Iterator[Metric]:
        """The families, without samples."""
        return _families(_WORKER, {})

    def collect(self) -> Iterator[Metric]:
        """The families; without samples when the system refuses to tell."""
        try:
            return _families(_WORKER, self._read())
        except (psutil.Error, OSError):
            return self.describe()

    def _read(self) -> dict[str, float | None]:
        with self._process.oneshot():
            cpu = self._process.cpu_times()
            return {
                "coolhead_worker_start_time_seconds": self._process.create_time(),
                "coolhead_worker_resident_memory_bytes": self._process.memory_info().rss,
                "coolhead_worker_cpu_seconds_total": cpu.user + cpu.system,
            }


def _levels(conditions: Conditions) -> dict[str, float | None]:
    heat, pressure = conditions.thermal.heat, conditions.memory.pressure
    return {
        "coolhead_node_thermal_level": None if heat < 0 else heat,
        "coolhead_node_thermal_unknown": heat < 0,
        "coolhead_node_on_ac_power": conditions.on_ac,
        "coolhead_node_battery_charge_ratio": conditions.battery,
        "coolhead_node_low_power_mode": conditions.low_power,
        "coolhead_node_memory_pressure_level": None if pressure < 0 else pressure,
    }


def _families(series: tuple[Series, ...], values: Mapping[str, float | None]) -> Iterator[Metric]:
    for one in series:
        build = CounterMetricFamily if one.kind == "counter" else GaugeMetricFamily
        family = build(one.name.removesuffix("_total"), one.help)
        value = values.get(one.name)
        if value is not None:
            family.add_metric([], float(value))
        yield family
