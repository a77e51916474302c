"""The packing that follows from the columns alone: a record is a sample, a column a field of it.

``number``    as a number of the column's ``dtype``
``category``  as 64 bits that name the value (``training.workloads.codes``); a missing one as 0
``text``      as its UTF-8 bytes, uint8, of any number; a missing one as none

A workload that packs otherwise derives from ``Packing``, says what the ``fields`` are, and
overrides ``pack``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
from pydantic import BaseModel

from training.data.manifest import Field, Samples
from training.workloads import Column
from training.workloads.codes import Codes
from trainyard.common.errors import DataError

TOO_LARGE = 2.0**128 - 2.0**103
"""The smallest number that is rounded to an infinite float32 (IEEE 754, ties to even)."""


class Packing:
    """See ``training.workloads.Packing``; it is its own packer, since records are packed alone."""

    columns: Mapping[str, Column] = {}
    fields: Mapping[str, Field] = {}
    identity: tuple[str, ...] = ()

    def __init__(self, config: BaseModel, assets: Path | None) -> None:
        self.config, self.assets = config, assets
        self.columns = {name: _limited(column) for name, column in self.columns.items()}
        self.fields = dict(self.fields) or {
            name: KINDS[column.kind].field(column) for name, column in self.columns.items()
        }
        self.info: dict[str, Any] = {"columns": {n: c.kind for n, c in self.columns.items()}}
        self.codes = Codes()

    def files(self) -> Mapping[str, bytes]:
        """None."""
        return {}

    def packer(self) -> Self:
        return self

    def add(self, records: pa.RecordBatch) -> Samples:
        return self.pack(records)

    def flush(self) -> Samples:
        """Nothing waits."""
        return none(self.fields)

    def statistics(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def pack(self, records: pa.RecordBatch) -> Samples:
        """One sample a record.

        Raises:
            DataError: a number is none that the column's ``dtype`` holds.
        """
        samples: Samples = {}
        for name, column in self.columns.items():
            samples |= KINDS[column.kind].pack(self, name, records.column(name))
        return samples


@dataclass(frozen=True)
class Kind:
    """How a kind of column is stored."""

    field: Callable[[Column], Field]
    pack: Callable[[Packing, str, pa.Array], Samples]
    """(packing, the column's name, its values) → the field of that name."""


def none(fields: Mapping[str, Field]) -> Samples:
    """No sample of these fields."""
    samples = {name: np.empty((0, *(f.shape or ())), f.dtype) for name, f in fields.items()}
    offsets = {f"{n}_offsets": np.zeros(1, np.int64) for n, f in fields.items() if f.shape is None}
    return samples | offsets


def _limited(column: Column) -> Column:
    """A column whose numbers are bad records where they are too large to be stored."""
    if column.kind != "number":
        return column
    dtype = np.dtype(column.dtype)
    most = float(np.iinfo(dtype).max) + 1 if dtype.kind in "iu" else TOO_LARGE
    return replace(column, limit=min(column.limit, np.inf if dtype == np.float64 else most))


def _number(packing: Packing, name: str, values: pa.Array) -> Samples:
    dtype = np.dtype(packing.fields[name].dtype)
    numbers = values.to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore"):  # told below
        stored = numbers.astype(dtype)
    if dtype.kind in "iu" and (wrong := np.flatnonzero(stored != numbers)).size:
        raise DataError(
            f"column {name}: {numbers[wrong[0]]:g} is no {dtype} (nan: a missing value); mend the "
            f"data, or give the column another dtype, as {name}: Column('number', dtype='float32')"
        )
    return {name: stored}


def _category(packing: Packing, name: str, values: pa.Array) -> Samples:
    return {name: packing.codes.of(name, values).hashes}


def _text(packing: Packing, name: str, values: pa.Array) -> Samples:
    texts = [text.encode() for text in values.fill_null("").to_pylist()]
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    return {name: np.frombuffer(bytearray().join(texts), np.uint8), f"{name}_offsets": ends}


KINDS: dict[str, Kind] = {
    "number": Kind(lambda column: Field(dtype=column.dtype), _number),
    "category": Kind(lambda column: Field(dtype="int64"), _category),
    "text": Kind(lambda column: Field(dtype="uint8", shape=None), _text),
}
"""A kind of column that is not here needs a packing of its own."""
