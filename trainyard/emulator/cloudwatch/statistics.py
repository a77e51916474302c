"""Statistics of the data of one period."""

import re
from collections.abc import Callable, Sequence

from trainyard.emulator.cloudwatch.metrics import Point

PLAIN: dict[str, Callable[[Sequence[Point]], float]] = {
    "SampleCount": lambda points: sum(p.count for p in points),
    "Sum": lambda points: sum(p.sum for p in points),
    "Average": lambda points: sum(p.sum for p in points) / sum(p.count for p in points),
    "Minimum": lambda points: min(p.least for p in points),
    "Maximum": lambda points: max(p.most for p in points),
}
_PERCENTILE = re.compile(r"p(\d{1,2}(?:\.\d{1,10})?|100)")


def known(statistic: str) -> bool:
    """Whether :func:`computed` has it: the plain five, and percentiles (``p99``, ``p99.9``)."""
    return statistic in PLAIN or bool(_PERCENTILE.fullmatch(statistic))


def computed(statistic: str, points: Sequence[Point]) -> float | None:
    """The statistic of a period's data; None without data, as for a percentile of sets of
    statistics, whose single values are not known."""
    found = [point for point in points if point.count > 0]
    if not found:
        return None
    if statistic in PLAIN:
        return PLAIN[statistic](found)
    match = _PERCENTILE.fullmatch(statistic)
    assert match, statistic
    if any(point.least != point.most for point in found):
        return None
    return _percentile(float(match[1]) / 100, sorted((p.least, p.count) for p in found))


def _percentile(share: float, values: list[tuple[float, float]]) -> float:
    """The least value that at least ``share`` of all are no greater than."""
    wanted, seen = share * sum(count for _, count in values), 0.0
    for value, count in values:
        seen += count
        if seen >= wanted - 1e-9:
            return value
    return values[-1][0]
