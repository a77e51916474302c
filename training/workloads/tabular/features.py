"""Facts that the model needs about the training split; stored with the model as features.json."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from training.workloads.tabular.column_statistics import Statistics, Values
from training.workloads.tabular.config import TabularConfig
from trainyard.common.errors import DataError

FILE = "features.json"


@dataclass(frozen=True)
class Number:
    """How a column of numbers is normalised, in the column's unit."""

    mean: float
    standard_deviation: float


@dataclass(frozen=True)
class Category:
    """Values that have their own embedding, ordered by hash: id 1, 2, …; id 0 is for all others."""

    hashes: tuple[int, ...]
    values: tuple[str | None, ...]
    """The values as in the raw data, for people; None is a missing value."""


@dataclass(frozen=True)
class Features:
    """Normalisation and vocabulary of every column, in the order of the settings."""

    numbers: Mapping[str, Number]
    categories: Mapping[str, Category]

    @classmethod
    def from_statistics(
        cls, config: TabularConfig, parts: Iterable[Mapping[str, Any]]
    ) -> "Features":
        """Compute them from the statistics of units, merged in the given order."""
        total = Statistics.none(config.categories, config.numbers)
        for part in parts:
            total.add_json(part)
        moments = total.moments
        variance = moments.m2 / np.maximum(moments.count - 1, 1)
        rows = zip(config.numbers, moments.mean.tolist(), variance.tolist(), strict=True)
        return cls(
            # A constant column has no information: it becomes 0 instead of a division by 0.
            {name: Number(mean, math.sqrt(spread) or 1.0) for name, mean, spread in rows},
            {name: _category(v, config.min_count) for name, v in total.categories.items()},
        )

    @classmethod
    def read(cls, path: Path) -> "Features":
        """Read them from a file. Raises: DataError: the file is damaged."""
        try:
            tree = json.loads(path.read_bytes())
            numbers = {name: Number(**fields) for name, fields in tree["numbers"].items()}
            categories = {
                name: Category(tuple(fields["hashes"]), tuple(fields["values"]))
                for name, fields in tree["categories"].items()
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{path}: is damaged ({error!r}); train the model again") from None
        return cls(numbers, categories)

    def content(self) -> bytes:
        """Return the content of features.json."""
        tree = {
            "numbers": {name: asdict(number) for name, number in self.numbers.items()},
            "categories": {name: asdict(category) for name, category in self.categories.items()},
        }
        return json.dumps(tree, indent=1, ensure_ascii=False).encode()


def _category(values: Values, min_count: int) -> Category:
    pairs = sorted(
        (values.hashes[value], value)
        for value, count in values.counts.items()
        if count >= min_count
    )
    return Category(tuple(code for code, _ in pairs), tuple(value for _, value in pairs))
