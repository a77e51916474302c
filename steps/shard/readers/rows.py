"""Gather single records into batches."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from steps.shard.readers import raw_bytes
from steps.shard.readers.batch import Bad, Batch
from steps.shard.readers.column_values import build_row_batch
from trainyard.common.errors import DataError

if TYPE_CHECKING:
    from training.workloads import Column


class Row(NamedTuple):
    """A good record."""

    line: int
    values: list[Any]
    """Values as ``column_values.convert_json_row`` returns them."""
    bytes: int
    """Approximate bytes in memory."""


def gather_batches(
    row_stream: Iterator[Row | Bad], columns: Mapping[str, "Column"]
) -> Iterator[Batch]:
    """Gather the records into batches of about ``raw_bytes.CHUNK_BYTES``, or of one record."""
    rows: list[Row] = []
    bad_records: list[Bad] = []
    size = 0
    for row in row_stream:
        if isinstance(row, Bad):
            bad_records.append(row)
            continue
        if rows and size + row.bytes > raw_bytes.CHUNK_BYTES:
            yield _build_batch(rows, bad_records, columns)
            rows, bad_records, size = [], [], 0
        rows.append(row)
        size += row.bytes
    if rows or bad_records:
        yield _build_batch(rows, bad_records, columns)


def _build_batch(rows: list[Row], bad_records: list[Bad], columns: Mapping[str, "Column"]) -> Batch:
    records = build_row_batch([row.values for row in rows], columns)
    return Batch(records, np.array([row.line for row in rows], np.int64), bad_records)


def check_names(path: Path, names: Sequence[str], column_names: Iterable[str]) -> None:
    """Check that each declared column occurs in ``names`` exactly once.

    Raises:
        DataError: a column is missing, or occurs twice.
    """
    for name in column_names:
        if name not in names:
            near = get_close_matches(name, names, 1)
            hint = f"; is it {near[0]!r}?" if near else "."
            raise DataError(
                f"{path}: has no column {name!r}{hint} Its columns are "
                f"{shorten(', '.join(map(repr, names)), 600)}: rename it, or change the recipe"
            )
        if names.count(name) > 1:
            positions = [str(i) for i, other in enumerate(names, 1) if other == name]
            raise DataError(
                f"{path}: column {name!r} occurs {len(positions)} times, as "
                f"{', '.join(positions)}; "
                "which one is meant? Rename the others"
            )
