"""Read plain text: each line that is not blank is a record with one column, ``text``.

The module also reads whole files as records, and finds the ends of CSV records.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steps.shard.readers import raw_bytes
from steps.shard.readers.batch import (
    Bad,
    Batch,
    build_schema,
    encode_category,
    make_bad_batch,
    make_excerpt,
    merge_batches,
)
from steps.shard.readers.column_values import BadRecord, convert_field, decode_text, require_value
from steps.shard.readers.raw_bytes import (
    CR,
    FANOUT,
    LF,
    PIECE_BYTES,
    Block,
    find_line_ends,
    read_line_blocks,
)
from steps.shard.readers.rows import Row, check_names, gather_batches
from trainyard.common.errors import DataError

if TYPE_CHECKING:
    from training.workloads import Column

SUFFIXES = (".txt",)
COMPRESSIBLE = True  # whether .gz or .zst may follow

COLUMN = "text"
Parse = Callable[[Block, Mapping[str, "Column"]], Batch | None]
ParseAll = Callable[[Block, Mapping[str, "Column"]], Batch]


def read(path: Path, columns: Mapping[str, "Column"]) -> Iterator[Batch]:
    """Yield the lines without their line end (a line feed, and carriage returns before it).

    A line of only ASCII white space is blank. Declared columns other than ``text`` are null.

    Raises:
        DataError: ``text`` is not declared as text or category; another column is required; errors
            of ``raw_bytes.read_windows``.
    """
    if COLUMN not in columns or columns[COLUMN].kind not in ("text", "category"):
        raise DataError(
            f"{path}: plain text has one column, 'text', of kind text or category; the workload "
            f"reads {', '.join(map(repr, columns))}: use JSON Lines, CSV or Parquet"
        )
    missing = [name for name, column in columns.items() if column.required and name != COLUMN]
    if missing:
        raise DataError(
            f"{path}: plain text has one column, 'text', and none for {missing[0]!r}, which is "
            "required; use JSON Lines, CSV or Parquet, or make the column optional in the workload"
        )
    yield from parse_lines(path, columns, parse_fast, parse_exactly)


def parse_lines(
    path: Path, columns: Mapping[str, "Column"], fast: Parse, exact: ParseAll
) -> Iterator[Batch]:
    """Yield the file's records, parsed block by block with ``fast``.

    If ``fast`` refuses a block, try smaller parts, and parse the smallest with ``exact``, line by
    line.
    """
    for block in read_line_blocks(path):
        if isinstance(block, Bad):
            yield make_bad_batch([block], columns)
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


def parse_fast(block: Block, columns: Mapping[str, "Column"]) -> Batch | None:
    """Return all records of the block, or None if one of them may be bad."""
    if not block.is_text():
        return None
    bounds = np.append(block.starts, len(block.codes)).astype(np.int32)
    lines = pa.StringArray.from_buffers(len(block.ends), pa.py_buffer(bounds), block.buffer)
    lines = pc.ascii_rtrim(lines, "\r\n")  # this makes a copy, because the block's buffer is reused
    blank = pc.or_(pc.equal(pc.binary_length(lines), 0), pc.ascii_is_space(lines))
    line_indices = np.flatnonzero(~blank.to_numpy(zero_copy_only=False))
    return Batch(_build_records(lines.take(line_indices), columns), block.first + line_indices, [])


def parse_exactly(block: Block, columns: Mapping[str, "Column"]) -> Batch:
    """Return all records, parsed line by line, with the reasons for bad ones."""
    texts, lines, bad_records = [], [], []
    for number, raw in block.iter_lines():
        if not raw.strip():
            continue
        try:
            refuse_nul(raw)
            texts.append(decode_text(raw).rstrip("\r\n"))
            lines.append(number)
        except BadRecord as error:
            bad_records.append(Bad(number, str(error), make_excerpt(raw)))
    records = _build_records(pa.array(texts, pa.string()), columns)
    return Batch(records, np.array(lines, np.int64), bad_records)


def refuse_nul(raw: bytes) -> None:
    """Raise ``BadRecord`` for a NUL byte, the sign of a truncated file or of binary data."""
    if b"\0" in raw:
        raise BadRecord(
            "contains a NUL byte; was the file truncated in writing, or is it not UTF-8 text?"
        )


def _build_records(texts: pa.StringArray, columns: Mapping[str, "Column"]) -> pa.RecordBatch:
    """Return texts as a record batch; declared columns other than ``text`` are null."""
    fields = build_schema(columns)
    arrays = [
        encode_category(texts, columns[COLUMN].kind)
        if f.name == COLUMN
        else pa.nulls(len(texts), f.type)
        for f in fields
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=fields)


# Read folders of files that are one record each: images and sounds, as in ImageFolder.
#
# A record has three columns: ``path`` (below data.input), ``bytes`` (the whole file) and
# ``label`` (the first folder of the path; in a mixture the first one below its input's folder; null
# if there is none). Its number is the file's position among those that are read together.
COLUMNS = ("path", "bytes", "label")


def read_files(
    folder: Path, names: Sequence[str], columns: Mapping[str, "Column"], depth: int = 0
) -> Iterator[Batch]:
    """Yield these files below ``folder`` as records.

    The label is the first folder of the path after the first ``depth`` ones.

    Raises:
        DataError: a declared column is not one of ``COLUMNS``; a file cannot be read.
    """
    check_names(folder / names[0], COLUMNS, columns)
    for name, column in columns.items():
        if (column.kind == "bytes") != (name == "bytes"):
            raise DataError(
                f"{folder / names[0]}: column {name!r} is declared as {column.kind}; in a whole "
                "file the column 'bytes' is bytes, and 'path' and 'label' are text or category"
            )
    rows = (
        _read_file_row(folder, number, name, columns, depth) for number, name in enumerate(names, 1)
    )
    yield from gather_batches(rows, columns)


def _read_file_row(
    folder: Path, number: int, name: str, columns: Mapping[str, "Column"], depth: int
) -> Row | Bad:
    """Return a whole file as a row, or a bad record if its size or name is not allowed."""
    path = folder / name
    try:
        if not 0 < path.stat().st_size <= raw_bytes.MAX_RECORD_BYTES:
            size = path.stat().st_size
            return Bad(
                number, f"has {size} bytes, expected 1 to {raw_bytes.MAX_RECORD_BYTES}", name
            )
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error}; copy it again") from error
    folders = name.split("/")[depth:-1]
    fields: dict[str, Any] = {"path": name.encode(), "label": "".join(folders[:1]).encode()}
    try:
        values = [
            content
            if key == "bytes"
            else require_value(key, column, convert_field(key, column, fields[key]))
            for key, column in columns.items()
        ]
    except BadRecord as error:
        return Bad(number, str(error), name)
    return Row(number, values, len(content))


# Find the ends of CSV records.
#
# A field that starts with a quote continues to the quote that closes it, over delimiters and line
# ends; ``""`` in it is a quote. What follows the closing quote, and quotes in other fields, are
# plain characters, as in Python's ``csv`` and pyarrow. This module is needed because neither of
# those tells at which byte a record ends.

QUOTE = 34
Data = bytes | bytearray
TAILS_BYTES = (64 << 10, 4 << 20)
"""Sizes of the parts at the end of a block in which to look for a record's end, in this order."""


