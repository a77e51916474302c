"""Output of a reader: records, their lines in the file, and the errors of bad records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from training.workloads.column_packing import choose_record_type

if TYPE_CHECKING:
    from training.workloads import Column

EXCERPT_CHARACTERS = 200


@dataclass(frozen=True)
class Bad:
    """A record that cannot be used."""

    line: int
    """Line or record number, counted as in ``Batch.lines``."""

    reason: str

    excerpt: str
    """Beginning of the record, at most 200 characters. Bytes that are not UTF-8 are ``\\xff``."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Some records of one file."""

    records: pa.RecordBatch
    """Good records, with the declared columns in the declared order."""

    lines: np.ndarray
    """int64 of shape (records,): the line or record number of each good record."""

    bad_records: list[Bad]
    """Bad records, in the file's order."""

    @property
    def record_count(self) -> int:
        """Return the number of records, good and bad."""
        return len(self.lines) + len(self.bad_records)


def build_schema(columns: Mapping[str, "Column"]) -> pa.Schema:
    """Return the schema of records with these columns."""
    return pa.schema([(name, choose_record_type(column)) for name, column in columns.items()])


def build_parsed_schema(
    columns: Mapping[str, "Column"], integers: pa.DataType | None = None
) -> pa.Schema:
    """Return the schema for parsers: numbers have their type, and all other columns are strings.

    With ``integers``, columns of integers are parsed as this type. Categories are parsed as strings
    and encoded later, because that is faster than the dictionaries of pyarrow's CSV parser.
    """
    fields = zip(build_schema(columns), columns.values(), strict=True)
    kinds = [field.type if column.kind == "number" else pa.string() for field, column in fields]
    kinds = [integers if integers and pa.types.is_integer(kind) else kind for kind in kinds]
    return pa.schema(zip(columns, kinds, strict=True))


def combine_chunks(column: pa.ChunkedArray) -> pa.Array:
    """Return the column of a table as one array, without a copy if it has one chunk."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def encode_category(column: pa.Array, kind: str) -> pa.Array:
    """Dictionary-encode a column of kind ``category``; return a column of another kind as it is."""
    return column.dictionary_encode() if kind == "category" else column


def make_excerpt(raw: bytes | bytearray) -> str:
    """Return the beginning of a record as text, even if its bytes are not UTF-8."""
    # Four bytes per character suffice, because UTF-8 has at most four.
    start = raw[: 4 * EXCERPT_CHARACTERS].decode("utf-8", errors="backslashreplace")
    return start.rstrip("\r\n")[:EXCERPT_CHARACTERS]


def make_row_excerpt(records: pa.RecordBatch, row: int) -> str:
    """Return an excerpt of a record made of its values, for formats that do not keep its bytes."""
    parts = []
    for name, array in zip(records.schema.names, records.columns, strict=True):
        raw = decode_dictionary(array[row : row + 1])
        if raw.type == pa.binary():
            value = raw[0].as_py()
            value = value and value[:EXCERPT_CHARACTERS]
        elif raw.type == pa.string():
            value = raw.cast(pa.binary())[0].as_py()
            value = value and value[: 4 * EXCERPT_CHARACTERS].decode("utf-8", "backslashreplace")
        else:
            value = raw[0].as_py()
        parts.append(f"{name}: {value!r}")
    return ", ".join(parts)[:EXCERPT_CHARACTERS]


def reject_records(batch: Batch, reasons: Mapping[int, str]) -> Batch:
    """Return the batch with the rows in ``reasons``, {row: reason}, moved to its bad records."""
    if not reasons:
        return batch
    lines, records = batch.lines, batch.records
    bad_records = [
        Bad(int(lines[row]), reason, make_row_excerpt(records, row))
        for row, reason in reasons.items()
    ]
    good_rows = np.setdiff1d(np.arange(len(lines)), list(reasons))
    bad_records = sorted([*batch.bad_records, *bad_records], key=lambda record: record.line)
    return Batch(records.take(pa.array(good_rows)), lines[good_rows], bad_records)


def decode_dictionary(array: pa.Array) -> pa.Array:
    """Return a dictionary-encoded array decoded, and any other array as it is."""
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def make_bad_batch(bad_records: Sequence[Bad], columns: Mapping[str, "Column"]) -> Batch:
    """Return a batch that contains only bad records."""
    none = pa.RecordBatch.from_pylist([], schema=build_schema(columns))
    return Batch(none, np.empty(0, np.int64), list(bad_records))


def merge_batches(batches: Sequence[Batch]) -> Batch:
    """Return the batches as one, in this order. There must be at least one."""
    if len(batches) == 1:
        return batches[0]
    return Batch(
        pa.concat_batches([batch.records for batch in batches]),
        np.concatenate([batch.lines for batch in batches]),
        [bad_record for batch in batches for bad_record in batch.bad_records],
    )
