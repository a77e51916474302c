"""Read CSV and TSV with a header. They differ only in their delimiter.

``text.Dialect`` defines where a record ends: at a line feed, a carriage return, or both. Blank
lines are skipped. A record's number is that of the line in which it begins. If a quote joins
several lines to one record, and that record has another number of fields than the header, only its
first line is a bad record, and the next line is read as the beginning of another one. Otherwise a
stray quote would include the text up to the next quote.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.csv

from steps.shard.readers.batch import (
    Bad,
    Batch,
    build_parsed_schema,
    build_schema,
    combine_chunks,
    encode_category,
    make_bad_batch,
    make_excerpt,
    merge_batches,
)
from steps.shard.readers.column_values import (
    DECIMALS,
    TINY,
    BadRecord,
    build_row_batch,
    convert_column,
    convert_csv_row,
    lacks_required,
    replace_empty_texts,
    replace_infinities,
)
from steps.shard.readers.raw_bytes import (
    BOM,
    COMPRESSION,
    CR,
    EXCERPT_BYTES,
    FANOUT,
    LF,
    MAX_RECORD_BYTES,
    PIECE_BYTES,
    LineCount,
    Window,
    make_too_long_record,
    read_windows,
)
from steps.shard.readers.rows import check_names
from steps.shard.readers.text import Dialect, refuse_nul
from trainyard.common.errors import DataError

if TYPE_CHECKING:
    from training.workloads import Column

csv.field_size_limit(MAX_RECORD_BYTES)  # the default, 128 KiB, refuses good records

HEXADECIMAL = re.compile(b"0[xX]")
SUFFIXES = (".csv", ".tsv")
COMPRESSIBLE = True  # whether .gz or .zst may follow


def read(path: Path, columns: Mapping[str, "Column"]) -> Iterator[Batch]:
    """Yield the records after the header.

    Raises:
        DataError: a declared column is not in the header, or occurs in it twice; the header is not
            UTF-8 or has no end; a quote is opened and not closed in the rest of the file, which is
            longer than ``MAX_RECORD_BYTES``; errors of ``raw_bytes.read_windows``.
    """
    plain = path.with_suffix("") if path.suffix.lower() in COMPRESSION else path
    dialect = Dialect("\t" if plain.suffix.lower() == ".tsv" else ",")
    source = _end_last_line(read_windows(path))
    count = LineCount()
    for window in source:
        names = _read_header(path, dialect, window, count)
        if names:
            check_names(path, names, columns)
            table = Table(dialect, names, columns)
            yield from _parse_windows(path, table, chain([window], source), count)


def _end_last_line(source: Iterator[Window]) -> Iterator[Window]:
    """Yield the windows, with a line end added to the file's last record."""
    for window in source:
        if window.last:
            window.put(b"\n")
        yield window


def _read_header(path: Path, dialect: Dialect, window: Window, count: LineCount) -> tuple[str, ...]:
    """Return the names in the header, which is the first record that is not blank.

    The window is moved on to the next record. Return an empty tuple if the header is not in the
    window, or not as a whole.
    """
    data, begin = window.data, window.start
    while window.start < window.stop and data[window.start] in (LF, CR):
        window.start += 1
    count.add(data, begin, window.start)
    end = dialect.find_complete_end(data, window.start, window.stop) if len(window) else None
    if end is not None:
        names = _split_fields(data[window.start : end], dialect)
        count.add(data, window.start, end)
        window.start = end
        try:
            return tuple(name.decode("utf-8") for name in names)
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path}: its header has {make_excerpt(error.object)!r}, expected UTF-8; "
                "convert the file"
            ) from None
    if len(window) > (0 if window.last else MAX_RECORD_BYTES):
        start = make_excerpt(data[window.start : window.stop])[:40]
        raise DataError(
            f"{path}: its first record, the header, has no end ({start!r} …); "
            "is a quote not closed?"
        )
    return ()


def _split_fields(record: bytes | bytearray, dialect: Dialect) -> list[bytes]:
    """Return the fields of one record as bytes.

    It is decoded as Latin-1 for the parser, because that maps every byte to a character and back.
    """
    row = next(csv.reader([record.decode("latin-1")], delimiter=dialect.delimiter))
    return [field.encode("latin-1") for field in row]


