"""Find the ends of CSV records.

A field that starts with a quote goes on to the quote that closes it, over delimiters and line
ends; ``""`` in it is a quote. What follows the closing quote, and quotes in other fields, are
characters, as in Python's ``csv`` and pyarrow; neither tells where in the bytes a record ends.
"""

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from steps.shard.readers.raw_bytes import CR, LF, line_ends

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
            before = np.count_nonzero(codes[start:tail] == QUOTE)
            quotes = np.flatnonzero(codes[tail:cut] == QUOTE)
            ends = np.flatnonzero((codes[tail:cut] == LF) | (codes[tail:cut] == CR))
            outside = ends[(before + np.searchsorted(quotes, ends)) % 2 == 0]
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
        before = codes[opening[opening > 0] - 1]
        if np.isin(before, (ord(self.delimiter), LF, CR, QUOTE)).all():  # all quotes are in pairs
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
