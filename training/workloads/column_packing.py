"""The packing derived from the columns alone: a record is a sample, a column one of its fields.

``number``     as a number of the column's ``dtype``; a missing one as NaN (integers have none)
``list``       as an array of such numbers, of the column's ``length``, or of any length
``timestamp``  as microseconds since 1970, int64
``category``   as 64 bits that identify the value (``hash_values``)
``text``       as its UTF-8 bytes, uint8, of any number
``bytes``      as they are, uint8, of any number

A missing value is 0 or empty, unless stated otherwise.

A workload that packs differently derives from ``Packing``, defines ``fields``, and overrides
``pack``.
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

from training.data.manifest import Field, Samples, create_empty_samples
from training.workloads import Column
from trainyard.common.errors import DataError, TrainingError

TOO_LARGE = 2.0**128 - 2.0**103
"""Smallest number that rounds to an infinite float32 (IEEE 754, ties to even)."""


class Packing:
    """The default packing, see ``training.workloads.Packing``.

    It is also its own packer, because records are independent of each other.
    """

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
        self.codes = ColumnHasher()

    def files(self) -> Mapping[str, bytes]:
        """Return no files."""
        return {}

    def packer(self) -> Self:
        return self

    def add(self, records: pa.RecordBatch) -> Samples:
        return self.pack(records)

    def flush(self) -> Samples:
        """Return no samples, because none are held back."""
        return create_empty_samples(self.fields)

    def statistics(self) -> dict[str, Any]:
        """Return no statistics."""
        return {}

    def pack(self, records: pa.RecordBatch) -> Samples:
        """Pack each record as one sample.

        Raises:
            DataError: the column's ``dtype`` cannot represent a number, or a missing one.
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
    """Function that takes (packing, the column's name, its values) and returns the field of that
    name.
    """


def _limit_column(name: str, column: Column) -> Column:
    """Return the column, with a limit that rejects records with numbers that would become infinite.

    Raises:
        TrainingError: numbers may be missing, and the type has no value for that.
    """
    if column.kind not in ("number", "list"):
        return column
    dtype = np.dtype(column.dtype)
    if column.kind == "number" and dtype.kind != "f" and not column.required:
        raise TrainingError(
            f"column {name}: Column('number', required=False, dtype='{dtype}') has no value for a "
            "missing number; leave out required=False, so that records without one are rejected, "
            "or give it dtype='float32', where a missing one is NaN"
        )
    return replace(column, limit=min(column.limit, TOO_LARGE)) if dtype == np.float32 else column


def _pack_number(packing: Packing, name: str, values: pa.Array) -> Samples:
    return {name: _convert_numbers(packing, name, values)}


def _pack_list(packing: Packing, name: str, values: pa.Array) -> Samples:
    """Pack lists as rows of fixed length, or as values with offsets."""
    numbers = _convert_numbers(packing, name, values.flatten())
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    shape = packing.fields[name].shape
    if shape is None:
        return {name: numbers, f"{name}_offsets": np.cumsum([0, *lengths], dtype=np.int64)}
    array = np.zeros((len(values), *shape), numbers.dtype)
    # A missing list remains zeros.
    array[lengths > 0] = numbers.reshape(-1, *shape)
    return {name: array}


def _convert_numbers(packing: Packing, name: str, numbers: pa.Array) -> np.ndarray:
    """Return the numbers in the column's type. Readers give whole numbers in that type already.

    Raises:
        DataError: the type cannot represent one of them.
    """
    dtype = np.dtype(packing.columns[name].dtype)
    if dtype.kind == "f":
        return numbers.to_numpy(zero_copy_only=False).astype(dtype)
    integers, _ = convert_whole_numbers(numbers, str(dtype))
    if integers.null_count:
        value = numbers[integers.is_null().to_pylist().index(True)].as_py()
        kind = packing.columns[name].kind
        raise DataError(
            f"column {name}: {value} is not a valid {dtype} (None, nan: a missing value); correct "
            f"the data, or give the column another dtype: {name}: Column('{kind}', dtype='float32')"
        )
    return integers.to_numpy()


def _pack_timestamp(packing: Packing, name: str, values: pa.Array) -> Samples:
    return {name: values.fill_null(0).to_numpy()}


def _pack_category(packing: Packing, name: str, values: pa.Array) -> Samples:
    return {name: packing.codes.encode_column(name, values).hashes}


def _pack_text(packing: Packing, name: str, values: pa.Array) -> Samples:
    return _pack_pieces(name, [(text or "").encode() for text in values.to_pylist()])


def _pack_bytes(packing: Packing, name: str, values: pa.Array) -> Samples:
    return _pack_pieces(name, [content or b"" for content in values.to_pylist()])


def _pack_pieces(name: str, pieces: list[bytes]) -> Samples:
    """Return byte strings as a variable-width field: their bytes one after the other, and
    offsets.
    """
    ends = np.cumsum([0, *map(len, pieces)], dtype=np.int64)
    return {name: np.frombuffer(bytearray().join(pieces), np.uint8), f"{name}_offsets": ends}


KINDS: dict[str, Kind] = {
    "number": Kind(lambda column: Field(dtype=column.dtype), _pack_number),
    "list": Kind(
        lambda column: Field(
            dtype=column.dtype, shape=None if column.length is None else (column.length,)
        ),
        _pack_list,
    ),
    "timestamp": Kind(lambda column: Field(dtype="int64"), _pack_timestamp),
    "category": Kind(lambda column: Field(dtype="int64"), _pack_category),
    "text": Kind(lambda column: Field(dtype="uint8", shape=None), _pack_text),
    "bytes": Kind(lambda column: Field(dtype="uint8", shape=None), _pack_bytes),
}


