"""The packing derived from the columns alone: a record is a sample, a column one of its fields.

``number``     as a number of the column's ``dtype``; a missing one as NaN (integers have none)
``list``       as an array of such numbers, of the column's ``length`` or of any
``timestamp``  as microseconds since 1970, int64
``category``   as 64 bits that identify the value (``training.workloads.category_codes``)
``text``       as its UTF-8 bytes, uint8, of any number
``bytes``      as they are, uint8, of any number

A missing value is 0 or empty, unless stated otherwise.

A workload that packs differently derives from ``Packing``, defines ``fields``, and
overrides ``pack``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel

from training.data.manifest import Field, Samples, no_samples
from training.workloads import Column
from training.workloads.category_codes import Codes
from training.workloads.column_types import whole_numbers
from trainyard.common.errors import DataError, TrainingError

TOO_LARGE = 2.0**128 - 2.0**103
"""Smallest number that rounds to an infinite float32 (IEEE 754, ties to even)."""


class Packing:
    """See ``training.workloads.Packing``; it is its own packer, since records are independent."""

    columns: Mapping[str, Column] = {}
    fields: Mapping[str, Field] = {}
    identity: tuple[str, ...] = ()

    def __init__(self, config: BaseModel, assets: Path | None) -> None:
        self.config, self.assets = config, assets
        self.columns = {name: _limit_column(name, column) for name, column in self.columns.items()}
        self.fields = dict(self.fields) or {
            name: KINDS[column.kind].field(column) for name, column in self.columns.items()
        }
        self.info: dict[str, Any] = {"columns": {n: c.kind for n, c in self.columns.items()}}
        self.codes = Codes()

    def files(self) -> Mapping[str, bytes]:
        """Return no files."""
        return {}

    def packer(self) -> Self:
        return self

    def add(self, records: pa.RecordBatch) -> Samples:
        return self.pack(records)

    def flush(self) -> Samples:
        """Return no samples: none are held back."""
        return no_samples(self.fields)

    def statistics(self) -> dict[str, Any]:
        """Return no statistics."""
        return {}

    def pack(self, records: pa.RecordBatch) -> Samples:
        """Pack each record as one sample.

        Raises:
            DataError: the column's ``dtype`` has no value for a number, or a missing one.
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
    """Function of (packing, the column's name, its values) that returns the field of that name."""


def _limit_column(name: str, column: Column) -> Column:
    """Return the column with a check that refuses records with numbers that would become infinite.

    Raises:
        TrainingError: numbers may be missing, and the type has no value for that.
    """
    if column.kind not in ("number", "list"):
        return column
    dtype = np.dtype(column.dtype)
    if column.kind == "number" and dtype.kind != "f" and not column.required:
        raise TrainingError(
            f"column {name}: Column('number', required=False, dtype='{dtype}') has no value for a "
            "missing number; leave out required=False, and records without one are bad, or give it "
            "dtype='float32', where a missing one is NaN"
        )
    return replace(column, limit=min(column.limit, TOO_LARGE)) if dtype == np.float32 else column


def _number(packing: Packing, name: str, values: pa.Array) -> Samples:
    return {name: _convert_numbers(packing, name, values)}


def _list(packing: Packing, name: str, values: pa.Array) -> Samples:
    numbers = _convert_numbers(packing, name, values.flatten())
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    shape = packing.fields[name].shape
    if shape is None:
        return {name: numbers, f"{name}_offsets": np.cumsum([0, *lengths], dtype=np.int64)}
    array = np.zeros((len(values), *shape), numbers.dtype)
    array[lengths > 0] = numbers.reshape(-1, *shape)
    return {name: array}


def _convert_numbers(packing: Packing, name: str, numbers: pa.Array) -> np.ndarray:
    """Return the numbers in the column's type; readers give whole ones in it already.

    Raises:
        DataError: the type has no value for one of them.
    """
    dtype = np.dtype(packing.columns[name].dtype)
    if dtype.kind == "f":
        return numbers.to_numpy(zero_copy_only=False).astype(dtype)
    integers, _ = whole_numbers(numbers, str(dtype))
    if integers.null_count:
        value = numbers[integers.is_null().to_pylist().index(True)].as_py()
        kind = packing.columns[name].kind
        raise DataError(
            f"column {name}: {value} is not a valid {dtype} (None, nan: a missing value); mend the "
            f"data, or give the column another dtype, as {name}: Column('{kind}', dtype='float32')"
        )
    return integers.to_numpy()


def _timestamp(packing: Packing, name: str, values: pa.Array) -> Samples:
    return {name: values.fill_null(0).to_numpy()}


def _category(packing: Packing, name: str, values: pa.Array) -> Samples:
    return {name: packing.codes.encode_column(name, values).hashes}


def _text(packing: Packing, name: str, values: pa.Array) -> Samples:
    return _pieces(name, [(text or "").encode() for text in values.to_pylist()])


def _bytes(packing: Packing, name: str, values: pa.Array) -> Samples:
    return _pieces(name, [content or b"" for content in values.to_pylist()])


def _pieces(name: str, pieces: list[bytes]) -> Samples:
    ends = np.cumsum([0, *map(len, pieces)], dtype=np.int64)
    return {name: np.frombuffer(bytearray().join(pieces), np.uint8), f"{name}_offsets": ends}


KINDS: dict[str, Kind] = {
    "number": Kind(lambda column: Field(dtype=column.dtype), _number),
    "list": Kind(
        lambda column: Field(
            dtype=column.dtype, shape=None if column.length is None else (column.length,)
        ),
        _list,
    ),
    "timestamp": Kind(lambda column: Field(dtype="int64"), _timestamp),
    "category": Kind(lambda column: Field(dtype="int64"), _category),
    "text": Kind(lambda column: Field(dtype="uint8", shape=None), _text),
    "bytes": Kind(lambda column: Field(dtype="uint8", shape=None), _bytes),
}
