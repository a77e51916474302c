"""statistics.json: each column's type, values that are there, moments, distribution."""

from collections import Counter
from typing import Any

import numpy as np

from trainyard.quality import sketch
from trainyard.quality.tables import Cells, Table, is_integer, numbers

FRACTIONAL, INTEGRAL, STRING, UNKNOWN = "Fractional", "Integral", "String", "Unknown"
CATEGORIES = 100
"""Distinct values up to which a text column's distribution is written."""


def describe(table: Table) -> dict[str, Any]:
    """The document, as Model Monitor writes it."""
    return {
        "version": 0.0,
        "dataset": {"item_count": table.rows},
        "features": [_feature(name, cells) for name, cells in table.columns.items()],
    }


def inferred_type(cells: Cells) -> str:
    """Integral, Fractional, String, or Unknown where no value is there."""
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
    """``std_dev`` is the population's."""
    finite = values[np.isfinite(values)]
    return {
        "mean": float(finite.mean()),
        "sum": float(finite.sum()),
        "std_dev": float(finite.std()),
        "min": float(finite.min()),
        "max": float(finite.max()),
        "distribution": {"kll": sketch.make(finite)},
    } if finite.size else {}  # fmt: skip


def _words(present: list[str]) -> dict[str, Any]:
    counts = Counter(present)
    found: dict[str, Any] = {"distinct_count": len(counts)}
    if counts and len(counts) <= CATEGORIES:
        buckets = [{"value": value, "count": count} for value, count in sorted(counts.items())]
        found["distribution"] = {"categorical": {"buckets": buckets}}
    return found
