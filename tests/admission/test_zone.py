"""One zone: which trips are believed, and what level follows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coolhead_worker.admission.conditions import Thermal
from coolhead_worker.admission.zone import Zone

PASSIVE_95 = (("passive", 95_000), ("critical", 105_000))
LATE_PASSIVE = (("passive", 100_000), ("critical", 105_000))
HOT_ONLY = (("hot", 90_000),)
CRITICAL_ONLY = (("critical", 105_000),)
FLAT = (("passive", 104_800), ("hot", 104_800), ("critical", 104_800))
JUNK = (("passive", -274_000), ("hot", 0), ("critical", 255_000))
TWO_PASSIVE = (("passive", 98_000), ("passive", 88_000))
UNREADABLE = (("passive", None), ("critical", 105_000))


@pytest.mark.parametrize(
    ("kind", "trips", "limit"),
    [
        ("x86_pkg_temp", PASSIVE_95, 95.0),  # min(95, 105 - 10)
        ("x86_pkg_temp", LATE_PASSIVE, 95.0),  # min(100, 105 - 10)
        ("gpu-thermal", HOT_ONLY, 90.0),
        ("acpitz", CRITICAL_ONLY, 95.0),  # 105 - 10
        ("acpitz", FLAT, 84.8),  # a table with one number: 104.8 - 20
        ("acpitz", JUNK, 95.0),  # nothing believable: the default
        ("acpitz", (), 95.0),
        ("cpu-thermal", (("critical", 110_000),), 80.0),  # throttled by firmware
        ("cpu-thermal", (("passive", 90_000), ("critical", 110_000)), 90.0),
        ("soc-thermal", TWO_PASSIVE, 88.0),
        ("TCPU", UNREADABLE, 95.0),
    ],
)
def test_the_limit_is_the_lowest_believable_trip(kind, trips, limit) -> None:
    zone = Zone.make(kind, 50_000, trips)
    assert zone is not None
    assert zone.limit_c == pytest.approx(limit)


@pytest.mark.parametrize(
    ("milli", "trips", "level"),
    [
        (50_000, PASSIVE_95, "nominal"),
        (84_999, PASSIVE_95, "nominal"),
        (85_000, PASSIVE_95, "fair"),  # 10 below the limit
        (94_999, PASSIVE_95, "fair"),
        (95_000, PASSIVE_95, "serious"),
        (99_999, PASSIVE_95, "serious"),
        (100_000, PASSIVE_95, "critical"),  # 5 below critical
        (120_000, JUNK, "serious"),  # no critical trip: serious is the most that can be said
        (74_799, FLAT, "nominal"),
        (84_800, FLAT, "serious"),
        (89_800, FLAT, "critical"),  # before the reset at 94.5
    ],
)
def test_the_level_follows_from_the_distance_to_the_limit(milli, trips, level) -> None:
    zone = Zone.make("acpitz", milli, trips)
    assert zone is not None
    assert zone.level == level


@pytest.mark.parametrize(
    "kind",
    ["iwlwifi_1", "nvme", "pch_skylake", "INT3400 Thermal", "BAT0", "SEN1", "wifi", ""],
)
def test_zones_of_other_parts_are_left_out(kind: str) -> None:
    assert Zone.make(kind, 99_000, CRITICAL_ONLY) is None


@pytest.mark.parametrize(
    "kind",
    ["x86_pkg_temp", "TCPU", "B0D4", "acpitz", "cpu-thermal", "cpu0-thermal", "gpu-thermal", "GPU-therm",
     "soc_thermal", "cluster1-thermal", "coretemp", "k10temp", "macsmc_hwmon", "amdgpu"],
)  # fmt: skip
def test_zones_of_processors_are_taken(kind: str) -> None:
    assert Zone.make(kind, 40_000) is not None


@pytest.mark.parametrize("milli", [None, -274_000, -20_000, 150_000, 255_000, 2**31])
def test_a_temperature_that_no_machine_has_is_left_out(milli) -> None:
    assert Zone.make("acpitz", milli) is None


TRIPS = st.lists(
    st.tuples(
        st.sampled_from(["passive", "hot", "critical", "active"]), st.none() | st.integers(-300_000, 300_000)
    ),
    max_size=6,
)


@given(st.integers(-19_000, 149_000), st.integers(0, 30_000), TRIPS)
def test_hotter_is_never_a_lower_level(milli: int, more: int, trips) -> None:
    cool = Zone.make("acpitz", milli, trips)
    hot = Zone.make("acpitz", min(milli + more, 149_000), trips)
    assert cool is not None
    assert hot is not None
    assert hot.level.heat >= cool.level.heat > Thermal.UNKNOWN.heat
