"""Numbers that the samples cannot hold make their record bad, in every format alike."""

from collections.abc import Iterator, Mapping
from math import inf
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from steps.shard.readers.batch import Bad, Batch, row_excerpt

if TYPE_CHECKING:
    from training.workloads import Column


def within(batches: Iterator[Batch], columns: Mapping[str, "Column"]) -> Iterator[Batch]:
    """The same batches, records with a number beyond its column's limit among the bad ones."""
    limits = {name: column.limit for name, column in columns.items() if column.limit < inf}
    for batch in batches:
        yield _within(batch, limits)


def _within(batch: Batch, limits: Mapping[str, float]) -> Batch:
    reasons: dict[int, str] = {}
    for name, limit in reversed(limits.items()):
        numbers = batch.records[name].to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(np.abs(numbers) >= limit)
        reasons |= {
            int(row): f"column {name!r} is {numbers[row]:g}, too large for the samples "
            f"({limit:.4g} and more); scale the column" for row in rows
        }  # fmt: skip
    if not reasons:
        return batch
    bad = [
        Bad(int(batch.lines[row]), reason, row_excerpt(batch.records, row))
        for row, reason in reasons.items()
    ]
    good = np.setdiff1d(np.arange(len(batch.lines)), list(reasons))
    return Batch(
        batch.records.take(pa.array(good)),
        batch.lines[good],
        sorted([*batch.bad, *bad], key=lambda one: one.line),
    )
