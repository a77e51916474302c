"""The packing derived from the columns alone: a record is a sample, a column one of its fields.

``number``     as a number of the column's ``dtype``; a missing one as NaN (integers have none)
``list``       as an array of such numbers, of the column's ``length`` or of any
``timestamp``  as microseconds since 1970, int64
``category``   as 64 bits that identify the value (``training.workloads.column_packing``)
``text``       as its UTF-8 bytes, uint8, of any number
``bytes``      as they are, uint8, of any number

A missing value is 0 or empty, unless stated otherwise.

A workload that packs differently derives from ``Packing``, defines ``fields``, and
overrides ``pack``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel

from training.data.manifest import Field, Samples, no_samples
from training.workloads import Column
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
    # A missing list stays zeros.
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


# The Arrow type in which a column's values are given, and the way of whole numbers into it.
#
# A float64 holds only every second whole number beyond 2**53. So a column whose dtype is an
# integer never goes through one: not in a parser, not for the sake of a gap. Its values are exact,
# or refused before anything rounds them.

CATEGORY = pa.dictionary(pa.int32(), pa.string())
BITS = np.finfo(np.float64).nmant + 1


def number_type(dtype: str) -> pa.DataType:
    """Return the type of a column's numbers in record batches: an integer dtype itself, else
    float64.
    """
    kind = pa.from_numpy_dtype(np.dtype(dtype))
    return kind if pa.types.is_integer(kind) else pa.float64()


TYPES: dict[str, Callable[[Column], pa.DataType]] = {
    "text": lambda column: pa.string(),
    "category": lambda column: CATEGORY,
    "number": lambda column: number_type(column.dtype),
    "bytes": lambda column: pa.binary(),
    "list": lambda column: pa.list_(number_type(column.dtype)),
    "timestamp": lambda column: pa.int64(),
}


def record_type(column: Column) -> pa.DataType:
    """Return the type of a column's values in record batches."""
    return TYPES[column.kind](column)


def whole_number(value: str | float | Decimal, dtype: str, bits: int = BITS) -> int:
    """Return the value as an integer that ``dtype`` holds; a text must be a decimal number.

    A float, or a text written like one, is taken below 2**bits alone: from there on its writer may
    have rounded another number to it, as pandas does with a gap in the column.

    Raises:
        ValueError: the value is none; the message is what is expected instead.
    """
    info = np.iinfo(dtype)
    expectation = f"a whole number from {info.min} to {info.max} ({dtype})"
    try:
        exact = Decimal(value)
        is_within = info.min <= exact <= info.max and exact == exact.to_integral_value()
    except ArithmeticError:  # NaN; an exponent beyond 10**18
        is_within = False
    if not is_within:
        raise ValueError(expectation)
    as_float = isinstance(value, float) or (
        isinstance(value, str) and not value.lstrip("+-").isdecimal()
    )
    if as_float and abs(exact) >= 2**bits:
        raise ValueError(f"{expectation}, written as a float only below 2**{bits}")
    return int(exact)


def whole_numbers(values: pa.Array, dtype: str) -> tuple[pa.Array, dict[int, str]]:
    """Return numbers of any Arrow type as ``dtype``; also place → what is expected, of those that
    are bad, which are null. A float that is not finite is missing.
    """
    kind, bits, precise = number_type(dtype), BITS, True
    if pa.types.is_floating(values.type):
        bits = np.finfo(values.type.to_pandas_dtype()).nmant + 1
        values = pc.if_else(pc.is_finite(values), values, None)
        # Below 2**bits a float holds every whole number, so Arrow's own cast loses none.
        precise = (pc.max(pc.abs(values.cast(pa.float64()))).as_py() or 0) < 2**bits
    if precise:
        try:
            return values.cast(kind), {}
        except pa.ArrowInvalid:  # one of them does not fit
            pass
    integers: list[int | None] = []
    reasons: dict[int, str] = {}
    for place, value in enumerate(values.to_pylist()):
        try:
            integers.append(None if value is None else whole_number(value, dtype, bits))
        except ValueError as error:
            integers.append(None)
            reasons[place] = str(error)
    return pa.array(integers, kind), reasons


# Values of categories as 64-bit hashes, the same on every machine, in every run.

MISSING = 0  # the hash of a missing value


@dataclass(frozen=True)
class EncodedColumn:
    """A column of strings as indices into its distinct values."""

    values: pa.Array
    """The distinct values, then null."""
    codes: np.ndarray
    """Hash of each value, int64."""
    index: np.ndarray
    """Index into ``values`` for each row, int32."""

    @property
    def hashes(self) -> np.ndarray:
        """Hash of each row's value, int64."""
        return self.codes[self.index]


class Codes:
    """Hashes the values of a dictionary only once if it recurs with other rows.

    It does recur: three splits share a batch's dictionary, as do the batches of a Parquet row
    group.
    """

    def __init__(self, encode: Callable[[list[str]], np.ndarray] | None = None) -> None:
        self._encode = encode or value_hashes
        self._last: dict[str, tuple[pa.Array, pa.Array, np.ndarray]] = {}
        """Column → its last dictionary, that with a null appended, and their codes."""

    def encode_column(self, name: str, column: pa.Array) -> EncodedColumn:
        """Encode the column of this name: strings, or a dictionary of strings."""
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        dictionary, indices = column.dictionary, column.indices
        if name not in self._last or not dictionary.equals(self._last[name][0]):
            values = pa.concat_arrays([dictionary, pa.nulls(1, dictionary.type)])
            codes = np.append(self._encode(dictionary.to_pylist()), MISSING)
            self._last[name] = dictionary, values, codes
        _, values, codes = self._last[name]
        if indices.null_count:
            # A missing value has the last place, behind the dictionary's own.
            indices = indices.fill_null(len(dictionary))
        return EncodedColumn(values, codes, indices.to_numpy())


def value_hashes(values: list[str]) -> np.ndarray:
    """Return the values' hashes as samples store them: SipHash-2-4 with pandas' key, as int64."""
    from pandas.util import hash_array  # importing pandas takes half a second per rank

    return hash_array(np.array(values, dtype=object), categorize=False).view(np.int64)
