"""Whether the deep model stays in memory, decided from memory pressure alone.

Guarantee: pure. A resident model is given up with the very reading that says critical; it is wanted
back only after memory was normal, without a break, for the hold-down. What nobody can read gives no
model up and brings none back. A model that had to go again soon after it came back waits twice as
long the next time, up to `LONGEST` hold-downs, so that a model too large for its machine is not read
from disk every minute.

    resident ── critical ──> away ── normal for hold_s, a lane is open ──> resident
                              ^── warn, critical, unknown: the hold-down begins anew
"""

from __future__ import annotations

from enum import StrEnum

from coolhead_worker.admission.conditions import Memory

#: The longest wait, as a multiple of the hold-down that was asked for.
LONGEST = 16


class Move(StrEnum):
    """What to do with the model now."""

    KEEP = "keep"
    UNLOAD = "unload"
    LOAD = "load"


def normal_since(memory: Memory, before: float | None, now: float) -> float | None:
    """When memory became normal for the last time; None while it is not.

    Args:
        memory: the newest reading.
        before: what the last call returned.
        now: monotonic seconds.
    """
    if memory is not Memory.NORMAL:
        return None
    return now if before is None else before


def decide(memory: Memory, *, loaded: bool, normal_since: float | None, now: float, hold_s: float) -> Move:
    """What the newest reading asks for.

    Args:
        memory: the newest reading.
        loaded: whether the model is in memory.
        normal_since: see the function of that name.
        now: monotonic seconds.
        hold_s: how long memory must have been normal before the model comes back.
    """
    if loaded:
        return Move.UNLOAD if memory is Memory.CRITICAL else Move.KEEP
    if memory is not Memory.NORMAL or normal_since is None or now - normal_since < hold_s:
        return Move.KEEP
    return Move.LOAD


def next_hold(hold_s: float, base_s: float, resident_s: float | None) -> float:
    """The hold-down of a model that goes away now.

    Args:
        hold_s: its last one.
        base_s: the one that was asked for.
        resident_s: how long it had been back in memory; None when it had never been away.
    """
    soon = resident_s is not None and resident_s < 2 * hold_s
    return min(2 * hold_s, LONGEST * base_s) if soon else base_s
