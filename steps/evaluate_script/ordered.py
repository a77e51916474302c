"""Rows in the order of their examples' names: the gate reads both models' tables side by side.

A script may write its rows in any order, and as many as it likes: they go into PARTS files by the
highest bits of ``example``, and each file is sorted alone. Memory holds 1/PARTS of the rows.
"""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa

from steps.evaluate.scores import TYPES
from steps.evaluate_script.columns import ROW
from training.scores import Block
from trainyard.common.errors import DataError

BITS = 6
PARTS = 1 << BITS


class SameExampleError(DataError):
    """Two rows name one example: ``rows`` are their numbers."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"rows {first} and {second} name one example")
        self.rows = (first, second)


def ordered(blocks: Iterable[Block], scratch: Path) -> Iterator[Block]:
    """The rows in the order of ``example``, without ROW.

    Args:
        scratch: a folder on a disk that holds all rows once more.

    Raises:
        SameExampleError: one stands twice.
    """
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        parts = [Path(name) / f"{part}.rows" for part in range(PARTS)]
        _spill(blocks, parts)
        yield from map(_sorted, filter(Path.exists, parts))


def _spill(blocks: Iterable[Block], parts: list[Path]) -> None:
    with ExitStack() as stack:
        writers: dict[int, pa.RecordBatchStreamWriter] = {}
        for block in blocks:
            number = block["example"].view(np.uint64) >> np.uint64(64 - BITS)
            order = np.argsort(number, kind="stable")
            batch = pa.record_batch({n: _column(n, values[order]) for n, values in block.items()})
            begin = 0
            for part, rows in enumerate(np.bincount(number.astype(np.int64), minlength=PARTS)):
                if rows and part not in writers:
                    file = stack.enter_context(parts[part].open("wb"))
                    writer = pa.ipc.new_stream(file, batch.schema)
                    writers[part] = stack.enter_context(writer)
                if rows:
                    writers[part].write_batch(batch.slice(begin, rows))
                begin += rows


def _sorted(path: Path) -> Block:
    with path.open("rb") as file, pa.ipc.open_stream(file) as stream:
        table = stream.read_all()
    block = {name: table.column(name).to_numpy() for name in table.column_names}
    order = np.argsort(block["example"].view(np.uint64), kind="stable")
    block = {name: values[order] for name, values in block.items()}
    rows, example = block.pop(ROW), block["example"]
    if (same := np.flatnonzero(example[1:] == example[:-1])).size:
        raise SameExampleError(int(rows[same[0]]), int(rows[same[0] + 1]))
    return block


def _column(name: str, values: np.ndarray) -> pa.Array:
    if name.startswith("slice."):
        return pa.array(values, pa.string())
    return pa.array(values, pa.int64() if name == ROW else TYPES.get(name, pa.float64()))
