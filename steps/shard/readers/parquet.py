"""Read Parquet: rows of the declared columns, page by page."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from steps.shard.readers.batch import (
    Batch,
    build_schema,
    decode_dictionary,
    encode_category,
    reject_records,
)
from steps.shard.readers.column_values import (
    BEGIN,
    MICROSECOND,
    BadRecord,
    convert_column,
    decode_text,
    find_bad_lists,
    format_value,
    replace_infinities,
)
from steps.shard.readers.raw_bytes import CHUNK_BYTES, MAX_RECORD_BYTES
from steps.shard.readers.rows import check_names
from training.workloads.column_packing import choose_number_type, convert_whole_numbers
from trainyard.common.errors import DataError

if TYPE_CHECKING:
    from training.workloads import Column

SUFFIXES = (".parquet",)
COMPRESSIBLE = False  # whether .gz or .zst may follow

MAX_ROWS = 1 << 16
"""Maximum rows in a batch. A batch of narrow rows has many of them, and the code after the reader
needs memory for each."""

INDEX_BYTES = 8
"""Maximum bytes per row in a column chunk that consists only of a dictionary and its indices."""

MAX_DICTIONARY_BYTES = 4 << 20
"""Bytes up to which a column chunk is read as a dictionary even if it is mostly not one."""

BUFFER_BYTES = 1 << 20
"""Bytes of a column chunk to read ahead, instead of the whole chunk."""


def read(path: Path, columns: Mapping[str, "Column"]) -> Iterator[Batch]:
    """Yield the rows. Only the pages that a batch needs are in memory, even of a large row group.

    Raises:
        DataError: the file is not Parquet, is truncated or damaged; a declared column is missing,
            occurs twice, or has a type that cannot be converted to the declared one.
    """
    number = 1
    try:
        metadata = pa.parquet.read_metadata(path)
        _check_types(path, metadata.schema.to_arrow_schema(), columns)
        with pa.parquet.ParquetFile(
            path,
            metadata=metadata,
            # With pre_buffer=True, whole column chunks of a row group would be in memory.
            buffer_size=BUFFER_BYTES,
            pre_buffer=False,
            page_checksum_verification=True,
            read_dictionary=_select_dictionary_columns(metadata, columns),
        ) as file:
            rows = _choose_batch_rows(metadata, columns)
            for record_batch in file.iter_batches(rows, columns=list(columns), use_threads=False):
                for part in _split_batch(record_batch):
                    yield _convert_batch(part, columns, number)
                    number += len(part)
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{path}: cannot be read as Parquet to its end ({error}); it was truncated or damaged: "
            "create it again, or copy it again"
        ) from error


def _select_dictionary_columns(
    metadata: pa.parquet.FileMetaData, columns: Mapping[str, "Column"]
) -> list[str]:
    """Return the text columns to read as dictionaries: those that are mostly stored as such.

    That is faster, and it shows how much memory the values will take once they are repeated for
    each row.
    """
    names = {n for n, column in columns.items() if column.kind in ("text", "category")}
    for g in range(metadata.num_row_groups):
        for chunk in _list_column_chunks(metadata, g, columns):
            limit = max(MAX_DICTIONARY_BYTES, INDEX_BYTES * chunk.num_values)
            small = chunk.has_dictionary_page and chunk.total_uncompressed_size <= limit
            if not small or chunk.physical_type != "BYTE_ARRAY":
                names.discard(chunk.path_in_schema)
    return sorted(names)


def _list_column_chunks(
    metadata: pa.parquet.FileMetaData, group: int, columns: Mapping[str, "Column"]
) -> list[pa.parquet.ColumnChunkMetaData]:
    """Return the column chunks of the declared columns in one row group."""
    group_metadata = metadata.row_group(group)
    chunks = [group_metadata.column(i) for i in range(group_metadata.num_columns)]
    return [c for c in chunks if {c.path_in_schema, c.path_in_schema.split(".")[0]} & {*columns}]


def _check_types(path: Path, file_schema: pa.Schema, columns: Mapping[str, "Column"]) -> None:
    """Check that each declared column is in the file, once, and of a type that can be read."""
    check_names(path, file_schema.names, columns)
    for name, column in columns.items():
        kind = file_schema.field(name).type
        if not can_read(kind, column.kind):
            raise DataError(
                f"{path}: column {name!r} has the type {kind}, which cannot be read as "
                f"{column.kind}; convert it, or declare it otherwise"
            )


def _choose_batch_rows(metadata: pa.parquet.FileMetaData, columns: Mapping[str, "Column"]) -> int:
    """Return a batch's number of rows: about ``CHUNK_BYTES`` in the group with the largest rows."""
    row_bytes = float(INDEX_BYTES * len(columns))
    for g in range(metadata.num_row_groups):
        size = sum(
            chunk.total_uncompressed_size for chunk in _list_column_chunks(metadata, g, columns)
        )
        row_bytes = max(row_bytes, size / max(1, metadata.row_group(g).num_rows))
    return max(1, min(MAX_ROWS, int(CHUNK_BYTES / row_bytes)))


