"""Store the scores of every example in a Parquet file, written and read block by block.

A row group has at most GROUP rows, so neither writing nor reading takes more memory for more
examples. ``training.scores`` names the columns.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from steps.evaluate.evaluation_document import Artifact
from training.scores import Block
from trainyard.common import atomic_file
from trainyard.common.errors import DataError
from trainyard.common.hashes import hash_file

FORMAT = 1
GROUP = 131_072  # rows of a row group
FEW = 4096  # rows of a block in memory
METADATA = b"trainyard"
TYPES = {"example": pa.int64(), "group": pa.int64(), "probability": pa.float64()}
TYPES["label"] = pa.uint8()


def write_scores(path: Path, blocks: Iterable[Block], header: Mapping[str, Any]) -> None:
    """Write the file atomically: it appears under its name with all rows, or not at all.

    ``header`` and the format's number are stored in the file's metadata as JSON, under
    ``trainyard``; its ``metrics`` are reduced to those that have columns.

    Raises:
        DataError: there are no rows.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file.Draft(path) as file:
        groups = _group_rows(blocks)
        first = next(groups, None)
        if first is None:
            raise DataError(f"{path.name}: the test split contains no example to score")
        columns = first.schema.names
        metrics = {m: better for m, better in header["metrics"].items() if f"{m}.sum" in columns}
        metadata = json.dumps({"format": FORMAT, **header, "metrics": metrics}).encode()
        schema = first.schema.with_metadata({METADATA: metadata})
        with pq.ParquetWriter(file, schema, write_page_checksum=True) as writer:
            for table in chain([first], groups):
                writer.write_table(table, row_group_size=GROUP)


class Scores:
    """Blocks of a table of scores, which can be iterated repeatedly, to compute metrics."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[Block]:
        with pq.ParquetFile(self._path) as file:
            columns = [n for n in file.schema_arrow.names if not n.startswith("slice.")]
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, columns=columns)
                yield {name: table.column(name).to_numpy() for name in columns}


def write_part(path: Path, blocks: Iterable[Block]) -> None:
    """Write rows, possibly none, for ``read_part``; Arrow's file format preserves every bit."""
    with pa.OSFile(str(path), "wb") as file:
        writer = None
        for block in _gather_blocks(blocks):
            batch = pa.record_batch({n: _to_arrow(n, values) for n, values in block.items()})
            writer = writer or pa.ipc.new_stream(file, batch.schema)
            writer.write_batch(batch)
        if writer:
            writer.close()


def read_part(path: Path) -> Iterator[Block]:
    """Yield the rows that ``write_part`` wrote, in blocks."""
    if not path.stat().st_size:
        return
    with pa.OSFile(str(path), "rb") as file, pa.ipc.open_stream(file) as batches:
        for batch in batches:
            columns = zip(batch.schema.names, batch.columns, strict=True)
            yield {name: column.to_numpy(zero_copy_only=False) for name, column in columns}


def list_tables(folder: Path) -> dict[str, Artifact]:
    """Return {file name: size and hash} of the tables of scores, for the gate's record."""
    return {
        path.name: {"bytes": path.stat().st_size, "sha256": hash_file(path)}
        for path in sorted(folder.glob("*.parquet"))
    }


def _group_rows(blocks: Iterable[Block]) -> Iterator[pa.Table]:
    """Yield the rows as tables of GROUP rows, the last one shorter."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for block in _gather_blocks(blocks):
        batch = pa.record_batch(
            {name: _build_column(name, values) for name, values in block.items()}
        )
        while rows + len(batch) >= GROUP:
            row_count = GROUP - rows
            yield _join_batches([*waiting, batch.slice(0, row_count)])
            waiting, rows, batch = [], 0, batch.slice(row_count)
        if len(batch):
            waiting.append(batch)
            rows += len(batch)
    if waiting:
        yield _join_batches(waiting)


def _gather_blocks(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield the rows in blocks of FEW rows, the last one shorter, because Arrow needs some
    kilobytes for each block, however small.

    So the file does not depend on the sizes of the given blocks: equal rows give equal bytes.
    """
    waiting: list[Block] = []
    rows = 0
    for block in blocks:
        size = len(block["example"])
        begin = 0
        while rows + size - begin >= FEW:
            stop = begin + FEW - rows
            yield _concatenate_blocks([*waiting, _slice_block(block, begin, stop)])
            waiting, rows, begin = [], 0, stop
        if begin < size:
            waiting.append(_slice_block(block, begin, size))
            rows += size - begin
    if rows:
        yield _concatenate_blocks(waiting)


def _slice_block(block: Block, begin: int, stop: int) -> Block:
    return {name: values[begin:stop] for name, values in block.items()}


def _concatenate_blocks(blocks: Sequence[Block]) -> Block:
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def _join_batches(batches: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()


def _build_column(name: str, values: np.ndarray) -> pa.Array:
    """Return the column as an Arrow array; slices, which repeat, are dictionary-encoded."""
    array = _to_arrow(name, values)
    return array.dictionary_encode() if name.startswith("slice.") else array


def _to_arrow(name: str, values: np.ndarray) -> pa.Array:
    """Return the column as an Arrow array of the table's type."""
    kind = pa.string() if name.startswith("slice.") else TYPES.get(name, pa.float64())
    return pa.array(values, kind)
