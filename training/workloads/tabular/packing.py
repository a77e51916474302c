"""Rows to samples: category values as hashes, numbers as float32, the label as 0 or 1."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pandas.util import hash_array

from errors import DataError
from training.data.manifest import Field, Samples
from training.workloads import Column
from training.workloads.tabular.config import TabularConfig
from training.workloads.tabular.statistics import MISSING, Moments, Statistics


class Packing:
    """See ``training.workloads.Packing``; a sample is a row.

    Which values exist is not known before all rows were read, so a sample holds a value's hash and
    not its number in a vocabulary. Two equal rows may be two events, so none is a duplicate unless
    the recipe says in which columns (``shard.unique``).
    """

    identity = ()

    def __init__(self, config: TabularConfig, assets: Path | None) -> None:
        self.config, self.assets = config, assets
        self.columns: dict[str, Column] = {
            **{name: Column("category", required=False) for name in config.categories},
            **{name: Column("number", required=False) for name in config.numbers},
            config.label: Column("number"),
        }
        if config.group is not None:  # may be a category, too
            self.columns[config.group] = Column("category")
        fields = {
            "categories": Field(dtype="int64", shape=(len(config.categories),)),
            "numbers": Field(dtype="float32", shape=(len(config.numbers),)),
            "label": Field(dtype="uint8"),
        }
        self.fields = {name: field for name, field in fields.items() if field.shape != (0,)}
        if config.group is not None:
            self.fields["group"] = Field(dtype="int64")
        self.info: dict[str, Any] = {
            "categories": list(config.categories),
            "numbers": list(config.numbers),
            "label": config.label,
            "label_above": config.label_above,
            "group": config.group,
        }

    def files(self) -> Mapping[str, bytes]:
        """None: what the model needs to know is learned from the training split's statistics."""
        return {}

    def packer(self) -> "RowPacker":
        return RowPacker(self.config, self.fields)


class RowPacker:
    """Every row is a sample of its own; nothing waits for ``flush``."""

    def __init__(self, config: TabularConfig, fields: Mapping[str, Field]) -> None:
        self._config, self._fields = config, fields
        self._statistics = Statistics.none(config.categories, config.numbers)

    def add(self, records: pa.RecordBatch) -> Samples:
        """One sample a row.

        Raises:
            DataError: a number is too large for a float32.
        """
        categories = np.empty((len(records), len(self._config.categories)), np.int64)
        for index, name in enumerate(self._config.categories):
            categories[:, index] = self._counted(name, Encoded(records.column(name)))
        numbers = np.empty((len(records), len(self._config.numbers)), np.float32)
        for index, name in enumerate(self._config.numbers):
            numbers[:, index] = _float32(name, records.column(name))
        self._statistics.moments = self._statistics.moments.merged(Moments.of(numbers))
        positive = _floats(records.column(self._config.label)) > self._config.label_above
        found = {"categories": categories, "numbers": numbers, "label": positive.astype(np.uint8)}
        if self._config.group is not None:
            found["group"] = Encoded(records.column(self._config.group)).hashes()
        return {name: found[name] for name in self._fields}

    def flush(self) -> Samples:
        """Nothing."""
        return {name: np.empty((0, *f.shape), f.dtype) for name, f in self._fields.items()}

    def statistics(self) -> dict[str, Any]:
        """Count, mean and M2 of each number; each category's values, their hashes and counts."""
        return self._statistics.as_json()

    def _counted(self, name: str, column: "Encoded") -> np.ndarray:
        counts = np.bincount(column.index, minlength=len(column.values) + 1)
        table = self._statistics.categories[name]
        table.add(column.values, column.codes.tolist(), counts[:-1].tolist())
        if counts[-1]:
            table.add([None], [MISSING], [int(counts[-1])])
        return column.hashes()


class Encoded:
    """A column of strings by its distinct values, so that each of them is hashed once."""

    def __init__(self, column: pa.Array) -> None:
        encoded = column.dictionary_encode()
        self.values: list[str] = encoded.dictionary.to_pylist()
        self.codes = value_hashes(self.values)
        """Of each value, int64."""
        self.index = encoded.indices.fill_null(len(self.values)).to_numpy()
        """Of each row into values; one more for a missing one."""

    def hashes(self) -> np.ndarray:
        """Of each row, int64."""
        return np.append(self.codes, MISSING)[self.index]


def value_hashes(values: list[str]) -> np.ndarray:
    """What stands for each value in the samples: SipHash-2-4 under pandas' fixed key, as int64."""
    return hash_array(np.array(values, dtype=object), categorize=False).view(np.int64)


def _floats(column: pa.Array) -> np.ndarray:
    return column.to_numpy(zero_copy_only=False)


def _float32(name: str, column: pa.Array) -> np.ndarray:
    wide = _floats(column)
    with np.errstate(over="ignore"):  # is an error of ours, below
        narrow = wide.astype(np.float32)
    if np.isinf(narrow).any():
        value = wide[np.isinf(narrow)][0]
        raise DataError(f"column {name}: {value:g} is too large for a float32; scale the column")
    return narrow
