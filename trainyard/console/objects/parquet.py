"""The schema and the first rows of Parquet, of which no more is read than they need."""

import importlib.util
from collections.abc import Sequence
from typing import Any

from trainyard.common.errors import ServiceError
from trainyard.console.objects.reading import Beginning
from trainyard.console.objects.seekable import Seekable, TooMuch
from trainyard.console.objects.shown import COLUMNS, ROWS, Preview, table

BUFFER = 64 << 10
"""Bytes that are read of a column at a time."""


def parquet(found: Beginning) -> Preview:
    """Its rows; its schema where they cannot be had.

    Raises:
        ServiceError: AWS refuses.
    """
    if importlib.util.find_spec("pyarrow") is None:
        return Preview(kind="binary", said="Parquet: install pyarrow to see its rows here")
    import pyarrow  # not one of trainyard's dependencies

    try:
        return _read(found)
    except ServiceError:
        raise
    except (pyarrow.ArrowException, OSError) as error:
        return Preview(kind="binary", said=f"Parquet that cannot be read: {error}")


def _read(found: Beginning) -> Preview:
    from pyarrow.parquet import ParquetFile

    file = ParquetFile(Seekable(found), buffer_size=BUFFER, pre_buffer=False)
    fields = list(file.schema_arrow)
    count, names = file.metadata.num_rows, [field.name for field in fields]
    try:
        first = next(file.iter_batches(batch_size=ROWS, columns=names[:COLUMNS]), None)
    except TooMuch as error:
        return table(f"Parquet of {count:,} rows, by its schema: {error}", *_schema(fields))
    if first is None:
        return table("Parquet of 0 rows, by its schema", *_schema(fields))
    columns = [_cells(column) for column in first.columns]
    rows = [list(row) for row in zip(*columns, strict=True)]
    return table(f"Parquet: {len(rows)} of {count:,} rows", names, rows)


def _schema(fields: Sequence[Any]) -> tuple[list[str], list[list[str]]]:
    return ["column", "type"], [[field.name, str(field.type)] for field in fields]


def _cells(column: Any) -> list[str]:
    """What Python has no value for, such as a time in the year 300,000, in Arrow's own words."""
    import pyarrow

    try:
        values = column.to_pylist()
    except (ValueError, OverflowError, pyarrow.ArrowException):
        values = column.cast(pyarrow.string()).to_pylist()
    return ["" if value is None else str(value) for value in values]