def _parse_windows(
    path: Path, table: "Table", source: Iterator[Window], count: LineCount
) -> Iterator[Batch]:
    """Parse the windows; yield one batch for each window that contains records."""
    number, rest = 0, 0  # number: line in which a record that is too long begins
    # giant: beginning of a record that is too long, while its end has not been found; the window
    # then contains a few bytes instead of it (``_shorten_record``)
    giant: bytes | None = None
    for window in source:
        if len(window) < min(2 * rest, MAX_RECORD_BYTES) and not window.last:
            continue  # a large record continues: it is not parsed again after every chunk
        if giant is not None:
            end = table.dialect.find_complete_end(window.data, window.start, window.stop)
            if end is None:
                _shorten_record(window, table.dialect, count)
                continue
            yield make_bad_batch([make_too_long_record(number, giant)], table.columns)
            count.add(window.data, window.start, end)
            window.start, giant = end, None
        batch = table.parse(window, count)
        if batch.record_count:
            yield batch
        rest = len(window)
        if rest > MAX_RECORD_BYTES:
            giant = bytes(window.data[window.start : window.start + EXCERPT_BYTES])
            number = count.find_line_number(window.data, window.start)
            _shorten_record(window, table.dialect, count)
            rest = 0
    if giant is not None:
        raise DataError(
            f"{path}: the record in line {number} has a quote that is never closed, so it is "
            "unclear where records end in the rest; it starts with "
            f"{make_excerpt(giant)[:80]!r}: close it"
        )


def _shorten_record(window: Window, dialect: Dialect, count: LineCount) -> None:
    """Replace the too long record in the window by a few bytes that parse on in the same way."""
    count.add(window.data, window.start, window.stop)
    rest = dialect.shorten_record(window.data, window.start, window.stop)
    window.start = window.stop
    window.put(rest)


class StrayQuote(BadRecord):
    """Error about a quote that probably includes lines by mistake; only its first line is bad."""


