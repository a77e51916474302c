"""What a column refuses beyond its kind makes its record bad, in every format alike: numbers that
the samples cannot hold, and bytes that are of no use to the workload."""

from collections.abc import Iterator, Mapping
from math import inf
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steps.shard.readers.batch import Bad, Batch, row_excerpt

if TYPE_CHECKING:
    from training.workloads import Column


def within(batches: Iterator[Batch], columns: Mapping[str, "Column"]) -> Iterator[Batch]:
    """The same batches, records with a value that its column refuses among the bad ones."""
    picky = {n: c for n, c in columns.items() if c.limit < inf or c.refuse is not None}
    for batch in batches:
        yield _within(batch, picky)


def _within(batch: Batch, columns: Mapping[str, "Column"]) -> Batch:
    reasons: dict[int, str] = {}
    for name, column in reversed(columns.items()):
        array = batch.records[name]
        if column.refuse is not None:
            whys = (None if v is None else column.refuse(v) for v in array.to_pylist())
            reasons |= {row: f"column {name!r} {why}" for row, why in enumerate(whys) if why}
            continue
        rows, numbers = _numbers(array)
        reasons |= {
            int(rows[at]): f"column {name!r} is {numbers[at]:g}, too large for the samples "
            f"({column.limit:.4g} and more); scale the column"
            for at in reversed(np.flatnonzero(np.abs(numbers) >= column.limit).tolist())
        }
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


def _numbers(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """(row, value) of every number of a column of numbers or of lists."""
    if not pa.types.is_list(array.type):
        return np.arange(len(array)), array.to_numpy(zero_copy_only=False)
    rows = pc.list_parent_indices(array).to_numpy()
    return rows, array.flatten().to_numpy(zero_copy_only=False)
