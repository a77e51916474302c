"""What a value may be: one by one, with a reason when it may not, and for whole columns."""

import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from steps.shard.readers import scalars
from steps.shard.readers.batch import TYPES, schema
from steps.shard.readers.scalars import BadRecord, Integer, decoded, shown

if TYPE_CHECKING:
    from training.workloads import Column

NULL_TOKENS = frozenset(pa.csv.ConvertOptions().null_values)
"""What pyarrow takes for a missing number in CSV: an empty field, ``NA``, ``null``, ``NaN``, …"""

DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
NOT_FINITE = re.compile(r"[+-]?(?:inf(?:inity)?|nan(?:\([a-z0-9_]*\))?)", re.ASCII | re.IGNORECASE)


def json_row(found: Mapping[str, Any], columns: Mapping[str, "Column"]) -> list[Any]:
    """The declared columns of a JSON object, as the types that the record batch has.

    Raises:
        BadRecord: a value has the wrong type, or a required one is missing.
    """
    return [
        present(name, column, _json_value(name, column, found.get(name)))
        for name, column in columns.items()
    ]


def csv_row(fields: Sequence[bytes], columns: Mapping[str, "Column"]) -> list[Any]:
    """The declared columns of a CSV record, given their fields in that order.

    An empty field is missing, quoted or not: there is no way to tell an empty text from a missing
    one that all programs agree on. A number may also be missing by ``NULL_TOKENS``.

    Raises:
        BadRecord: a field is not UTF-8 or not a number, or a required one is missing.
    """
    return [
        present(name, column, field_value(name, column, field))
        for (name, column), field in zip(columns.items(), fields, strict=True)
    ]


def present(name: str, column: "Column", value: Any) -> Any:
    """The value. Raises: BadRecord: it is missing, and required."""
    if value is None and column.required:
        raise BadRecord(f"column {name!r} is required and has no value")
    return value


def field_value(name: str, column: "Column", field: bytes) -> Any:
    """The value that a field of text stands for; None for an empty one.

    Raises:
        BadRecord: it stands for none.
    """
    text = decoded(field, f"column {name!r} is")
    if column.kind != "number":
        return from_text(name, column, text) if text else None
    token = text.strip(" \t")
    if token in NULL_TOKENS or NOT_FINITE.fullmatch(token):
        return None
    if not DECIMAL.fullmatch(token):
        raise BadRecord(f"column {name!r} is {shown(text)}, expected a number")
    return _finite(float(token))


def from_text(name: str, column: "Column", text: str) -> Any:
    """The value that a text stands for; of text and category it is the text.

    Raises:
        BadRecord: it stands for none.
    """
    match column.kind:
        case "bytes":
            return scalars.content(name, text)
        case "timestamp":
            return scalars.moment(name, text)
        case "list":
            return scalars.array(name, column.length, text)
    return text


def typed(name: str, column: "Column", texts: pa.StringArray) -> tuple[pa.Array, dict[int, str]]:
    """Texts as the column's type, and why not: row → reason; such a row is null."""
    if texts.type != pa.string() or column.kind in ("text", "category"):
        return texts, {}
    values, reasons = texts.to_pylist(), {}
    for row, text in enumerate(values):
        try:
            values[row] = None if text is None else from_text(name, column, text)
        except BadRecord as error:
            values[row], reasons[row] = None, str(error)
    return pa.array(values, TYPES[column.kind]), reasons


def _json_value(name: str, column: "Column", value: Any) -> Any:
    if column.kind in _JSON or value is None:
        return _JSON.get(column.kind, _json_text)(name, value)
    if column.kind != "list":
        return from_text(name, column, _json_text(name, value) or "")
    if type(value) is not list:  # an object is a list of pairs here
        raise BadRecord(f"column {name!r} is {shown(value)}, expected an array of numbers")
    return scalars.numbers(name, column.length, value)


def _json_text(name: str, value: Any) -> str | None:
    if value is None:
        return None
    if type(value) is not str:
        raise BadRecord(f"column {name!r} is {shown(value)}, expected a string")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        reason = f"column {name!r} holds half of a surrogate pair, which is no character"
        raise BadRecord(reason) from None
    return value


def _json_category(name: str, value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Integer):
        return "0" if value == "-0" else str(value)
    if value is None or type(value) is str:
        return _json_text(name, value)
    raise BadRecord(
        f"column {name!r} is {shown(value)}, expected a string, an integer, true or false"
    )


def _json_number(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if not isinstance(value, float | Integer):
        raise BadRecord(f"column {name!r} is {shown(value)}, expected a number")
    return _finite(float(value))


_JSON = {"text": _json_text, "category": _json_category, "number": _json_number}


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


def row_batch(rows: Sequence[Sequence[Any]], columns: Mapping[str, "Column"]) -> pa.RecordBatch:
    """Rows of ``json_row`` or ``csv_row`` as a record batch."""
    kinds = schema(columns)
    arrays = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds.types)]
    return pa.RecordBatch.from_arrays(arrays, schema=kinds)


def without_infinities(numbers: pa.DoubleArray) -> pa.DoubleArray:
    """The same numbers, null where they are NaN or infinite."""
    if isfinite(pc.sum(numbers, min_count=0).as_py()):  # cheap; then all of them are
        return numbers
    return pc.if_else(pc.is_finite(numbers), numbers, None)


def without_empty(texts: pa.StringArray) -> pa.StringArray:
    """The same texts, which have no nulls, null where they are empty."""
    bounds = np.frombuffer(texts.buffers()[1], np.int32)
    bounds = bounds[texts.offset : texts.offset + len(texts) + 1]
    full = bounds[1:] > bounds[:-1]
    if full.all():
        return texts
    present = pa.py_buffer(np.packbits(full, bitorder="little"))
    content = pa.py_buffer(np.ascontiguousarray(bounds)), texts.buffers()[2]
    return pa.StringArray.from_buffers(len(texts), *content, present)


def list_reasons(name: str, lists: pa.ListArray, length: int | None) -> dict[int, str]:
    """Row → why a list of float64 makes its record bad."""
    found = lists.flatten().to_numpy(zero_copy_only=False)
    widths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(widths)
    reasons = {}
    if length is not None:
        present = lists.is_valid().to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(present & (widths != length)):
            reasons[int(row)] = scalars.wrong_length(name, int(widths[row]), length)
    for at in reversed(np.flatnonzero(~np.isfinite(found)).tolist()):
        row = int(np.searchsorted(ends, at, side="right"))
        place = at - int(ends[row] - widths[row])
        value = lists[row].as_py()[place]
        reasons[row] = scalars.no_number(name, place, value)
    return reasons


def lacks_required(records: pa.RecordBatch, columns: Mapping[str, "Column"]) -> bool:
    """Whether a required column has a null."""
    return any(column.required and records[name].null_count for name, column in columns.items())
