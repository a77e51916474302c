"""Compute statistics.json: each column's type, number of values, moments, distribution."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from trainyard.quality.tables import Cells, Table, is_integer, numbers

FRACTIONAL, INTEGRAL, STRING, UNKNOWN = "Fractional", "Integral", "String", "Unknown"
CATEGORIES = 100
"""Largest number of distinct values of a text column whose distribution is written."""


def describe(table: Table) -> dict[str, Any]:
    """Return statistics.json, as Model Monitor writes it."""
    return {
        "version": 0.0,
        "dataset": {"item_count": table.rows},
        "features": [_feature(name, cells) for name, cells in table.columns.items()],
    }


def not_described(statistics: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Iterate over (name, distinct values) of text columns without a distribution."""
    for feature in statistics["features"]:
        count = feature.get("string_statistics", {}).get("distinct_count", 0)
        if count > CATEGORIES:
            yield feature["name"], count


def inferred_type(cells: Cells) -> str:
    """Return Integral, Fractional, String, or Unknown if there is no value."""
    present = [cell for cell in cells if cell is not None]
    if not present:
        return UNKNOWN
    if all(is_integer(cell) for cell in present):
        return INTEGRAL
    return STRING if np.isnan(numbers(list(present))).any() else FRACTIONAL


def _feature(name: str, cells: Cells) -> dict[str, Any]:
    kind = inferred_type(cells)
    present = [cell for cell in cells if cell is not None]
    common = {"num_present": len(present), "num_missing": len(cells) - len(present)}
    feature: dict[str, Any] = {"name": name, "inferred_type": kind}
    if kind in (INTEGRAL, FRACTIONAL):
        feature["numerical_statistics"] = {"common": common, **_moments(numbers(list(present)))}
    else:
        feature["string_statistics"] = {"common": common, **_words(present)}
    return feature


def _moments(values: np.ndarray) -> dict[str, Any]:
    """Return the moments of a column; ``std_dev`` is the population's."""
    finite = values[np.isfinite(values)]
    return {
        "mean": float(finite.mean()),
        "sum": float(finite.sum()),
        "std_dev": float(finite.std()),
        "min": float(finite.min()),
        "max": float(finite.max()),
        "distribution": {"kll": make(finite)},
    } if finite.size else {}  # fmt: skip


def _words(present: list[str]) -> dict[str, Any]:
    counts = Counter(present)
    result: dict[str, Any] = {"distinct_count": len(counts)}
    if counts and len(counts) <= CATEGORIES:
        buckets = [{"value": value, "count": count} for value, count in sorted(counts.items())]
        result["distribution"] = {"categorical": {"buckets": buckets}}
    return result


# Karnin, Lang, Liberty: "Optimal quantile approximation in streams" (2016). The item of a level
# has twice the weight of the level below. Here a level is halved by taking every other of its
# sorted items, the first or the second by turns, so that equal data give an equal sketch.


K = 2048
"""Items that a level holds before it is halved, as in AWS's files."""
C = 0.64
BUCKETS = 10


def make(values: np.ndarray) -> dict[str, Any]:
    """Return ``distribution.kll`` of statistics.json. ``values``: n finite numbers, n ≥ 1."""
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


def weigh_sketch(kll: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted values of a sketch and their weights, which sum to the number of data."""
    levels = kll["sketch"]["data"]
    values = np.concatenate([np.array(level, float) for level in levels])
    weights = np.concatenate([np.full(len(level), 2.0**i) for i, level in enumerate(levels)])
    order = np.argsort(values, kind="stable")
    return values[order], weights[order]


def distance(first: dict[str, Any], other: dict[str, Any], robust: bool) -> float:
    """Return the largest difference between the two cumulative distributions, in [0, 1].

    ``robust`` subtracts what chance alone explains: the two-sample Kolmogorov-Smirnov test's
    critical value at 5 %, 1.358 √((n + m) / n m). AWS names that test and no formula.
    """
    (a, wa), (b, wb) = weigh_sketch(first), weigh_sketch(other)
    points = np.union1d(a, b)
    gap = float(np.abs(_share(a, wa, points) - _share(b, wb, points)).max())
    n, m = wa.sum(), wb.sum()
    return max(0.0, gap - 1.358 * float(np.sqrt((n + m) / (n * m)))) if robust else gap


def _share(values: np.ndarray, weights: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return the share of the weight at or below each of ``points``."""
    sums = np.concatenate([[0.0], np.cumsum(weights)])
    return sums[np.searchsorted(values, points, side="right")] / sums[-1]
