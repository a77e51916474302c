"""Packing of rows: category values as hashes, numbers as float32, the label as 0 or 1."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from training.data.dataset import Dataset
from training.data.manifest import Field, Samples, create_empty_samples
from training.data.shard_writer import hash_samples
from training.workloads import Column
from training.workloads.column_packing import TOO_LARGE, ColumnHasher
from training.workloads.tabular.column_statistics import Moments, Statistics, Values
from training.workloads.tabular.config import TabularConfig
from trainyard.common.errors import DataError

if TYPE_CHECKING:
    from training.scores import Block

READ = 4096  # samples per read if no model processes them


class Packing:
    """See ``training.workloads.Packing``; a sample is a row.

    The set of values is not known before all rows have been read, so a sample contains the hash of
    a value, and not its number in a vocabulary. Two equal rows may be two events, so there are no
    duplicates unless the recipe names the columns that decide (``shard.unique``).
    """

    identity: tuple[str, ...] = ()

    def __init__(self, config: TabularConfig, assets: Path | None) -> None:
        self.config, self.assets = config, assets
        columns = {
            **{name: Column("category", required=False) for name in config.categories},
            **{name: Column("number", required=False, limit=TOO_LARGE) for name in config.numbers},
            config.label: Column("number"),
        }
        if config.group is not None:  # it may also be one of the categories
            columns[config.group] = Column("category")
        self.columns: Mapping[str, Column] = columns
        fields = {
            "categories": Field(dtype="int64", shape=(len(config.categories),)),
            "numbers": Field(dtype="float32", shape=(len(config.numbers),)),
            "label": Field(dtype="uint8"),
        }
        if config.group is not None:
            fields["group"] = Field(dtype="int64")
        self.fields: Mapping[str, Field] = {n: f for n, f in fields.items() if f.shape != (0,)}
        self._codes = ColumnHasher()
        self._groups = ColumnHasher(encode_group_ids) if config.group_ordered else self._codes
        self.info: dict[str, Any] = {
            "categories": list(config.categories),
            "numbers": list(config.numbers),
            "label": config.label,
            "label_above": config.label_above,
            "group": config.group,
        }
        if config.group_ordered:
            self.info["groups_ordered"] = True

    def files(self) -> Mapping[str, bytes]:
        """Return no files: the model learns what it needs from the training split's statistics."""
        return {}

    @property
    def example_fields(self) -> Mapping[str, Field]:
        """Return the fields of ``examples``, with a group if the settings name one."""
        names = ("example", "group") if self.config.group is not None else ("example",)
        return {name: Field(dtype="int64") for name in names}

    def examples(self, dataset: Dataset) -> "Iterator[Block]":
        """Yield a hash of each row over all its fields, and its group if there is one."""
        for passage in dataset.stream(READ):
            block = passage.samples | {"example": hash_samples(passage.samples, dataset.fields)}
            yield {name: block[name] for name in self.example_fields}

    def packer(self) -> "RowPacker":
        return RowPacker(self.config, self.fields, self._codes, self._groups)


class RowPacker:
    """Makes one sample of each row. There is never anything left for ``flush``."""

    def __init__(
        self,
        config: TabularConfig,
        fields: Mapping[str, Field],
        codes: "ColumnHasher",
        groups: "ColumnHasher",
    ) -> None:
        self._config, self._fields = config, fields
        self._codes, self._groups = codes, groups
        self._moments = Moments.create_empty(len(config.numbers))
        self._values = {name: Values() for name in config.categories}

    def add(self, records: pa.RecordBatch) -> Samples:
        """Return one sample per row, and add the rows to ``statistics``.

        Raises:
            DataError: a number is too large for a float32.
        """
        categories = np.empty((len(self._config.categories), len(records)), np.int64)
        for row, name in zip(categories, self._config.categories, strict=True):
            encoding = self._codes.encode_column(name, records.column(name))
            counts = np.bincount(encoding.index, minlength=len(encoding.codes))
            used = np.flatnonzero(counts)
            values, codes = encoding.values.take(used).to_pylist(), encoding.codes[used].tolist()
            self._values[name].add(values, codes, counts[used].tolist())
            np.take(encoding.codes, encoding.index, out=row, mode="clip")  # "raise" would copy
        positive = _to_floats(records.column(self._config.label)) > self._config.label_above
        samples = {
            "categories": np.ascontiguousarray(categories.T),
            "numbers": self._pack_numbers(records),
            "label": positive.view(np.uint8),
        }
        if self._config.group is not None:
            samples["group"] = self._groups.encode_column(
                self._config.group, records.column(self._config.group)
            ).hashes
        return {name: samples[name] for name in self._fields}

    def flush(self) -> Samples:
        """Return no samples."""
        return create_empty_samples(self._fields)

    def statistics(self) -> dict[str, Any]:
        """Return each number's count, mean and M2; each category's values, hashes and counts."""
        return Statistics(self._config.numbers, self._moments, self._values).as_json()

    def _pack_numbers(self, records: pa.RecordBatch) -> np.ndarray:
        """Return the numbers, float32 (rows, columns), and add them to the moments.

        Raises:
            DataError: a number is too large for a float32.
        """
        block = np.empty((len(self._config.numbers), len(records)), np.float32)
        with np.errstate(over="ignore", invalid="ignore"):  # reported below as a DataError
            for row, name in zip(block, self._config.numbers, strict=True):
                row[:] = _to_floats(records.column(name))
            moments = Moments.from_values(block.T)
        for index in np.flatnonzero(~np.isfinite(moments.mean)):
            name, is_infinite = self._config.numbers[index], np.isinf(block[index])
            if is_infinite.any():
                value = _to_floats(records.column(name))[is_infinite][0]
                raise DataError(
                    f"column {name}: {value:g} is too large for a float32; scale the column"
                )
        self._moments = self._moments.merge(moments)
        return np.ascontiguousarray(block.T)


def encode_group_ids(values: list[str]) -> np.ndarray:
    """Return the values as int64 that sort like them: whole numbers, or times in microseconds.

    Raises:
        DataError: a value is neither, or some are numbers and some are times.
    """
    try:
        return np.array([int(value) for value in values], np.int64)
    except (ValueError, OverflowError):
        pass
    try:
        return np.array(values, "datetime64[us]").astype(np.int64)
    except ValueError:
        excerpt = ", ".join(repr(value) for value in values[:3])
        raise DataError(
            f"group: {excerpt}, … are not all whole numbers, nor all dates or times (2013-01-31, "
            "2013-01-31T12:00); correct them, or set workload.config.group_ordered to false"
        ) from None


def _to_floats(column: pa.Array) -> np.ndarray:
    return column.to_numpy(zero_copy_only=False)
