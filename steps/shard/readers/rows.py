"""Records that come one by one, gathered into batches."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from steps.shard.readers import raw
from steps.shard.readers.batch import Bad, Batch
from steps.shard.readers.values import row_batch

if TYPE_CHECKING:
    from training.workloads import Column


class Row(NamedTuple):
    """A good record."""

    line: int
    values: list[Any]
    """As ``values.json_row`` gives them."""
    bytes: int
    """About how much memory it takes."""


def batches(found: Iterator[Row | Bad], columns: Mapping[str, "Column"]) -> Iterator[Batch]:
    """The same in batches of about ``raw.CHUNK_BYTES``, or one record."""
    rows: list[Row] = []
    bad: list[Bad] = []
    size = 0
    for one in found:
        if isinstance(one, Bad):
            bad.append(one)
            continue
        if rows and size + one.bytes > raw.CHUNK_BYTES:
            yield _batch(rows, bad, columns)
            rows, bad, size = [], [], 0
        rows.append(one)
        size += one.bytes
    if rows or bad:
        yield _batch(rows, bad, columns)


def _batch(rows: list[Row], bad: list[Bad], columns: Mapping[str, "Column"]) -> Batch:
    records = row_batch([row.values for row in rows], columns)
    return Batch(records, np.array([row.line for row in rows], np.int64), bad)
