"""The share of time in which the processor was throttled."""

from __future__ import annotations

import pytest

from coolhead_worker.admission.throttle import ThrottleMeter

#: (monotonic seconds, counter in milliseconds, level)
STORIES = {
    "a long window": [
        (0, 1000, "unknown"),  # nothing to compare with
        (10, 1000, "nominal"),
        (20, 1100, "fair"),  # 1 %
        (30, 3100, "fair"),  # 20 %
        (40, 5101, "serious"),  # 20.01 %
        (50, 5101, "nominal"),
    ],
    "quick readings": [
        (0, 0, "unknown"),
        (1, 0, "nominal"),
        (1.01, 5, "fair"),  # 5 ms in 10 ms is 0.5 % of a second
        (1.02, 5, "fair"),
        (1.25, 250, "serious"),  # more than 0.2 s within one second: at once
        (1.5, 250, "serious"),
        (2, 250, "serious"),  # the window as a whole: 25 %
        (2.5, 250, "serious"),  # half a calm window proves nothing
        (3, 250, "nominal"),
    ],
    "a counter that goes back": [
        (0, 500, "unknown"),
        (1, 500, "nominal"),
        (2, 3, "unknown"),
        (3, 3, "nominal"),
    ],
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_a_rise_shows_at_once_and_calm_after_a_whole_window(story) -> None:
    meter = ThrottleMeter()
    assert [(now, meter.update(now, total)) for now, total, _ in story] == [
        (now, level) for now, _, level in story
    ]
