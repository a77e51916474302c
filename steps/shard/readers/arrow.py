"""Arrow's types as the kinds of columns: which can be read as which, and what they become."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steps.shard.readers.batch import TYPES, encoded, plain
from steps.shard.readers.raw import MAX_RECORD_BYTES
from steps.shard.readers.scalars import BEGIN, MICROSECOND, BadRecord, decoded
from steps.shard.readers.values import list_reasons, typed, without_infinities

if TYPE_CHECKING:
    from training.workloads import Column

FIRST = (datetime.min.replace(tzinfo=UTC) - BEGIN) // MICROSECOND
LAST = (datetime.max.replace(tzinfo=UTC) - BEGIN) // MICROSECOND
"""The moments that a timestamp may be, in microseconds since 1970: the years 1 to 9999."""


def readable(kind: pa.DataType, declared: str) -> bool:
    if pa.types.is_dictionary(kind):
        return readable(kind.value_type, declared)
    if pa.types.is_null(kind):
        return True
    types = pa.types
    if declared == "number":
        return types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    if declared == "list":
        return _is_list(kind) and readable(kind.value_type, "number")
    if declared == "timestamp":
        return types.is_timestamp(kind) or types.is_date(kind) or kind in TEXTS[:3]
    if declared == "bytes":
        return _is_content(kind) or kind in TEXTS[3:] or types.is_fixed_size_binary(kind)
    if declared == "category" and (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        return True
    return is_text(kind)


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def _is_content(kind: pa.DataType) -> bool:
    """Whether it is an Image or Audio of Hugging Face's datasets: ``bytes`` and ``path``."""
    if not pa.types.is_struct(kind) or kind.get_field_index("bytes") < 0:
        return False
    return kind.field("bytes").type in TEXTS[3:]


def is_text(kind: pa.DataType) -> bool:
    return kind in TEXTS


TEXTS = (
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
)


def converted(name: str, array: pa.Array, column: "Column") -> tuple[pa.Array, dict[int, str]]:
    """As declared, and what is bad in it: row → reason. Integers beyond 2**53 are rounded."""
    kind = column.kind
    if kind == "category" and pa.types.is_dictionary(array.type):
        values = _as(pa.string(), array.dictionary)
        if _stays(values, len(array)):
            indices = _as(pa.int32(), array.indices)
            return pa.DictionaryArray.from_arrays(indices, values), {}
    array = plain(array)
    if kind == "number":
        return without_infinities(_as(pa.float64(), array)), {}
    if kind == "list":
        lists = _as(TYPES[kind], array)
        return lists, list_reasons(name, lists, column.length)
    if kind == "timestamp" and not is_text(array.type):
        return _moments(name, array)
    if kind == "bytes":
        inside = pc.struct_field(array, "bytes") if pa.types.is_struct(array.type) else array
        content = _as(TYPES[kind], inside)
        return content, _too_long(name, content)
    texts = _as(pa.string(), array)
    reasons = _bad_texts(name, texts)
    if kind != "timestamp":
        return encoded(texts, kind), reasons
    if reasons:
        mask = np.isin(np.arange(len(texts)), list(reasons))
        texts = pc.if_else(pa.array(mask), None, texts)
    found, more = typed(name, column, texts)
    return found, reasons | more


def _moments(name: str, array: pa.Array) -> tuple[pa.Int64Array, dict[int, str]]:
    """Microseconds since 1970 in UTC, and which rows are beyond the years 1 to 9999.

    What is finer is cut off, towards the past.
    """
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
    many, few = int(np.timedelta64(1, unit) // np.timedelta64(1, "ns")), 1000
    beyond = (ticks < FIRST * few // many) | (ticks > LAST * few // many)
    ticks = np.where(beyond, 0, ticks)
    found = ticks * (many // few) if many >= few else ticks // (few // many)
    reasons = {
        int(row): f"column {name!r} is {array[int(row)].as_py()} {unit} from 1970, expected a time "
        "in the years 1 to 9999"
        for row in np.flatnonzero(beyond)
    }
    return pa.array(found, pa.int64(), mask=missing | beyond), reasons


def _stays(values: pa.StringArray, rows: int) -> bool:
    """Whether a dictionary is that of these rows, more or less: a row group's may be much larger,
    or hold a bad value of a row elsewhere."""
    return len(values) <= rows and not values.null_count and not _bad_texts("", values)


def _as(kind: pa.DataType, array: pa.Array) -> pa.Array:
    return array if array.type == kind else array.cast(kind, safe=False)


def _bad_texts(name: str, array: pa.StringArray | pa.DictionaryArray) -> dict[int, str]:
    """Row → why it is bad. Text that is all ASCII needs no closer look, nor does short text."""
    if pa.types.is_dictionary(array.type):
        values = _bad_texts(name, array.dictionary)
        rows = enumerate(array.indices.to_pylist() if values else ())
        return {row: values[index] for row, index in rows if index in values}
    bounds = np.frombuffer(array.buffers()[1], np.int32)[array.offset :][: len(array) + 1]
    content = np.frombuffer(array.buffers()[2] or b"", np.uint8)[bounds[0] : bounds[-1]]
    reasons = _too_long(name, array)
    if len(content) and content.max() >= 0x80 and not _valid(array):
        for row, value in enumerate(array.cast(pa.binary())):
            try:
                decoded(value.as_py() or b"", f"column {name!r} is")
            except BadRecord as error:
                reasons[row] = str(error)
    return reasons


def _too_long(name: str, array: pa.StringArray | pa.BinaryArray) -> dict[int, str]:
    if array.nbytes <= MAX_RECORD_BYTES:
        return {}
    lengths = pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False)
    reason = f"column {name!r} is longer than {MAX_RECORD_BYTES} bytes"
    return {int(row): reason for row in np.flatnonzero(lengths > MAX_RECORD_BYTES)}


def _valid(array: pa.StringArray) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
