"""Read plain text: each line that is not blank is a record, with one column ``text``."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steps.shard.readers.batch import (
    Bad,
    Batch,
    bad_batch,
    encode_category,
    excerpt,
    merge_batches,
    schema,
)
from steps.shard.readers.column_values import BadRecord, decode_text
from steps.shard.readers.raw_bytes import FANOUT, PIECE_BYTES, Block, line_blocks
from trainyard.common.errors import DataError

if TYPE_CHECKING:
    from training.workloads import Column

SUFFIXES = (".txt",)
COMPRESSIBLE = True  # whether .gz or .zst may follow

COLUMN = "text"
Parse = Callable[[Block, Mapping[str, "Column"]], Batch | None]
ParseAll = Callable[[Block, Mapping[str, "Column"]], Batch]


def read(path: Path, columns: Mapping[str, "Column"]) -> Iterator[Batch]:
    """Yield lines without their end (line feeds, and carriage returns before it).

    A line of only ASCII white space is blank. Declared columns beside ``text`` are null.

    Raises:
        DataError: ``text`` is not declared as text or category; another column is required; errors
            of ``raw.windows``.
    """
    if COLUMN not in columns or columns[COLUMN].kind not in ("text", "category"):
        raise DataError(
            f"{path}: plain text has one column, 'text', of kind text or category; the workload "
            f"reads {', '.join(map(repr, columns))}: give it JSON Lines, CSV or Parquet"
        )
    missing = [name for name, column in columns.items() if column.required and name != COLUMN]
    if missing:
        raise DataError(
            f"{path}: plain text has one column, 'text', and none for {missing[0]!r}, which is "
            "required; give JSON Lines, CSV or Parquet, or let the workload do without it"
        )
    yield from read_lines(path, columns, fast, exact)


def read_lines(
    path: Path, columns: Mapping[str, "Column"], fast: Parse, exact: ParseAll
) -> Iterator[Batch]:
    """Parse every block by the vectorised way; where that refuses, a smaller part of it, and
    at last its lines.
    """
    for block in line_blocks(path):
        if isinstance(block, Bad):
            yield bad_batch([block], columns)
            continue
        batches, rest, size = [], block, block.stop - block.start
        while rest.start < rest.stop:
            part, behind = rest.cut(size)
            batch = fast(part, columns)
            if batch is not None:
                size *= 2
            elif size > PIECE_BYTES:
                size = max(size // FANOUT, PIECE_BYTES)
                continue
            else:
                batch = exact(part, columns)
            batches.append(batch)
            rest = behind
        batch = merge_batches(batches)
        if batch.record_count:
            yield batch


def fast(block: Block, columns: Mapping[str, "Column"]) -> Batch | None:
    """Return all records of the block; None when one of them may be bad."""
    if not block.is_text():
        return None
    bounds = np.append(block.starts, len(block.codes)).astype(np.int32)
    lines = pa.StringArray.from_buffers(len(block.ends), pa.py_buffer(bounds), block.buffer)
    lines = pc.ascii_rtrim(lines, "\r\n")  # a copy, since the block is reused
    blank = pc.or_(pc.equal(pc.binary_length(lines), 0), pc.ascii_is_space(lines))
    line_indices = np.flatnonzero(~blank.to_numpy(zero_copy_only=False))
    return Batch(_records(lines.take(line_indices), columns), block.first + line_indices, [])


def exact(block: Block, columns: Mapping[str, "Column"]) -> Batch:
    """Return all records, parsed line by line, with the reasons for bad ones."""
    texts, lines, bad = [], [], []
    for number, raw in block.lines():
        if not raw.strip():
            continue
        try:
            refuse_nul(raw)
            texts.append(decode_text(raw).rstrip("\r\n"))
            lines.append(number)
        except BadRecord as error:
            bad.append(Bad(number, str(error), excerpt(raw)))
    records = _records(pa.array(texts, pa.string()), columns)
    return Batch(records, np.array(lines, np.int64), bad)


def refuse_nul(raw: bytes) -> None:
    """Refuse NUL bytes, which a torn write or binary data leaves: text has none."""
    if b"\0" in raw:
        raise BadRecord("holds a NUL byte; was it torn in writing, or is it not UTF-8 text?")


def _records(texts: pa.StringArray, columns: Mapping[str, "Column"]) -> pa.RecordBatch:
    fields = schema(columns)
    arrays = [
        encode_category(texts, columns[COLUMN].kind)
        if f.name == COLUMN
        else pa.nulls(len(texts), f.type)
        for f in fields
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=fields)
