"""Turn the records of requests into a batch; values are those of JSON Lines that the shard step
reads.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from training.defaults.default_scores import Batches, count_batch_samples
from training.workloads import Column, Workload
from training.workloads.column_packing import (
    choose_number_type,
    choose_record_type,
    convert_whole_number,
)
from trainyard.common.errors import DataError

EPOCH, MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
ROWS = 8
"""Batches contain a multiple of this many samples: matrix products then round a row in the same
way in each of them, whatever the other rows are (measured:
``tests/training/export/test_request_handler.py``).
"""


def build_batch(
    workload: Workload, requests: Sequence[Mapping[str, Any]], device: torch.device
) -> dict[str, Tensor]:
    """Return the requests' records as a batch of samples, in their order, padded as
    ``build_table`` does.

    Raises:
        DataError: a request has no record, or one without a column that the model uses or with a
            value of the wrong type; or the workload packs records together.
    """
    columns = workload.packing.columns
    records = [extract_record(request, columns) for request in requests]
    # A request may omit what the model does not use, but the packing needs every column.
    empty = {name: _make_placeholder(column) for name, column in columns.items()}
    table = build_table([empty | record for record in records], columns)
    tensors = Batches(workload, device).make_batch(workload.packing.packer().add(table))
    if int(count_batch_samples(tensors)) != len(table):
        raise DataError("records are packed together, so a request has no sample of its own")
    batch = _TrackedBatch(tensors)
    workload.inputs(batch)
    for record in records:
        if missing := sorted((batch.fields_read & columns.keys()) - record.keys()):
            raise DataError(f"record: has no {', '.join(missing)}, which the model uses")
    return tensors


def find_used_columns(workload: Workload) -> dict[str, Column]:
    """Return the columns whose fields the workload's ``inputs`` reads.

    Return all columns if the workload prepares samples, because prepared samples have other fields.
    """
    columns = workload.packing.columns
    if hasattr(workload, "prepare"):
        return dict(columns)
    table = build_table(
        [{name: _make_placeholder(column) for name, column in columns.items()}], columns
    )
    batch = _TrackedBatch(
        Batches(workload, torch.device("cpu")).make_batch(workload.packing.packer().add(table))
    )
    workload.inputs(batch)
    return {name: column for name, column in columns.items() if name in batch.fields_read}


def extract_record(request: Mapping[str, Any], columns: Mapping[str, Column]) -> dict[str, Any]:
    """Check a request's fields, and return its record.

    Raises:
        DataError: the record is missing, or has an unknown column.
    """
    record = request.get("record")
    if set(request) != {"record"} or not isinstance(record, Mapping):
        raise DataError('expected {"record": {column: value, …}}')
    if unknown := sorted(set(record) - set(columns)):
        known_names = ", ".join(columns)
        raise DataError(f"record: no column {', '.join(unknown)}; the model reads {known_names}")
    return dict(record)


def build_table(
    records: Sequence[Mapping[str, Any]], columns: Mapping[str, Column]
) -> pa.RecordBatch:
    """Return the records as a table, in the types that the shard step's readers produce.

    The last record is repeated until the number of rows is a multiple of ROWS.

    Raises:
        DataError: a value is not of the column's kind.
    """
    arrays = {n: _convert_values(n, column, records) for n, column in columns.items()}
    repeats = [len(records) - 1] * (-len(records) % ROWS)
    return pa.RecordBatch.from_pydict(arrays).take(pa.array([*range(len(records)), *repeats]))


def _make_placeholder(column: Column) -> Any:
    """Return a placeholder for a column that the model does not use."""
    match column.kind:
        case "number":
            return 0.0
        case "list":
            return [0.0] * (column.length or 0)
        case "timestamp":
            return "1970-01-01"
    return ""


def _convert_values(name: str, column: Column, records: Sequence[Mapping[str, Any]]) -> pa.Array:
    """Convert values from JSON: bytes from base64, a list from an array, a timestamp from ISO 8601.

    Raises:
        DataError: a value is not of the column's kind.
    """
    convert, expectation = KINDS[column.kind]
    elements, value = [], None
    try:
        for record in records:
            value = record.get(name)
            elements.append(None if value is None else convert(value, column))
        return pa.array(elements, choose_record_type(column))
    except (ValueError, TypeError):  # pyarrow's error does not say which of several values is wrong
        excerpt = f"{value!r}"[:60]
        suffix = f" that {column.dtype} holds" if column.kind in ("number", "list") else ""
        raise DataError(
            f"record.{name}: is {excerpt}; expected {expectation}{suffix} or null"
        ) from None


def to_json_values(column: Column, values: pa.Array) -> list[Any]:
    """Convert values that the readers produce to JSON's; ``build_table`` converts them back
    unchanged.
    """
    python_values = values.to_pylist()
    if column.kind == "bytes":
        return [None if value is None else b64encode(value).decode() for value in python_values]
    if column.kind == "timestamp":
        return [
            None if value is None else (EPOCH + value * MICROSECOND).isoformat()
            for value in python_values
        ]
    return python_values


def _convert_number(value: Any, column: Column) -> float:
    """Return the number in the column's type; raise TypeError or ValueError if it is not one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    if pa.types.is_integer(choose_number_type(column.dtype)):
        return convert_whole_number(value, column.dtype)
    if abs(value) >= column.limit:
        raise ValueError
    return float(value)


def _convert_text(value: Any, column: Column) -> str:
    """Return a string, integer or boolean as text; raise TypeError for any other value."""
    if not isinstance(value, str | int):  # a boolean is an integer, too, and is allowed
        raise TypeError
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parse_timestamp(value: Any, column: Column) -> int:
    """Return microseconds since 1970; a time without an offset is UTC."""
    parsed_time = datetime.fromisoformat(value)
    aware = parsed_time if parsed_time.tzinfo else parsed_time.replace(tzinfo=UTC)
    return (aware - EPOCH) // MICROSECOND


KINDS: dict[str, tuple[Callable[[Any, Column], Any], str]] = {
    "number": (_convert_number, "a number"),
    "list": (
        lambda value, column: [_convert_number(element, column) for element in value],
        "numbers",
    ),
    "timestamp": (_parse_timestamp, "a time in ISO 8601"),
    "category": (_convert_text, "a string, an integer, true, false"),
    "text": (_convert_text, "a string, an integer, true, false"),
    "bytes": (lambda value, column: b64decode(value, validate=True), "base64"),
}
"""Mapping of a column's kind to (function that converts a JSON value, expected value in
messages).
"""


class _TrackedBatch(dict[str, Tensor]):
    """A batch that records which of its fields were read."""

    def __init__(self, batch: Mapping[str, Tensor]) -> None:
        super().__init__(batch)
        self.fields_read: set[str] = set()

    def __getitem__(self, name: str) -> Tensor:
        self.fields_read.add(name)
        return super().__getitem__(name)

    def items(self) -> Any:
        return [(name, self[name]) for name in self]

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401 - this is get
