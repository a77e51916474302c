"""Scores of single examples, block by block, and the metrics computed from them.

A block is a table of some rows, one array per column; a row is an example:

``example``           int64: identifies the example by its content; equal for every model
``group``             int64: examples of one group depend on each other (a day, a user, a document)
``slice.<name>``      strings: the example's value of a slice that the recipe declares
``<metric>.sum``      float64, and
``<metric>.weight``   float64: the metric of any set of rows is Σ sum / Σ weight
``probability``       float64, of a binary classifier, and
``label``             uint8
"""

import math
from collections.abc import Iterable, Mapping

import numpy as np

from training.data.bit_mixing import ODD

Block = Mapping[str, np.ndarray]

Metrics = dict[str, dict[str, float]]
"""Mapping of metric to its ``value`` and ``compute_standard_error``."""

BUCKETS = 1 << 16


class Clusters:
    """Sums over groups in constant memory: groups are hashed into BUCKETS buckets.

    Two groups in one bucket count as one larger group. Because groups are independent, the standard
    error is still right in expectation; it is only estimated from fewer groups (at most BUCKETS).
    """

    def __init__(self) -> None:
        self._sums: dict[str, np.ndarray] = {}
        self._has_rows = np.zeros(BUCKETS, bool)

    def add(self, groups: np.ndarray, columns: Block) -> None:
        """Add rows, given their groups, int64 (n,), and the columns to sum over each group."""
        # Use the upper 16 bits of the hash, which have as many values as there are buckets.
        buckets = (groups.view(np.uint64) * ODD >> np.uint64(48)).astype(np.int64)
        self._has_rows[buckets] = True
        for name, values in columns.items():
            sums = self._sums.setdefault(name, np.zeros(BUCKETS))
            np.add.at(sums, buckets, values)

    def compute_sums(self, name: str) -> np.ndarray:
        """Return the sum of each bucket that has a row, float64."""
        return self._sums[name][self._has_rows]


def compute_ratios(blocks: Iterable[Block]) -> Metrics:
    """Compute every metric that has columns, over all rows, in constant memory.

    The standard error is that of a ratio estimator over groups (Cochran 1977, section 6.3; for a
    weight of 1 that of Liang & Zeger 1986); NaN for a single group.
    """
    clusters, names = Clusters(), []
    for block in blocks:
        names = [name.removesuffix(".sum") for name in block if name.endswith(".sum")]
        parts = [f"{name}.{part}" for name in names for part in ("sum", "weight")]
        clusters.add(block["group"], {part: block[part] for part in parts})
    return {
        n: _compute_ratio(clusters.compute_sums(f"{n}.sum"), clusters.compute_sums(f"{n}.weight"))
        for n in names
    }


def compute_standard_error(pulls: np.ndarray) -> float:
    """Return the standard error of a metric from each group's contribution to its deviation; NaN
    for one group.
    """
    count = len(pulls)
    return math.sqrt(np.square(pulls).sum() * count / (count - 1)) if count > 1 else math.nan


def _compute_ratio(numerators: np.ndarray, denominators: np.ndarray) -> dict[str, float]:
    """Return Σ numerators / Σ denominators with its standard error; each has a value per bucket."""
    total = denominators.sum()
    if not total:
        return {"value": math.nan, "standard_error": math.nan}
    value = float(numerators.sum() / total)
    return {
        "value": value,
        "standard_error": compute_standard_error((numerators - value * denominators) / total),
    }