@dataclass(frozen=True)
class Table:
    """Parser of the records below a header."""

    dialect: Dialect
    names: tuple[str, ...]
    columns: Mapping[str, "Column"]

    def parse(self, window: Window, count: LineCount) -> Batch:
        """Return the records in the window, and count its lines.

        The window moves on over the records. It then contains only the beginning of a record, or
        nothing if it is the last window. If the fast parser refuses a part of the window, a smaller
        part is tried; one that is small already is read record by record.
        """
        batches, size = [], len(window)
        while len(window):
            start, stop = window.start, min(window.start + size, window.stop)
            end = self.dialect.find_probable_end(window.data, start, stop)
            line = count.find_line_number(window.data, start)
            batch = self.parse_fast(window.data, start, end, line)
            if batch is not None:
                count.add(window.data, start, end)
                window.start, size = end, 2 * size
            elif size > PIECE_BYTES:
                size = max(size // FANOUT, PIECE_BYTES)
                continue
            else:
                batch = self.parse_exactly(window, count, stop)
            # Only the beginning of a record is left. It waits for the next window.
            if window.start == start:
                break
            if batch.record_count:
                batches.append(batch)
        return merge_batches(batches) if batches else make_bad_batch([], self.columns)

    def parse_fast(self, data: bytearray, start: int, stop: int, line: int) -> Batch | None:
        """Return all records of ``data[start:stop]``, which begins in line number ``line``.

        Return None if a record may be bad, or may continue after ``stop``.
        """
        if not 0 < stop - start <= MAX_RECORD_BYTES or data.find(b"\0", start, stop) >= 0:
            return None
        # A byte order mark is dropped only at the file's start. Elsewhere it is a character, but
        # pyarrow would drop it at the start of this part.
        if data.startswith(BOM, start):
            return None
        try:
            table = self._parse(data, start, stop)
        except ValueError:  # pa.ArrowInvalid, or its message is not UTF-8
            return None
        arrays = []
        for name, column in self.columns.items():
            # Missing values become null: empty text, and numbers that are not finite.
            array = combine_chunks(table[name])
            if array.type == pa.float64():
                array = replace_infinities(array)
            elif array.type == pa.string():
                array = replace_empty_texts(array)
            array, reasons = convert_column(name, column, array)
            if reasons:
                return None
            arrays.append(encode_category(array, column.kind))
        records = pa.RecordBatch.from_arrays(arrays, schema=build_schema(self.columns))
        if lacks_required(records, self.columns):
            return None
        # If pyarrow found another number of records than the dialect, a quote may have included
        # lines.
        lines = self.dialect.find_record_lines(data, start, stop, line, len(records))
        return None if lines is None else Batch(records, lines, [])

    def _parse(self, data: bytearray, start: int, stop: int) -> pa.Table:
        """Return the part's records, parsed by pyarrow; raise ``ValueError`` if one may be bad."""
        plain, decimals = (
            build_parsed_schema(self.columns),
            build_parsed_schema(self.columns, DECIMALS),
        )
        if plain == decimals:
            return self._parse_as(plain, data, start, stop)
        try:
            table = self._parse_as(plain, data, start, stop)
        except pa.ArrowInvalid:  # perhaps integers that are written as floats, such as 12.0
            if TINY.search(data, start, stop):
                raise
            return self._parse_as(decimals, data, start, stop)
        if HEXADECIMAL.search(data, start, stop):  # pyarrow takes 0x1F for an integer
            self._parse_as(decimals, data, start, stop)
        return table

    def _parse_as(self, fields: pa.Schema, data: bytearray, start: int, stop: int) -> pa.Table:
        """Parse the part as one block with the types of ``fields``. Raises as ``_parse``."""
        part = memoryview(data)[start:stop]
        probe = self._probe if data.find(b'"', start, stop) >= 0 else b""
        table = pyarrow.csv.read_csv(
            pa.BufferReader(b"".join([part, probe]) if probe else part),
            pyarrow.csv.ReadOptions(
                use_threads=False,
                block_size=stop - start + len(probe) + 1,
                column_names=self._unique_names,
            ),
            pyarrow.csv.ParseOptions(delimiter=self.dialect.delimiter),
            pyarrow.csv.ConvertOptions(column_types=fields, include_columns=list(self.columns)),
        )
        return table.slice(0, len(table) - 1) if probe else table

    @cached_property
    def _unique_names(self) -> list[str]:
        """Return the header's names, with a unique placeholder for each that is not declared."""
        return [name if name in self.columns else f"\0{i}" for i, name in enumerate(self.names)]

    @cached_property
    def _probe(self) -> bytes:
        """Return a record to append, which shows whether the records before it are complete.

        pyarrow treats a quote that is open at the end of the data as closed. If a quote is open,
        this record closes it and adds more fields than there may be, which pyarrow refuses. It
        needs a column that is not a number. If all are numbers it is empty, and quoted line ends
        are refused anyway.
        """
        count = len(self.names)
        for i, name in enumerate(self.names):
            if name not in self.columns or self.columns[name].kind != "number":
                start, middle, rest = (
                    self.dialect.delimiter * n for n in (i, count, count - 1 - i)
                )
                return f'{start}"x{middle}x"{rest}\n'.encode()
        return b""

    def parse_exactly(self, window: Window, count: LineCount, stop: int) -> Batch:
        """Return the records that begin before ``stop``, parsed one by one, with the bad ones."""
        rows: list[list] = []
        lines: list[int] = []
        bad_records: list[Bad] = []
        while window.start < stop:
            end = self.dialect.find_complete_end(window.data, window.start, window.stop)
            if end is None and not window.last:
                break
            raw = bytes(window.data[window.start : end or window.stop])
            line = count.find_line_number(raw, 0)
            if raw.strip(b"\r\n"):
                try:
                    rows.append(self._parse_row(raw, is_closed=end is not None))
                    lines.append(line)
                except BadRecord as error:
                    raw = _get_first_line(raw) if isinstance(error, StrayQuote) else raw
                    bad_records.append(Bad(line, str(error), make_excerpt(raw)))
            count.add(raw, 0, len(raw))
            window.start += len(raw)
        return Batch(build_row_batch(rows, self.columns), np.array(lines, np.int64), bad_records)

    def _parse_row(self, raw: bytes, is_closed: bool) -> list:
        """Return the declared columns of one record; raise ``BadRecord`` if it cannot be used."""
        if not is_closed:
            raise StrayQuote("a quote is never closed")
        if len(raw.rstrip(b"\r\n")) > MAX_RECORD_BYTES:
            raise BadRecord(make_too_long_record(0, raw).reason)
        fields = _split_fields(raw, self.dialect)
        if len(fields) != len(self.names):
            reason = f"has {len(fields)} fields, the header has {len(self.names)}"
            if len(_get_first_line(raw)) < len(raw):
                raise StrayQuote(f"{reason}; a quoted field in it continues over line ends")
            raise BadRecord(reason)
        refuse_nul(raw)
        return convert_csv_row([fields[i] for i in self._column_positions], self.columns)

    @cached_property
    def _column_positions(self) -> list[int]:
        """Return the position of each declared column in the header."""
        return [self.names.index(name) for name in self.columns]


def _get_first_line(raw: bytes) -> bytes:
    """Return the first line, including its line end."""
    return next(iter(raw.splitlines(keepends=True)), b"")