# The Arrow type of a column's values, and the conversion of whole numbers to it.
#
# A float64 represents only every second whole number beyond 2**53. So a column whose dtype is an
# integer is never converted to float64: not in a parser, and not because a value is missing. Its
# values are exact, or are rejected before anything rounds them.

CATEGORY = pa.dictionary(pa.int32(), pa.string())
BITS = np.finfo(np.float64).nmant + 1


def choose_number_type(dtype: str) -> pa.DataType:
    """Return the Arrow type of a column's numbers in record batches: that of an integer ``dtype``
    itself, otherwise float64.
    """
    kind = pa.from_numpy_dtype(np.dtype(dtype))
    return kind if pa.types.is_integer(kind) else pa.float64()


TYPES: dict[str, Callable[[Column], pa.DataType]] = {
    "text": lambda column: pa.string(),
    "category": lambda column: CATEGORY,
    "number": lambda column: choose_number_type(column.dtype),
    "bytes": lambda column: pa.binary(),
    "list": lambda column: pa.list_(choose_number_type(column.dtype)),
    "timestamp": lambda column: pa.int64(),
}


def choose_record_type(column: Column) -> pa.DataType:
    """Return the Arrow type of a column's values in record batches."""
    return TYPES[column.kind](column)


def convert_whole_number(value: str | float | Decimal, dtype: str, bits: int = BITS) -> int:
    """Return the value as an integer that ``dtype`` can hold; a text must be a decimal number.

    A float, or a text written like one, is accepted only below 2**bits: from there on its writer
    may have rounded another number to it, as pandas does in a column with missing values.

    Raises:
        ValueError: the value is not such an integer; the message says what is expected.
    """
    info = np.iinfo(dtype)
    expectation = f"a whole number from {info.min} to {info.max} ({dtype})"
    try:
        exact = Decimal(value)
        is_within = info.min <= exact <= info.max and exact == exact.to_integral_value()
    except ArithmeticError:  # NaN, or an exponent beyond 10**18
        is_within = False
    if not is_within:
        raise ValueError(expectation)
    as_float = isinstance(value, float) or (
        isinstance(value, str) and not value.lstrip("+-").isdecimal()
    )
    if as_float and abs(exact) >= 2**bits:
        raise ValueError(f"{expectation}, written as a float only below 2**{bits}")
    return int(exact)


def convert_whole_numbers(values: pa.Array, dtype: str) -> tuple[pa.Array, dict[int, str]]:
    """Return numbers of any Arrow type as ``dtype``, and a mapping of index to what is expected
    there.

    The mapping has the indices of bad numbers, which become null. A float that is not finite counts
    as missing.
    """
    kind, bits, precise = choose_number_type(dtype), BITS, True
    if pa.types.is_floating(values.type):
        bits = np.finfo(values.type.to_pandas_dtype()).nmant + 1
        values = pc.if_else(pc.is_finite(values), values, None)
        # Below 2**bits a float represents every whole number, so Arrow's own cast loses none.
        precise = (pc.max(pc.abs(values.cast(pa.float64()))).as_py() or 0) < 2**bits
    if precise:
        try:
            return values.cast(kind), {}
        except pa.ArrowInvalid:  # one of the values does not fit
            pass
    integers: list[int | None] = []
    reasons: dict[int, str] = {}
    for index, value in enumerate(values.to_pylist()):
        try:
            integers.append(None if value is None else convert_whole_number(value, dtype, bits))
        except ValueError as error:
            integers.append(None)
            reasons[index] = str(error)
    return pa.array(integers, kind), reasons


# Values of categories as 64-bit hashes, the same on every machine and in every run.

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


class ColumnHasher:
    """Hashes of string columns; the values of a dictionary that occurs again are not hashed again.

    It does occur again: three splits share a batch's dictionary, and so do the batches of a Parquet
    row group.
    """

    def __init__(self, encode: Callable[[list[str]], np.ndarray] | None = None) -> None:
        self._encode = encode or hash_values
        self._last: dict[str, tuple[pa.Array, pa.Array, np.ndarray]] = {}
        """Mapping of column to its last dictionary, that dictionary with a null appended, and
        their hashes.
        """

    def encode_column(self, name: str, column: pa.Array) -> EncodedColumn:
        """Encode the values of column ``name``: strings, or a dictionary of strings."""
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        dictionary, indices = column.dictionary, column.indices
        if name not in self._last or not dictionary.equals(self._last[name][0]):
            values = pa.concat_arrays([dictionary, pa.nulls(1, dictionary.type)])
            codes = np.append(self._encode(dictionary.to_pylist()), MISSING)
            self._last[name] = dictionary, values, codes
        _, values, codes = self._last[name]
        if indices.null_count:
            # A missing value has the last index, after those of the dictionary.
            indices = indices.fill_null(len(dictionary))
        return EncodedColumn(values, codes, indices.to_numpy())


def hash_values(values: list[str]) -> np.ndarray:
    """Return the values' hashes as samples store them: SipHash-2-4 with pandas' key, as int64."""
    # Imported here: importing pandas takes half a second per rank.
    from pandas.util import hash_array

    return hash_array(np.array(values, dtype=object), categorize=False).view(np.int64)
