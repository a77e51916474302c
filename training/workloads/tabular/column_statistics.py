"""Statistics of a table's rows: moments of numbers, and counts of category values.

They are computed in parts and merged. Merging in a fixed order gives bitwise equal results,
whichever process has computed which part.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ValidationError

from training.workloads.tabular.config import TabularConfig
from trainyard.common.errors import DataError


@dataclass(frozen=True)
class Moments:
    """Moments of several columns; each array has the shape (columns,)."""

    count: np.ndarray
    """Number of values that are not missing."""
    mean: np.ndarray
    m2: np.ndarray
    """Sum of the squared differences from the mean."""

    @classmethod
    def create_empty(cls, columns: int) -> "Moments":
        return cls(*(np.zeros(columns) for _ in range(3)))

    @classmethod
    def from_values(cls, values: np.ndarray) -> "Moments":
        """Compute the moments of ``values``, shape (rows, columns). NaN is a missing value."""
        wide = values.T.astype(np.float64, order="C")  # contiguous for each column of ``values``
        count, total = np.full(len(wide), float(len(values))), wide.sum(axis=1)
        gaps = np.flatnonzero(np.isnan(total))  # the columns with missing values, usually few
        missing = np.isnan(wide[gaps])
        count[gaps] -= missing.sum(axis=1)
        total[gaps] = wide[gaps].sum(axis=1, where=~missing)
        mean = total / np.maximum(count, 1)
        wide -= mean[:, None]
        np.square(wide, out=wide)
        m2 = wide.sum(axis=1)
        m2[gaps] = wide[gaps].sum(axis=1, where=~missing)
        return cls(count, mean, m2)

    def merge(self, other: "Moments") -> "Moments":
        """Return the merged moments (Chan, Golub & LeVeque 1983, equations 1.5a and 1.5b)."""
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
    """Counts of the values of one category."""

    counts: dict[str | None, int] = field(default_factory=dict)
    """Number of rows of each value. None is a missing value."""
    hashes: dict[str | None, int] = field(default_factory=dict)
    """Hash of each value, as in the samples."""

    def add(
        self, values: Iterable[str | None], hashes: Iterable[int], counts: Iterable[int]
    ) -> None:
        for value, code, count in zip(values, hashes, counts, strict=True):
            self.counts[value] = self.counts.get(value, 0) + count
            self.hashes[value] = code


@dataclass
class Statistics:
    """Statistics of the rows of one unit in one split, or of several units merged."""

    numbers: tuple[str, ...]
    """Columns that have moments."""
    moments: Moments
    categories: dict[str, Values]

    @classmethod
    def create_empty(cls, categories: Sequence[str], numbers: Sequence[str]) -> "Statistics":
        values = {name: Values() for name in categories}
        return cls(tuple(numbers), Moments.create_empty(len(numbers)), values)

    def as_json(self) -> dict[str, Any]:
        """Return the statistics as JSON.

        ``numbers`` has count, mean and M2 of each column; ``categories`` has each column's values,
        their hashes and their counts.
        """
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
        """Add the statistics of other rows with the same columns, in the form of ``as_json``."""
        columns = [part["numbers"][name] for name in self.numbers]
        arrays = (np.array([c[key] for c in columns], float) for key in ("count", "mean", "m2"))
        self.moments = self.moments.merge(Moments(*arrays))
        for name, values in self.categories.items():
            table = part["categories"][name]
            values.add(table["value"], table["hash"], table["count"])


# What the model needs to know about the training split. It is stored with the model as
# features.json.

FILE = "features.json"


class Number(BaseModel):
    """How a column of numbers is normalised, in the column's unit."""

    mean: float
    standard_deviation: float


class Category(BaseModel):
    """Values that have their own embedding, ordered by hash: id 1, 2, …; id 0 is for all others."""

    hashes: tuple[int, ...]
    values: tuple[str | None, ...]
    """The values as in the raw data, for human readers. None is a missing value."""


class Features(BaseModel):
    """Normalisation and vocabulary of every column, in the order of the settings."""

    numbers: dict[str, Number]
    categories: dict[str, Category]

    @classmethod
    def from_statistics(
        cls, config: TabularConfig, parts: Iterable[Mapping[str, Any]]
    ) -> "Features":
        """Compute the features from the statistics of units, merged in the given order."""
        total = Statistics.create_empty(config.categories, config.numbers)
        for part in parts:
            total.add_json(part)
        moments = total.moments
        variance = moments.m2 / np.maximum(moments.count - 1, 1)
        rows = zip(config.numbers, moments.mean.tolist(), variance.tolist(), strict=True)
        # A constant column has no information: it becomes 0 instead of a division by 0.
        numbers = {
            name: Number(mean=mean, standard_deviation=math.sqrt(spread) or 1.0)
            for name, mean, spread in rows
        }
        categories = {n: _build_category(v, config.min_count) for n, v in total.categories.items()}
        return cls(numbers=numbers, categories=categories)

    @classmethod
    def read(cls, path: Path) -> "Features":
        """Read the features from a file.

        Raises:
            DataError: the file is damaged.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise DataError(
                f"{path}: is damaged ({error.errors()[0]['msg']}); train the model again"
            ) from None

    def render_json(self) -> bytes:
        """Return the content of features.json."""
        return json.dumps(self.model_dump(mode="json"), indent=1, ensure_ascii=False).encode()


def _build_category(values: Values, min_count: int) -> Category:
    """Return the category's values that occur in at least ``min_count`` rows."""
    pairs = sorted(
        (values.hashes[value], value)
        for value, count in values.counts.items()
        if count >= min_count
    )
    return Category(
        hashes=tuple(code for code, _ in pairs), values=tuple(value for _, value in pairs)
    )
