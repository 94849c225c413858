"""PromQL of the dashboards: the selectors and operations every query is made of.

Guarantee: pure; counters appear only inside `rate`, histograms keep `le`, a share of nothing is
absent and not NaN.
"""

from __future__ import annotations

WORKER = 'job=~"$job",node=~"$node"'
LANE = WORKER + ',lane=~"$lane"'
RATE = "[$__rate_interval]"
#: Hides what does not happen, so that a legend names only what does.
MOVING = " > 0"


def rate(name: str, selector: str = WORKER) -> str:
    """Events per second, per series."""
    return f"rate({name}{{{selector}}}{RATE})"


def quantile(q: float, histogram: str, by: str, selector: str = WORKER) -> str:
    """A quantile of a classic histogram."""
    return f"histogram_quantile({q}, sum by ({by}, le) ({rate(histogram + '_bucket', selector)}))"


def per_second(counter: str, by: str = "", selector: str = WORKER) -> str:
    """Events per second, summed, by these labels."""
    grouping = f"sum by ({by}) " if by else "sum"
    return f"{grouping}({rate(counter, selector)})"


def share(part: str, whole: str) -> str:
    """A ratio that is absent, not NaN, while nothing happens."""
    return f"{part} / ({whole}{MOVING})"


def mean(histogram: str, selector: str = WORKER) -> str:
    """Mean over all series."""
    return share(per_second(histogram + "_sum", "", selector), per_second(histogram + "_count", "", selector))
