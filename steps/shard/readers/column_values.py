"""Check and convert values: single values, with a reason for each bad one, and whole columns."""

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from steps.shard.readers.batch import Batch, build_schema, reject_records
from training.workloads.column_packing import (
    BITS,
    choose_number_type,
    choose_record_type,
    convert_whole_number,
    convert_whole_numbers,
)

if TYPE_CHECKING:
    from training.workloads import Column

NULL_TOKENS = frozenset(pa.csv.ConvertOptions().null_values)
"""Texts that pyarrow reads as a missing number in CSV: an empty field, ``NA``, ``null``, ``NaN``,
…"""

DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
NOT_FINITE = re.compile(r"[+-]?(?:inf(?:inity)?|nan(?:\([a-z0-9_]*\))?)", re.ASCII | re.IGNORECASE)

DECIMALS = pa.decimal128(38, 3)
"""Type in which integers written as floats (``12.0``, ``1e3``) are parsed, because it does not
round them. The exception is ``TINY``."""
TINY = re.compile(rb"[eE]-\d\d")
"""Exponents for which pyarrow's decimals may give 0 (from e-77 on)."""

# How values are written:
# bytes      as base64 in text (RFC 4648, section 4, padded); as they are in Parquet, tar and files
# list       as a JSON array of finite numbers; in Parquet as a list of numbers
# timestamp  in ISO 8601 with a calendar date: ``2013-01-31``, ``2013-01-31T12:00:00.25+02:00``;
#            in UTC if there is no offset. Fractions of a microsecond are cut off.

