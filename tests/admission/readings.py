"""Strategies for hypothesis: any reading a machine could give."""

from __future__ import annotations

from hypothesis import strategies as st

from coolhead_worker.admission.conditions import Conditions, Memory, Thermal

NAMES = st.sampled_from(["", "libnotify", "x86_pkg_temp", "acpitz", "throttle counter"])
FLAGS = st.sampled_from([None, True, False])


def readings(thermal: st.SearchStrategy[Thermal] | None = None) -> st.SearchStrategy[Conditions]:
    """Any conditions; `thermal` narrows the level."""
    return st.builds(
        Conditions,
        thermal=thermal if thermal is not None else st.sampled_from(Thermal),
        thermal_source=NAMES,
        on_ac=FLAGS,
        battery=st.none() | st.floats(0, 1),
        low_power=FLAGS,
        memory=st.sampled_from(Memory),
        vanished=st.booleans(),
        read_at=st.floats(0, 1e6),
        low_power_source=NAMES,
        memory_source=NAMES,
        vanished_source=NAMES,
    )