@dataclass(frozen=True)
class Dialect:
    """Finder of record ends in CSV with a delimiter of one byte."""

    delimiter: str

    @cached_property
    def _record(self) -> re.Pattern[bytes]:
        """Return the pattern of one record with its line end.

        Its quantifiers are possessive, so that it never backtracks.
        """
        plain = f"[^{self.delimiter}\r\n]*+"
        field = f'(?>"(?:[^"]++|"")*+(?:"{plain}|(?P<open>\\Z))|{plain})'
        record = f"{field}(?:{self.delimiter}{field.replace('<open>', '<later>')})*+"
        return re.compile(f"{record}(?:\r\n|\r|\n|\\Z)".encode())

    def find_end(self, data: Data, start: int, stop: int) -> tuple[int, bool]:
        """Return (end of the record at ``start``, whether its quotes are closed there)."""
        match = self._record.match(data, start, stop)
        assert match, "the pattern also matches nothing"
        return match.end(), match.lastgroup is None

    def find_complete_end(self, data: Data, start: int, stop: int) -> int | None:
        """Return the end of the record at ``start``, or None if it may continue after ``stop``."""
        end, is_closed = self.find_end(data, start, stop)
        return end if is_closed and data[end - 1] in (LF, CR) else None

    def find_probable_end(self, data: Data, start: int, stop: int) -> int:
        """Return the last position up to ``stop`` where a record seems to end.

        Return ``start`` if none is found. The position is right if all quotes are around fields or
        in pairs. Other quotes are rare but possible (``5" nails``), so the caller has to verify it.
        """
        feed, back = (data.rfind(end, start, stop) for end in (b"\n", b"\r"))
        cut = max(feed, back, start - 1) + 1
        if data.find(b'"', start, cut) < 0:
            return cut
        codes = np.frombuffer(data, np.uint8)
        for tail in (max(start, cut - size) for size in TAILS_BYTES):
            earlier = np.count_nonzero(codes[start:tail] == QUOTE)
            quotes = np.flatnonzero(codes[tail:cut] == QUOTE)
            ends = np.flatnonzero((codes[tail:cut] == LF) | (codes[tail:cut] == CR))
            # A line end after an even number of quotes is outside of quotes.
            outside = ends[(earlier + np.searchsorted(quotes, ends)) % 2 == 0]
            if len(outside):
                return tail + int(outside[-1]) + 1
        return start

    def find_record_lines(
        self, data: Data, start: int, stop: int, first: int, count: int
    ) -> np.ndarray | None:
        """Return the line number of each record in a part that ends with a record.

        The result is int64 of shape (count,), or None if the part does not have ``count`` records.

        Args:
            first: number of the line at ``start``.
        """
        codes = np.frombuffer(data, np.uint8)[start:stop]
        if data.find(b"\r", start, stop) < 0 and np.count_nonzero(codes == LF) == count:
            return np.arange(first, first + count)
        ends = find_line_ends(data, start, stop)
        begins = _find_nonblank_lines(codes, ends)
        if len(begins) != count:  # quoted fields continue over line ends
            begins = self._find_record_starts(data, start, stop, ends)
        if len(begins) != count:
            return None
        return first + np.searchsorted(ends, begins, side="right")

    def _find_record_starts(
        self, data: Data, start: int, stop: int, ends: np.ndarray
    ) -> np.ndarray:
        """Return each record's start, from ``start``; ``ends``: positions after line ends."""
        codes = np.frombuffer(data, np.uint8)[start:stop]
        quotes = np.flatnonzero(codes == QUOTE)
        opening = quotes[::2]
        characters = codes[opening[opening > 0] - 1]
        # If each opening quote begins a field, all quotes are in pairs.
        if np.isin(characters, (ord(self.delimiter), LF, CR, QUOTE)).all():
            return _find_nonblank_lines(codes, ends[np.searchsorted(quotes, ends) % 2 == 0])
        starts, position = [], start
        while position < stop:
            if data[position] not in (LF, CR):
                starts.append(position - start)
            position, _ = self.find_end(data, position, stop)
        return np.array(starts, np.int64)

    def shorten_record(self, data: Data, start: int, stop: int) -> bytes:
        """Return a few bytes that can replace a record that has not ended yet.

        The record continues after them as it would after the original bytes.
        """
        if not self.find_end(data, start, stop)[1]:
            return b'"'  # the record is in a quoted field
        delimiter = self.delimiter.encode()
        if data[stop - 1 : stop] == delimiter:
            return b"x" + delimiter  # the record is at the start of a field
        after_quote = not self.find_end(data[start:stop] + b'"', 0, stop - start + 1)[1]
        # After a closing quote, another one would continue the quoted field. In an unquoted field,
        # a quote is a character.
        return b'""' if after_quote else b"x"


def _find_nonblank_lines(codes: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the start of each line that is not blank; ``ends``: positions after line ends."""
    begins = np.append(0, ends)
    begins = begins[begins < len(codes)]
    return begins[(codes[begins] != LF) & (codes[begins] != CR)]
