"""Parquet: rows of the declared columns, read page by page."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from steps.shard.readers.batch import Bad, Batch, encoded, plain, row_excerpt, schema
from steps.shard.readers.names import check_names
from steps.shard.readers.raw import CHUNK_BYTES, MAX_RECORD_BYTES
from steps.shard.readers.values import BadRecord, decoded, without_infinities
from trainyard.common.errors import DataError

if TYPE_CHECKING:
    from training.workloads import Column

SUFFIXES = (".parquet",)
COMPRESSED = False  # whether .gz or .zst may follow

MAX_ROWS = 1 << 16
"""In a batch: narrow rows are many, and what comes after the reader needs memory for each."""

INDEX_BYTES = 8
"""At most, of a row in a column chunk that is only a dictionary and indices into it."""

MAX_DICTIONARY_BYTES = 4 << 20
"""A column chunk of this size is read as a dictionary even if it mostly is none."""

BUFFER_BYTES = 1 << 20
"""How much of a column chunk is read ahead, instead of the whole of it."""


def read(path: Path, columns: Mapping[str, "Column"]) -> Iterator[Batch]:
    """The rows; of a row group, however large, only the pages that a batch needs are in memory.

    Raises:
        DataError: is no Parquet file, or cut off or damaged; a declared column is missing, stands
            twice, or has a type that cannot be given as it is declared.
    """
    number = 1
    try:
        metadata = pa.parquet.read_metadata(path)
        _check(path, metadata.schema.to_arrow_schema(), columns)
        with pa.parquet.ParquetFile(
            path,
            metadata=metadata,
            buffer_size=BUFFER_BYTES,
            pre_buffer=False,
            page_checksum_verification=True,
            read_dictionary=_repeating(metadata, columns),
        ) as file:
            rows = _batch_rows(metadata, columns)
            for found in file.iter_batches(rows, columns=list(columns), use_threads=False):
                for part in _parts(found):
                    yield _batch(part, columns, number)
                    number += len(part)
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{path}: cannot be read as Parquet to its end ({error}); it was cut off or damaged: "
            "make it again, or copy it again"
        ) from error


def _repeating(metadata: pa.parquet.FileMetaData, columns: Mapping[str, "Column"]) -> list[str]:
    """Texts that are kept in a dictionary, and little else: they are read as such.

    That is faster, and tells how much memory the values take before they are repeated.
    """
    found = {name for name, column in columns.items() if column.kind != "number"}
    for g in range(metadata.num_row_groups):
        for chunk in _chunks(metadata, g, columns):
            limit = max(MAX_DICTIONARY_BYTES, INDEX_BYTES * chunk.num_values)
            small = chunk.has_dictionary_page and chunk.total_uncompressed_size <= limit
            if not small or chunk.physical_type != "BYTE_ARRAY":
                found.discard(chunk.path_in_schema)
    return sorted(found)


def _chunks(
    metadata: pa.parquet.FileMetaData, group: int, columns: Mapping[str, "Column"]
) -> list[pa.parquet.ColumnChunkMetaData]:
    """Find the chunks of the declared columns in one row group."""
    found = metadata.row_group(group)
    chunks = [found.column(i) for i in range(found.num_columns)]
    return [chunk for chunk in chunks if chunk.path_in_schema in columns]


def _check(path: Path, found: pa.Schema, columns: Mapping[str, "Column"]) -> None:
    check_names(path, found.names, columns)
    for name, column in columns.items():
        kind = found.field(name).type
        if not _readable(kind, column.kind):
            raise DataError(
                f"{path}: column {name!r} has the type {kind}, which cannot be read as "
                f"{column.kind}; convert it, or declare it otherwise"
            )


def _readable(kind: pa.DataType, declared: str) -> bool:
    if pa.types.is_dictionary(kind):
        return _readable(kind.value_type, declared)
    if pa.types.is_null(kind):
        return True
    if declared == "number":
        types = pa.types
        return types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    if declared == "category" and (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        return True
    return _is_text(kind)


def _is_text(kind: pa.DataType) -> bool:
    return kind in TEXTS


TEXTS = (
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
)


def _batch_rows(metadata: pa.parquet.FileMetaData, columns: Mapping[str, "Column"]) -> int:
    """Rows that are about ``CHUNK_BYTES``, by the row group whose rows are largest."""
    row_bytes = float(INDEX_BYTES * len(columns))
    for g in range(metadata.num_row_groups):
        size = sum(chunk.total_uncompressed_size for chunk in _chunks(metadata, g, columns))
        row_bytes = max(row_bytes, size / max(1, metadata.row_group(g).num_rows))
    return max(1, min(MAX_ROWS, int(CHUNK_BYTES / row_bytes)))


def _parts(found: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The same rows, in parts that are about a chunk, or one row, once values are repeated."""
    repeated = [
        (pc.binary_length(array.dictionary), array.indices)
        for array in found.columns
        if pa.types.is_dictionary(array.type) and _is_text(array.type.value_type)
    ]
    if sum(pc.max(lengths).as_py() or 0 for lengths, _ in repeated) * len(found) < CHUNK_BYTES:
        yield found  # most often
        return
    sizes = np.zeros(len(found), np.int64)
    for lengths, indices in repeated:
        sizes += pc.fill_null(lengths.take(indices), 0).to_numpy(zero_copy_only=False)
    parts = np.cumsum(sizes) // CHUNK_BYTES
    bounds = [0, *(np.flatnonzero(np.diff(parts)) + 1), len(found)]
    for start, stop in zip(bounds[:-1], bounds[1:], strict=True):
        yield found.slice(start, stop - start)


