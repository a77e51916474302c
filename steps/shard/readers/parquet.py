"""Parquet: rows of the declared columns, read page by page."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from steps.shard.readers.arrow import converted, is_text, readable
from steps.shard.readers.batch import Bad, Batch, encoded, plain, row_excerpt, schema
from steps.shard.readers.names import check_names
from steps.shard.readers.raw import CHUNK_BYTES
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
    found = {n for n, column in columns.items() if column.kind in ("text", "category")}
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
    return [c for c in chunks if {c.path_in_schema, c.path_in_schema.split(".")[0]} & {*columns}]


def _check(path: Path, found: pa.Schema, columns: Mapping[str, "Column"]) -> None:
    check_names(path, found.names, columns)
    for name, column in columns.items():
        kind = found.field(name).type
        if not readable(kind, column.kind):
            raise DataError(
                f"{path}: column {name!r} has the type {kind}, which cannot be read as "
                f"{column.kind}; convert it, or declare it otherwise"
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
        if pa.types.is_dictionary(array.type) and is_text(array.type.value_type)
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
    arrays, reasons = [], {}
    for name, column in reversed(columns.items()):  # the first declared column that is bad decides
        array, bad = converted(name, found[name], column)
        arrays.insert(0, array)
        reasons |= _missing(name, array, column) | bad
    records = pa.RecordBatch.from_arrays(arrays, schema=schema(columns))
    lines = np.arange(number, number + len(records))
    if not reasons:
        return Batch(records, lines, [])
    bad_ones = [
        Bad(number + row, reasons[row], row_excerpt(records, row)) for row in sorted(reasons)
    ]
    good = np.setdiff1d(np.arange(len(records)), list(reasons))
    # Anew: a dictionary must not keep what is no UTF-8.
    kept = [
        encoded(plain(array), column.kind)
        for array, column in zip(
            records.take(pa.array(good)).columns, columns.values(), strict=True
        )
    ]
    return Batch(pa.RecordBatch.from_arrays(kept, schema=records.schema), lines[good], bad_ones)


def _missing(name: str, array: pa.Array, column: "Column") -> dict[int, str]:
    """Rows that lack a required value."""
    if not column.required or not array.null_count:
        return {}
    nulls = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))
    return {int(row): f"column {name!r} is required and has no value" for row in nulls}
