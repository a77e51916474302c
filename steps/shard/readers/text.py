"""Read plain text: each line that is not blank is a record, with one column ``text``."""

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
    bad_batch,
    encode_category,
    excerpt,
    merge_batches,
    schema,
)
from steps.shard.readers.column_values import BadRecord, decode_text, field_value, require_value
from steps.shard.readers.raw_bytes import CR, FANOUT, LF, PIECE_BYTES, Block, line_blocks, line_ends
from steps.shard.readers.rows import Row, batches, check_names
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


# Read folders of files, each a record: images and sounds, as in ImageFolder.
#
# A record has three columns: ``path`` (below data.input), ``bytes`` (all of the file) and
# ``label`` (the first folder of the path, in a mixture the one below its input's; none for a file
# in no folder). Its number is the file's place among those that are read together.
COLUMNS = ("path", "bytes", "label")


def read_files(
    folder: Path, names: Sequence[str], columns: Mapping[str, "Column"], depth: int = 0
) -> Iterator[Batch]:
    """Yield these files below ``folder``; the label is the folder below the first ``depth`` ones.

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
    rows = (_row(folder, number, name, columns, depth) for number, name in enumerate(names, 1))
    yield from batches(rows, columns)


def _row(
    folder: Path, number: int, name: str, columns: Mapping[str, "Column"], depth: int
) -> Row | Bad:
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
            else require_value(key, column, field_value(key, column, fields[key]))
            for key, column in columns.items()
        ]
    except BadRecord as error:
        return Bad(number, str(error), name)
    return Row(number, values, len(content))


# Find the ends of CSV records.
#
# A field that starts with a quote goes on to the quote that closes it, over delimiters and line
# ends; ``""`` in it is a quote. What follows the closing quote, and quotes in other fields, are
# characters, as in Python's ``csv`` and pyarrow; neither tells where in the bytes a record ends.

QUOTE = 34
Data = bytes | bytearray
TAILS_BYTES = (64 << 10, 4 << 20)
"""Sizes of the parts of a block in which to look for the end of a record, one after the other."""


@dataclass(frozen=True)
class Dialect:
    """CSV with this delimiter, of one byte."""

    delimiter: str

    @cached_property
    def _record(self) -> re.Pattern[bytes]:
        """Return the pattern of one record with its line end. It is possessive: it never
        backtracks.
        """
        plain = f"[^{self.delimiter}\r\n]*+"
        field = f'(?>"(?:[^"]++|"")*+(?:"{plain}|(?P<open>\\Z))|{plain})'
        record = f"{field}(?:{self.delimiter}{field.replace('<open>', '<later>')})*+"
        return re.compile(f"{record}(?:\r\n|\r|\n|\\Z)".encode())

    def end(self, data: Data, start: int, stop: int) -> tuple[int, bool]:
        """Return the end of the record at ``start``, and whether its quotes are closed by then."""
        match = self._record.match(data, start, stop)
        assert match, "the pattern also matches nothing"
        return match.end(), match.lastgroup is None

    def complete(self, data: Data, start: int, stop: int) -> int | None:
        """Return the end of the record at ``start``; None when it may go on after ``stop``."""
        end, is_closed = self.end(data, start, stop)
        return end if is_closed and data[end - 1] in (LF, CR) else None

    def probable_end(self, data: Data, start: int, stop: int) -> int:
        """Return the last place up to ``stop`` where a record seems to end; ``start`` if none is
        found.

        It ends there if all quotes stand around fields or in pairs. Other quotes are rare, but
        possible (``5" nails``), so this is to be verified.
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
            # After an even number of quotes a line end is outside of them.
            outside = ends[(earlier + np.searchsorted(quotes, ends)) % 2 == 0]
            if len(outside):
                return tail + int(outside[-1]) + 1
        return start

    def places(
        self, data: Data, start: int, stop: int, first: int, count: int
    ) -> np.ndarray | None:
        """Return the line of each of ``count`` records in a part that ends with one, int64 of shape
        (count,); None if the records in it are not that many.

        Args:
            first: number of the line at ``start``.
        """
        codes = np.frombuffer(data, np.uint8)[start:stop]
        if data.find(b"\r", start, stop) < 0 and np.count_nonzero(codes == LF) == count:
            return np.arange(first, first + count)
        ends = line_ends(data, start, stop)
        begins = _not_blank(codes, ends)
        if len(begins) != count:  # quoted fields go on over line ends
            begins = self._begins(data, start, stop, ends)
        if len(begins) != count:
            return None
        return first + np.searchsorted(ends, begins, side="right")

    def _begins(self, data: Data, start: int, stop: int, ends: np.ndarray) -> np.ndarray:
        """Return where records begin in a part, counted from ``start``; ``ends``: of its lines."""
        codes = np.frombuffer(data, np.uint8)[start:stop]
        quotes = np.flatnonzero(codes == QUOTE)
        opening = quotes[::2]
        characters = codes[opening[opening > 0] - 1]
        # Each opening quote begins a field, so all quotes are in pairs.
        if np.isin(characters, (ord(self.delimiter), LF, CR, QUOTE)).all():
            return _not_blank(codes, ends[np.searchsorted(quotes, ends) % 2 == 0])
        starts, place = [], start
        while place < stop:
            if data[place] not in (LF, CR):
                starts.append(place - start)
            place, _ = self.end(data, place, stop)
        return np.array(starts, np.int64)

    def shorten_record(self, data: Data, start: int, stop: int) -> bytes:
        """Return a few bytes that can replace the record so far: it goes on alike after them, and
        does not end.
        """
        if not self.end(data, start, stop)[1]:
            return b'"'  # in a quoted field
        delimiter = self.delimiter.encode()
        if data[stop - 1 : stop] == delimiter:
            return b"x" + delimiter  # at the start of a field
        after_quote = not self.end(data[start:stop] + b'"', 0, stop - start + 1)[1]
        return b'""' if after_quote else b"x"  # or in a field, where a quote is a character


def _not_blank(codes: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return where lines begin that are not blank, of a part whose lines end at ``ends``."""
    begins = np.append(0, ends)
    begins = begins[begins < len(codes)]
    return begins[(codes[begins] != LF) & (codes[begins] != CR)]