def _batch(found: pa.RecordBatch, columns: Mapping[str, "Column"], number: int) -> Batch:
    records = pa.RecordBatch.from_arrays(
        [_converted(found[name], column.kind) for name, column in columns.items()],
        schema=schema(columns),
    )
    lines = np.arange(number, number + len(records))
    reasons = _reasons(records, columns)
    if not reasons:
        return Batch(records, lines, [])
    bad = [Bad(number + row, reasons[row], row_excerpt(records, row)) for row in sorted(reasons)]
    good = np.setdiff1d(np.arange(len(records)), list(reasons))
    # Anew: a dictionary must not keep what is no UTF-8.
    kept = [
        encoded(plain(array), column.kind)
        for array, column in zip(
            records.take(pa.array(good)).columns, columns.values(), strict=True
        )
    ]
    return Batch(pa.RecordBatch.from_arrays(kept, schema=records.schema), lines[good], bad)


def _converted(array: pa.Array, kind: str) -> pa.Array:
    """As declared; text is not checked yet. Integers beyond 2**53 are rounded."""
    if kind == "category" and pa.types.is_dictionary(array.type):
        values = _as(pa.string(), array.dictionary)
        if _stays(values, len(array)):
            return pa.DictionaryArray.from_arrays(_as(pa.int32(), array.indices), values)
    array = plain(array)
    if kind == "number":
        return without_infinities(_as(pa.float64(), array))
    return encoded(_as(pa.string(), array), kind)


def _stays(values: pa.StringArray, rows: int) -> bool:
    """Whether a dictionary is that of these rows, more or less: a row group's may be much larger,
    or hold a bad value of a row elsewhere."""
    return len(values) <= rows and not values.null_count and not _bad_texts("", values)


def _as(kind: pa.DataType, array: pa.Array) -> pa.Array:
    return array if array.type == kind else array.cast(kind, safe=False)


def _reasons(records: pa.RecordBatch, columns: Mapping[str, "Column"]) -> dict[int, str]:
    """Row → why it is bad; the first declared column that is bad decides."""
    reasons: dict[int, str] = {}
    for name, column in reversed(columns.items()):
        array = records[name]
        if column.kind != "number":
            reasons |= _bad_texts(name, array)
        if column.required and array.null_count:
            nulls = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))
            reasons |= {int(row): f"column {name!r} is required and has no value" for row in nulls}
    return reasons


def _bad_texts(name: str, array: pa.StringArray | pa.DictionaryArray) -> dict[int, str]:
    """Row → why it is bad. Text that is all ASCII needs no closer look, nor does short text."""
    if pa.types.is_dictionary(array.type):
        values = _bad_texts(name, array.dictionary)
        rows = enumerate(array.indices.to_pylist() if values else ())
        return {row: values[index] for row, index in rows if index in values}
    bounds = np.frombuffer(array.buffers()[1], np.int32)[array.offset :][: len(array) + 1]
    content = np.frombuffer(array.buffers()[2] or b"", np.uint8)[bounds[0] : bounds[-1]]
    reasons = {}
    if len(content) > MAX_RECORD_BYTES:
        for row in np.flatnonzero(np.diff(bounds) > MAX_RECORD_BYTES):
            reasons[int(row)] = f"column {name!r} is longer than {MAX_RECORD_BYTES} bytes"
    if len(content) and content.max() >= 0x80 and not _valid(array):
        for row, value in enumerate(array.cast(pa.binary())):
            try:
                decoded(value.as_py() or b"", f"column {name!r} is")
            except BadRecord as error:
                reasons[row] = str(error)
    return reasons


def _valid(array: pa.StringArray) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