def _split_batch(record_batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows in parts of about ``CHUNK_BYTES``, or of one row.

    The sizes are those of the values after a dictionary's values are repeated for each row.
    """
    dictionaries = [
        (pc.binary_length(array.dictionary), array.indices)
        for array in record_batch.columns
        if pa.types.is_dictionary(array.type) and is_text(array.type.value_type)
    ]
    longest = sum(pc.max(lengths).as_py() or 0 for lengths, _ in dictionaries)
    if longest * len(record_batch) < CHUNK_BYTES:
        yield record_batch  # the usual case
        return
    sizes = np.zeros(len(record_batch), np.int64)
    for lengths, indices in dictionaries:
        sizes += pc.fill_null(lengths.take(indices), 0).to_numpy(zero_copy_only=False)
    parts = np.cumsum(sizes) // CHUNK_BYTES
    bounds = [0, *(np.flatnonzero(np.diff(parts)) + 1), len(record_batch)]
    for start, stop in zip(bounds[:-1], bounds[1:], strict=True):
        yield record_batch.slice(start, stop - start)


def _convert_batch(
    record_batch: pa.RecordBatch, columns: Mapping[str, "Column"], number: int
) -> Batch:
    """Convert the rows to a batch; ``number`` is that of the first row."""
    arrays: list[pa.Array] = []
    reasons: dict[int, str] = {}
    # In reverse, so that the first of several bad columns in a row is named.
    for name, column in reversed(list(columns.items())):
        array, bad_values = convert_array(name, record_batch[name], column)
        arrays.insert(0, array)
        if column.required and array.null_count:
            nulls = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))
            reasons |= {int(row): f"column {name!r} is required and has no value" for row in nulls}
        reasons |= bad_values
    records = pa.RecordBatch.from_arrays(arrays, schema=build_schema(columns))
    batch = Batch(records, np.arange(number, number + len(records)), [])
    if not reasons:
        return batch
    good_batch = reject_records(batch, reasons)
    # Encode again, because a dictionary must not keep values that are not UTF-8.
    arrays = [
        encode_category(decode_dictionary(array), column.kind)
        for array, column in zip(good_batch.records.columns, columns.values(), strict=True)
    ]
    good_records = pa.RecordBatch.from_arrays(arrays, schema=records.schema)
    return Batch(good_records, good_batch.lines, good_batch.bad_records)


FIRST = (datetime.min.replace(tzinfo=UTC) - BEGIN) // MICROSECOND
LAST = (datetime.max.replace(tzinfo=UTC) - BEGIN) // MICROSECOND
"""Last allowed time of a timestamp, in microseconds since 1970. The years 1 to 9999 are allowed."""


def can_read(kind: pa.DataType, column_kind: str) -> bool:
    """Return whether a Parquet column of type ``kind`` can be read as a column of this kind."""
    if pa.types.is_dictionary(kind):
        return can_read(kind.value_type, column_kind)
    if pa.types.is_null(kind):
        return True
    types = pa.types
    if column_kind == "number":
        return types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    if column_kind == "list":
        is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
        return is_list and can_read(kind.value_type, "number")
    if column_kind == "timestamp":
        return types.is_timestamp(kind) or types.is_date(kind) or kind in TEXTS[:3]
    if column_kind == "bytes":
        return _is_content(kind) or kind in TEXTS[3:] or types.is_fixed_size_binary(kind)
    if column_kind == "category" and (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        return True
    return is_text(kind)


def _is_content(kind: pa.DataType) -> bool:
    """Return whether the type is an Image or Audio of Hugging Face's datasets.

    Such a type is a struct of ``bytes`` and ``path``.
    """
    if not pa.types.is_struct(kind) or kind.get_field_index("bytes") < 0:
        return False
    return kind.field("bytes").type in TEXTS[3:]


def is_text(kind: pa.DataType) -> bool:
    """Return whether the type is one of strings or of bytes."""
    return kind in TEXTS


TEXTS = (
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
)


def convert_array(name: str, array: pa.Array, column: "Column") -> tuple[pa.Array, dict[int, str]]:
    """Return the array converted to the declared kind, and {row: reason} of bad values."""
    kind = column.kind
    if kind == "category" and pa.types.is_dictionary(array.type):
        values = _cast_unchecked(pa.string(), array.dictionary)
        # Not if the row group's dictionary is much larger than the batch, or contains a bad value,
        # which may be one of another row.
        is_small = len(values) <= len(array)
        if is_small and not values.null_count and not _find_bad_texts("", values):
            indices = _cast_unchecked(pa.int32(), array.indices)
            return pa.DictionaryArray.from_arrays(indices, values), {}
    array = decode_dictionary(array)
    if kind == "number":
        numbers, expectations = _convert_numbers(array, column)
        return numbers, {
            row: f"column {name!r} is {format_value(array[row].as_py())}, expected {form}"
            for row, form in expectations.items()
        }
    if kind == "list":
        return _convert_lists(name, array, column)
    if kind == "timestamp" and not is_text(array.type):
        return _convert_timestamps(name, array)
    if kind == "bytes":
        inside = pc.struct_field(array, "bytes") if pa.types.is_struct(array.type) else array
        content = _cast_unchecked(pa.binary(), inside)
        return content, _find_too_long_values(name, content)
    texts = _cast_unchecked(pa.string(), array)
    reasons = _find_bad_texts(name, texts)
    if kind != "timestamp":
        return encode_category(texts, kind), reasons
    # A bad text is replaced by null for the parser, so that each row gets only one reason.
    if reasons:
        mask = np.isin(np.arange(len(texts)), list(reasons))
        texts = pc.if_else(pa.array(mask), None, texts)
    result, more = convert_column(name, column, texts)
    return result, reasons | more


def _convert_numbers(array: pa.Array, column: "Column") -> tuple[pa.Array, dict[int, str]]:
    """Return the numbers in the column's type, and {row: what was expected} of bad ones."""
    if pa.types.is_integer(choose_number_type(column.dtype)):
        return convert_whole_numbers(array, column.dtype)
    return replace_infinities(_cast_unchecked(pa.float64(), array)), {}


def _convert_lists(name: str, array: pa.Array, column: "Column") -> tuple[pa.Array, dict[int, str]]:
    """Return lists of numbers in the column's type, and {row: reason} of bad ones."""
    elements = array.flatten()
    values, expectations = _convert_numbers(elements, column)
    widths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    ends = np.cumsum([0, *widths], dtype=np.int32)
    lists = pa.ListArray.from_arrays(ends, values, mask=array.is_null())
    reasons = find_bad_lists(name, lists, column.length)
    for index, form in reversed(expectations.items()):
        row = int(np.searchsorted(ends, index, side="right")) - 1
        value, list_index = format_value(elements[index].as_py()), index - int(ends[row])
        reasons[row] = f"column {name!r} contains at index {list_index} {value}, expected {form}"
    return lists, reasons


def _convert_timestamps(name: str, array: pa.Array) -> tuple[pa.Int64Array, dict[int, str]]:
    """Return microseconds since 1970 in UTC, and {row: reason} of those not in years 1 to 9999.

    Fractions of a microsecond are cut off, towards the past.
    """
    unit: Literal["D", "s", "ms", "us", "ns"]
    if pa.types.is_date32(array.type):
        array, unit = array.cast(pa.int32()).cast(pa.int64()), "D"
    elif pa.types.is_date64(array.type):
        array, unit = array.cast(pa.int64()), "ms"
    elif pa.types.is_null(array.type):
        return array.cast(pa.int64()), {}
    else:
        array, unit = array.cast(pa.int64()), array.type.unit
    missing = array.is_null().to_numpy(zero_copy_only=False)
    ticks = array.fill_null(0).to_numpy()
    # Nanoseconds of a tick and of a microsecond. The bounds are compared in ticks, because in
    # microseconds the ticks of a wrong value could exceed int64.
    tick, microsecond = int(np.timedelta64(1, unit) // np.timedelta64(1, "ns")), 1000
    first_tick, last_tick = FIRST * microsecond // tick, LAST * microsecond // tick
    is_out_of_range = (ticks < first_tick) | (ticks > last_tick)
    ticks = np.where(is_out_of_range, 0, ticks)
    if tick >= microsecond:
        microseconds = ticks * (tick // microsecond)
    else:
        microseconds = ticks // (microsecond // tick)
    reasons = {
        int(row): f"column {name!r} is {array[int(row)].as_py()} {unit} from 1970, expected a time "
        "in the years 1 to 9999"
        for row in np.flatnonzero(is_out_of_range)
    }
    return pa.array(microseconds, pa.int64(), mask=missing | is_out_of_range), reasons


def _cast_unchecked(kind: pa.DataType, array: pa.Array) -> pa.Array:
    """Cast the array without checking for overflow or invalid UTF-8."""
    return array if array.type == kind else array.cast(kind, safe=False)


def _find_bad_texts(name: str, array: pa.StringArray | pa.DictionaryArray) -> dict[int, str]:
    """Return {row: reason} of texts that are too long or not UTF-8."""
    if pa.types.is_dictionary(array.type):
        values = _find_bad_texts(name, array.dictionary)
        rows = enumerate(array.indices.to_pylist() if values else ())
        return {row: values[index] for row, index in rows if index in values}
    bounds = np.frombuffer(array.buffers()[1], np.int32)[array.offset :][: len(array) + 1]
    content = np.frombuffer(array.buffers()[2] or b"", np.uint8)[bounds[0] : bounds[-1]]
    reasons = _find_too_long_values(name, array)
    # Text that is all ASCII needs no further check.
    if len(content) and content.max() >= 0x80 and not _is_utf8(array):
        for row, value in enumerate(array.cast(pa.binary())):
            try:
                decode_text(value.as_py() or b"", f"column {name!r} is")
            except BadRecord as error:
                reasons[row] = str(error)
    return reasons


def _find_too_long_values(name: str, array: pa.StringArray | pa.BinaryArray) -> dict[int, str]:
    """Return {row: reason} of values of more than ``MAX_RECORD_BYTES``."""
    if array.nbytes <= MAX_RECORD_BYTES:
        return {}
    lengths = pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False)
    reason = f"column {name!r} is longer than {MAX_RECORD_BYTES} bytes"
    return {int(row): reason for row in np.flatnonzero(lengths > MAX_RECORD_BYTES)}


def _is_utf8(array: pa.StringArray) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
