"""Distributions in few numbers: KLL sketches, and the distance between two of them.

Karnin, Lang, Liberty: "Optimal quantile approximation in streams" (2016). The item of a level has
twice the weight of the level below. Here a level is halved by taking every other of its sorted
items, the first or the second by turns, so that equal data give an equal sketch.
"""

from typing import Any

import numpy as np

K = 2048
"""Items that a level holds before it is halved, as in AWS's files."""
C = 0.64
BUCKETS = 10


def make(values: np.ndarray) -> dict[str, Any]:
    """``distribution.kll`` of statistics.json. ``values``: n finite numbers, n ≥ 1."""
    edges = np.linspace(values.min(), values.max(), BUCKETS + 1)
    counts = np.histogram(values, edges)[0] if edges[0] < edges[-1] else _one_bucket(values)
    return {
        "buckets": [
            {"lower_bound": float(low), "upper_bound": float(high), "count": float(count)}
            for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
        ],
        "sketch": {"parameters": {"c": C, "k": float(K)}, "data": _levels(values)},
    }


def _one_bucket(values: np.ndarray) -> np.ndarray:
    counts = np.zeros(BUCKETS, int)
    counts[-1] = len(values)
    return counts


def _levels(values: np.ndarray) -> list[list[float]]:
    levels: list[list[float]] = []
    level, turn = np.sort(values), 0
    while len(level) > K:
        odd = len(level) % 2
        levels.append(level[len(level) - odd :].tolist())
        level, turn = level[: len(level) - odd][turn::2], 1 - turn
    return [*levels, level.tolist()]


def weighted(kll: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Sorted values of a sketch and the weight of each; they sum to the number of data."""
    levels = kll["sketch"]["data"]
    values = np.concatenate([np.array(level, float) for level in levels])
    weights = np.concatenate([np.full(len(level), 2.0**i) for i, level in enumerate(levels)])
    order = np.argsort(values, kind="stable")
    return values[order], weights[order]


def distance(one: dict[str, Any], other: dict[str, Any], robust: bool) -> float:
    """Largest difference between the two cumulative distributions, in [0, 1].

    ``robust`` takes off what chance alone explains: the two-sample Kolmogorov-Smirnov test's
    critical value at 5 %, 1.358 √((n + m) / n m). AWS names that test and no formula.
    """
    (a, wa), (b, wb) = weighted(one), weighted(other)
    points = np.union1d(a, b)
    gap = float(np.abs(_share(a, wa, points) - _share(b, wb, points)).max())
    n, m = wa.sum(), wb.sum()
    return max(0.0, gap - 1.358 * float(np.sqrt((n + m) / (n * m)))) if robust else gap


def _share(values: np.ndarray, weights: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The share of the weight at or below each of ``points``."""
    sums = np.concatenate([[0.0], np.cumsum(weights)])
    return sums[np.searchsorted(values, points, side="right")] / sums[-1]
