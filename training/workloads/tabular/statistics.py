"""What is counted over a table's rows, part by part, and merged: moments of numbers, value counts.

Merging in a fixed order gives the same bits again, whoever counted which part.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

MISSING = 0  # stands for the hash of a missing value


@dataclass(frozen=True)
class Moments:
    """Of several columns at once; each array has the shape (columns,)."""

    count: np.ndarray
    """Values that are not missing."""
    mean: np.ndarray
    m2: np.ndarray
    """Sum of the squared distances from the mean."""

    @classmethod
    def none(cls, columns: int) -> "Moments":
        return cls(*(np.zeros(columns) for _ in range(3)))

    @classmethod
    def of(cls, values: np.ndarray) -> "Moments":
        """Of ``values``, shape (rows, columns); NaN is a missing value."""
        wide = values.astype(np.float64)
        there = ~np.isnan(wide)
        count = there.sum(axis=0, dtype=np.float64)
        mean = wide.sum(axis=0, where=there) / np.maximum(count, 1)
        return cls(count, mean, np.square(wide - mean).sum(axis=0, where=there))

    def merged(self, other: "Moments") -> "Moments":
        """Of both parts' rows (Chan, Golub & LeVeque 1983, equations 1.5a and 1.5b)."""
        count = self.count + other.count
        total = np.maximum(count, 1)
        distance = other.mean - self.mean
        return Moments(
            count,
            self.mean + distance * other.count / total,
            self.m2 + other.m2 + distance**2 * self.count * other.count / total,
        )


@dataclass
class Values:
    """How often each value of one category occurs."""

    counts: dict[str | None, int] = field(default_factory=dict)
    """Value (None: missing) → rows."""
    hashes: dict[str | None, int] = field(default_factory=dict)
    """Value → the hash that stands for it in the samples."""

    def add(self, values: Iterable[str | None], hashes: Iterable[int], counts: Iterable[int]):
        for value, code, count in zip(values, hashes, counts, strict=True):
            self.counts[value] = self.counts.get(value, 0) + count
            self.hashes[value] = code


@dataclass
class Statistics:
    """Of the rows of one raw object in one split, or of many merged."""

    numbers: tuple[str, ...]
    """Columns of the moments."""
    moments: Moments
    categories: dict[str, Values]

    @classmethod
    def none(cls, categories: Sequence[str], numbers: Sequence[str]) -> "Statistics":
        values = {name: Values() for name in categories}
        return cls(tuple(numbers), Moments.none(len(numbers)), values)

    def as_json(self) -> dict[str, Any]:
        """Column → count, mean, M2; column → its values, their hashes, their counts."""
        moments = (self.moments.count, self.moments.mean, self.moments.m2)
        rows = zip(self.numbers, *(array.tolist() for array in moments), strict=True)
        return {
            "numbers": {
                name: {"count": int(count), "mean": mean, "m2": m2}
                for name, count, mean, m2 in rows
            },
            "categories": {
                name: {
                    "value": list(values.counts),
                    "hash": list(values.hashes.values()),
                    "count": list(values.counts.values()),
                }
                for name, values in self.categories.items()
            },
        }

    def add_json(self, part: Mapping[str, Any]) -> None:
        """Add what ``as_json`` gave for other rows of the same columns."""
        columns = [part["numbers"][name] for name in self.numbers]
        arrays = (np.array([c[key] for c in columns], float) for key in ("count", "mean", "m2"))
        self.moments = self.moments.merged(Moments(*arrays))
        for name, values in self.categories.items():
            table = part["categories"][name]
            values.add(table["value"], table["hash"], table["count"])