ISO_8601 = re.compile(
    r"\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:[Zz]|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)
BEGIN = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class BadRecord(ValueError):
    """Error whose message says why a record cannot be used. Readers turn it into a ``Bad``."""


class Number(str):
    """A number as JSON text, with any number of digits, so that it is not rounded yet."""

    __slots__ = ()


class Integer(Number):
    """A number without fraction or exponent."""

    __slots__ = ()


def convert_json_row(json_object: Mapping[str, Any], columns: Mapping[str, "Column"]) -> list[Any]:
    """Return the declared columns of a JSON object, with the types of the record batch.

    Raises:
        BadRecord: a value has the wrong type, or a required one is missing.
    """
    return [
        require_value(name, column, _convert_json_value(name, column, json_object.get(name)))
        for name, column in columns.items()
    ]


def convert_csv_row(fields: Sequence[bytes], columns: Mapping[str, "Column"]) -> list[Any]:
    """Return the declared columns of a CSV record; ``fields`` has their fields in that order.

    An empty field is a missing value, quoted or not, because programs do not agree on how to tell
    an empty text from a missing one. For a number, each of ``NULL_TOKENS`` is missing too.

    Raises:
        BadRecord: a field is not UTF-8 or not of the column's kind, or a required one is missing.
    """
    return [
        require_value(name, column, convert_field(name, column, field))
        for (name, column), field in zip(columns.items(), fields, strict=True)
    ]


def require_value(name: str, column: "Column", value: Any) -> Any:
    """Return the value unchanged.

    Raises:
        BadRecord: the value is None although the column is required.
    """
    if value is None and column.required:
        raise BadRecord(f"column {name!r} is required and has no value")
    return value


def convert_field(name: str, column: "Column", field: bytes) -> Any:
    """Return the value of a field of text, or None if it is empty.

    Raises:
        BadRecord: the field is not UTF-8, or not a value of the column's kind.
    """
    text = decode_text(field, f"column {name!r} is")
    return parse_text(name, column, text) if text else None


def parse_text(name: str, column: "Column", text: str) -> Any:
    """Parse a text by the column's kind; for the kinds text and category, return it unchanged.

    Raises:
        BadRecord: the text is not a value of the column's kind.
    """
    match column.kind:
        case "bytes":
            return decode_base64(name, text)
        case "timestamp":
            return parse_timestamp(name, text)
        case "list":
            return parse_array(name, column, text)
        case "number":
            token = text.strip(" \t")
            if token in NULL_TOKENS or NOT_FINITE.fullmatch(token):
                return None
            if not DECIMAL.fullmatch(token):
                raise BadRecord(f"column {name!r} is {format_value(text)}, expected a number")
            return convert_number(column, Number(token), f"column {name!r} is")
    return text


def convert_column(
    name: str, column: "Column", parsed_column: pa.Array
) -> tuple[pa.Array, dict[int, str]]:
    """Convert a column that was parsed with ``build_parsed_schema`` to the declared type.

    Return the converted column, and the rows of bad values with the reason. Bad values are null.
    """
    if parsed_column.type == DECIMALS:
        integers, reasons = convert_whole_numbers(parsed_column, column.dtype)
        bounds = pc.min_max(integers).as_py()
        # The program that wrote it as a float may have rounded it.
        if max(-(bounds["min"] or 0), bounds["max"] or 0) >= 2**BITS:
            # One reason suffices, because a part with any reason is read again record by record.
            reasons[0] = f"column {name!r} is too large if it is written as a float"
        return integers, reasons
    if parsed_column.type != pa.string() or column.kind in ("text", "category"):
        return parsed_column, {}
    values, reasons = parsed_column.to_pylist(), {}
    for row, text in enumerate(values):
        try:
            values[row] = None if text is None else parse_text(name, column, text)
        except BadRecord as error:
            values[row], reasons[row] = None, str(error)
    return pa.array(values, choose_record_type(column)), reasons


def _convert_json_value(name: str, column: "Column", value: Any) -> Any:
    """Return a JSON value in the type of the column, or None if it is missing."""
    if value is None:
        return None
    match column.kind:
        case "category":
            return _convert_json_category(name, value)
        case "number":
            if not isinstance(value, float | Number):
                raise BadRecord(f"column {name!r} is {format_value(value)}, expected a number")
            return convert_number(column, value, f"column {name!r} is")
        case "list":
            if type(value) is not list:  # a JSON object is a list of pairs here, of a subclass
                raise BadRecord(
                    f"column {name!r} is {format_value(value)}, expected an array of numbers"
                )
            return convert_numbers(name, column, value)
    return parse_text(name, column, _check_json_text(name, value))


def _check_json_text(name: str, value: Any) -> str:
    """Return the string; raise ``BadRecord`` if it is not one, or is not valid Unicode."""
    if type(value) is not str:
        raise BadRecord(f"column {name!r} is {format_value(value)}, expected a string")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        reason = f"column {name!r} holds half of a surrogate pair, which is not a character"
        raise BadRecord(reason) from None
    return value


def _convert_json_category(name: str, value: Any) -> str:
    """Return a string, integer or boolean as the text of a category."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Integer):
        # pyarrow reads -0 as an integer, and writes it as 0. Both parsers must give the same
        # category.
        return "0" if value == "-0" else str(value)
    if type(value) is str:
        return _check_json_text(name, value)
    raise BadRecord(
        f"column {name!r} is {format_value(value)}, expected a string, an integer, true or false"
    )


def convert_number(column: "Column", value: float | Number, label: str) -> float | None:
    """Return the number in the column's type, or None if it is not finite (NaN, 1e999).

    Raises:
        BadRecord: the column has an integer type that cannot hold the number exactly. The message
            begins with ``label``.
    """
    if isinstance(value, Number) and pa.types.is_integer(choose_number_type(column.dtype)):
        try:
            return convert_whole_number(value, column.dtype)
        except ValueError as error:
            raise BadRecord(f"{label} {format_value(value)}, expected {error}") from None
    return float(value) if isfinite(float(value)) else None


def build_row_batch(
    rows: Sequence[Sequence[Any]], columns: Mapping[str, "Column"]
) -> pa.RecordBatch:
    """Return a record batch of rows from ``convert_json_row`` or ``convert_csv_row``."""
    kinds = build_schema(columns)
    arrays = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds.types)]
    return pa.RecordBatch.from_arrays(arrays, schema=kinds)


def replace_infinities(numbers: pa.DoubleArray) -> pa.DoubleArray:
    """Return the numbers, with null instead of NaN and infinities."""
    if isfinite(pc.sum(numbers, min_count=0).as_py()):  # cheap; finite only if all numbers are
        return numbers
    return pc.if_else(pc.is_finite(numbers), numbers, None)


def replace_empty_texts(texts: pa.StringArray) -> pa.StringArray:
    """Return the texts, with null instead of empty ones. They must not contain nulls.

    pyarrow's ``if_else`` is not used because it copies the texts: reading a wide table with many
    missing values took a quarter more CPU.
    """
    bounds = np.frombuffer(texts.buffers()[1], np.int32)
    bounds = bounds[texts.offset : texts.offset + len(texts) + 1]
    full = bounds[1:] > bounds[:-1]
    if full.all():
        return texts
    present = pa.py_buffer(np.packbits(full, bitorder="little"))
    content = pa.py_buffer(np.ascontiguousarray(bounds)), texts.buffers()[2]
    return pa.StringArray.from_buffers(len(texts), *content, present)


def find_bad_lists(name: str, lists: pa.ListArray, length: int | None) -> dict[int, str]:
    """Return {row: reason} for lists of float64 that make their records bad."""
    elements = lists.flatten().to_numpy(zero_copy_only=False)
    widths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(widths)
    reasons = {}
    if length is not None:
        present = lists.is_valid().to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(present & (widths != length)).tolist():
            reasons[row] = explain_wrong_length(name, int(widths[row]), length)
    # In reverse, so that the first of several bad elements in a list is named.
    for position in reversed(np.flatnonzero(~np.isfinite(elements)).tolist()):
        row = int(np.searchsorted(ends, position, side="right"))
        index = position - int(ends[row] - widths[row])
        value = lists[row].as_py()[index]
        reasons[row] = explain_bad_element(name, index, value)
    return reasons


def lacks_required(records: pa.RecordBatch, columns: Mapping[str, "Column"]) -> bool:
    """Return whether a required column contains a null."""
    return any(column.required and records[name].null_count for name, column in columns.items())


def check_limits(batches: Iterator[Batch], columns: Mapping[str, "Column"]) -> Iterator[Batch]:
    """Yield the batches, with records that break a rule of a column moved to ``Batch.bad_records``.

    The rules are ``Column.limit`` and ``Column.refuse``.
    """
    limited = {n: c for n, c in columns.items() if c.limit < inf or c.refuse is not None}
    for batch in batches:
        yield _reject_invalid_records(batch, limited)


def _reject_invalid_records(batch: Batch, columns: Mapping[str, "Column"]) -> Batch:
    """Return the batch with records that break a rule of a column moved to its bad records."""
    reasons: dict[int, str] = {}
    # In reverse, so that the first of several bad columns is named.
    for name, column in reversed(list(columns.items())):
        array = batch.records[name]
        if column.refuse is not None:
            whys = (None if v is None else column.refuse(v) for v in array.to_pylist())
            reasons |= {
                row: f"column {name!r} {reason}" for row, reason in enumerate(whys) if reason
            }
            continue
        if pa.types.is_list(array.type):
            rows, array = pc.list_parent_indices(array).to_numpy(), array.flatten()
        else:
            rows = np.arange(len(array))
        numbers = array.to_numpy(zero_copy_only=False)
        too_large = np.flatnonzero(np.abs(numbers) >= column.limit)
        reasons |= {
            int(rows[position]): (
                f"column {name!r} is {numbers[position]:g}, too large for the samples "
                f"({column.limit:.4g} and more); scale the column"
            )
            for position in reversed(too_large.tolist())
        }
    return reject_records(batch, reasons)


def decode_text(raw: bytes, label: str = "the record is") -> str:
    """Return ``raw`` as text; raise ``BadRecord``, beginning with ``label``, if it is not UTF-8."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRecord(f"{label} not UTF-8 (at byte {error.start + 1})") from None


def format_value(value: Any) -> str:
    """Return the value as text for a message: at most 41 characters, all of them encodable."""
    text = str(value) if isinstance(value, float | Number | Decimal) else ascii(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


def decode_base64(name: str, text: str) -> bytes:
    """Return the bytes of a base64 text; raise ``BadRecord`` if it is not base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRecord(
            f"column {name!r} is {format_value(text)}, expected base64, padded (RFC 4648): {error}"
        ) from None


def parse_timestamp(name: str, text: str) -> int:
    """Return an ISO 8601 text as microseconds since 1970 in UTC, or raise ``BadRecord``."""
    token = text.strip(" \t")
    try:
        if not ISO_8601.fullmatch(token):
            raise ValueError("it has a different form")
        timestamp = datetime.fromisoformat(token.upper())
        return (
            (timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)) - BEGIN
        ) // MICROSECOND
    except (ValueError, OverflowError) as error:
        raise BadRecord(
            f"column {name!r} is {format_value(text)}, expected a time in ISO 8601 such as "
            f"2013-01-31T12:00:00Z: {error}"
        ) from None


def convert_numbers(name: str, column: "Column", values: Sequence[Any]) -> list[float]:
    """Return a list of finite numbers in the column's type.

    Raises:
        BadRecord: an element is not a finite number, or the list's length is not the column's.
    """
    elements = []
    for index, value in enumerate(values):
        element = None
        if isinstance(value, float | Number):
            element = convert_number(column, value, f"column {name!r} contains at index {index}")
        if element is None:
            raise BadRecord(explain_bad_element(name, index, value))
        elements.append(element)
    if column.length is not None and len(elements) != column.length:
        raise BadRecord(explain_wrong_length(name, len(elements), column.length))
    return elements


def parse_array(name: str, column: "Column", text: str) -> list[float]:
    """Return the numbers of a JSON array in ``text``; raise ``BadRecord`` if it is not one."""
    try:
        values = json.loads(text, parse_int=Integer, parse_float=Number)
    except (ValueError, RecursionError):
        values = None
    if type(values) is not list:
        raise BadRecord(
            f"column {name!r} is {format_value(text)}, expected a JSON array of numbers"
        )
    return convert_numbers(name, column, values)


def explain_bad_element(name: str, index: int, value: Any) -> str:
    """Return the reason why an element that is not a finite number makes a record bad."""
    return (
        f"column {name!r} contains {format_value(value)} at index {index}, expected a finite number"
    )


def explain_wrong_length(name: str, length: int, expected_length: int) -> str:
    """Return the reason why a list of the wrong length makes a record bad."""
    return f"column {name!r} has {length} numbers, expected {expected_length}"
