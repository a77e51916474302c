"""Read the bytes of a raw file, decompressed, in chunks or in blocks of whole lines."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from steps.shard.readers.batch import Bad, make_excerpt
from trainyard.common.errors import DataError

CHUNK_BYTES = 4 << 20
"""Bytes of raw data, after decompression, that are processed at a time. Larger chunks do not fit
into the processor's caches, so pyarrow parses them more slowly."""

FANOUT = 16
"""If the fast parser refuses a part of a file, try its first 1/FANOUT next, and so on."""

PIECE_BYTES = 16 << 10
"""Minimum bytes of such a part. A part of this size that is refused is read record by record."""

MAX_RECORD_BYTES = 64 << 20
"""Maximum bytes of a record. A longer one is bad, and is skipped without being kept in memory."""

EXCERPT_BYTES = 4096
"""Bytes that are kept of a record that is too long."""

BOM = b"\xef\xbb\xbf"
LF, CR = 10, 13
COMPRESSION = {".gz": "gzip", ".zst": "zstd"}
FOREIGN = {
    b"\xff\xfe": ("UTF-16 or UTF-32 text", "convert it to UTF-8: iconv -f UTF-16 -t UTF-8"),
    b"\xfe\xff": ("UTF-16 text", "convert it to UTF-8: iconv -f UTF-16 -t UTF-8"),
    b"\x00\x00\xfe\xff": ("UTF-32 text", "convert it to UTF-8: iconv -f UTF-32 -t UTF-8"),
    b"\x1f\x8b": ("gzip data", "add .gz to its name"),
    b"\x28\xb5\x2f\xfd": ("Zstandard data", "add .zst to its name"),
}
"""Mapping of the first bytes of a file whose content does not match its name to (actual content,
remedy).
"""


@dataclass
class Window:
    """Part of a file that is being read: ``data[start:stop]``.

    One buffer is used for the whole file, so anything that is kept has to be copied out of it.
    """

    data: bytearray
    start: int = 0
    """Start of the unread part. The caller moves it on."""

    stop: int = 0
    last: bool = False
    """True if the file ends at ``stop``."""

    def __len__(self) -> int:
        return self.stop - self.start

    def put(self, content: bytes) -> None:
        """Move the unread part to the beginning of the buffer, and append ``content`` to it."""
        self._make_room(len(content))
        self.data[self.stop : self.stop + len(content)] = content
        self.stop += len(content)

    def fill(self, stream: pa.NativeFile) -> None:
        """Add up to ``CHUNK_BYTES`` of the stream after the unread part."""
        self._make_room(CHUNK_BYTES)
        with memoryview(self.data) as view:
            read = stream.readinto(view[self.stop : self.stop + CHUNK_BYTES])
        self.stop += read
        self.last = read == 0

    def _make_room(self, size: int) -> None:
        """Move the unread part to the beginning, and make room for ``size`` bytes after it."""
        rest = self.data[self.start : self.stop]
        if len(rest) + size > len(self.data):
            # Allocate twice the size, so that a growing record rarely needs a new buffer.
            self.data = bytearray(2 * (len(rest) + size))
        self.data[: len(rest)] = rest
        self.start, self.stop = 0, len(rest)


def find_line_ends(data: bytes | bytearray, start: int, stop: int) -> np.ndarray:
    """Return the position after each line end in ``data[start:stop]``, from ``start``, int64.

    A line ends with a line feed, a carriage return, or both.
    """
    codes = np.frombuffer(data, np.uint8)[start:stop]
    ends = np.flatnonzero((codes == LF) | (codes == CR)) + 1
    inner = ends[ends < stop - start]
    split = (codes[inner - 1] == CR) & (codes[inner] == LF)
    return np.concatenate([inner[~split], ends[len(inner) :]])


@dataclass
class LineCount:
    """Counter of the lines of a file that is read in parts."""

    next: int = 1
    """Number of the line in which the next part begins."""
    _ends_in_return: bool = False
    """Whether the previous part ended with a carriage return, so that its line feed may follow."""

    def find_line_number(self, data: bytes | bytearray, start: int) -> int:
        """Return the number of the line at ``start``, the position where the next part begins."""
        return self.next - (self._ends_in_return and data[start] == LF)

    def add(self, data: bytes | bytearray, start: int, stop: int) -> None:
        """Count the lines of the next part."""
        if start == stop:
            return
        if data.find(b"\r", start, stop) >= 0:
            ends = len(find_line_ends(data, start, stop))
        else:
            ends = int(np.count_nonzero(np.frombuffer(data, np.uint8)[start:stop] == LF))
        self.next = self.find_line_number(data, start) + ends
        self._ends_in_return = data[stop - 1] == CR


def read_windows(path: Path) -> Iterator[Window]:
    """Yield one and the same window repeatedly, each time with the next decompressed chunk.

    A byte order mark at the file's start is dropped. At least one window is yielded. The last one
    contains only what the caller left unread of the previous one.

    Raises:
        DataError: the file cannot be opened; is truncated or damaged (according to gzip or
            Zstandard); is UTF-16, UTF-32, or compressed without the matching suffix.
    """
    compression = COMPRESSION.get(path.suffix.lower())
    window = Window(bytearray(2 * CHUNK_BYTES))
    try:
        with pa.input_stream(str(path), compression=compression, buffer_size=None) as stream:
            window.fill(stream)
            for magic, (format_name, remedy) in FOREIGN.items():
                if window.data.startswith(magic):
                    raise DataError(f"{path}: holds {format_name}, expected UTF-8 text; {remedy}")
            window.start = len(BOM) if window.data.startswith(BOM, 0, window.stop) else 0
            yield window
            while not window.last:
                window.fill(stream)
                yield window
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{path}: cannot be read to its end ({error}); it was truncated, damaged, or is not "
            f"{compression or 'a readable file'}: create it again, or copy it again"
        ) from error


@dataclass(frozen=True)
class Block:
    """Whole lines of a file. At the end of the file, the last one may have no line feed.

    ``data`` may be the buffer of a window, so a block is valid only until the next one is read.
    """

    data: bytes | bytearray
    start: int
    stop: int

    first: int
    """Line number of the first line."""

    @cached_property
    def codes(self) -> np.ndarray:
        """Return the lines as uint8 of shape (bytes,), without a copy."""
        return np.frombuffer(self.data, np.uint8)[self.start : self.stop]

    @cached_property
    def ends(self) -> np.ndarray:
        """Return int64 of shape (lines,): the position in ``codes`` of each line's line feed."""
        feeds = np.flatnonzero(self.codes == LF)
        is_whole = self.codes[-1] == LF
        return feeds if is_whole else np.append(feeds, len(self.codes))

    @cached_property
    def starts(self) -> np.ndarray:
        """Return int64 of shape (lines,): the position in ``codes`` of each line's start."""
        return np.concatenate([[0], self.ends[:-1] + 1])

    @property
    def buffer(self) -> pa.Buffer:
        """Return the lines as an Arrow buffer, without a copy."""
        return pa.py_buffer(memoryview(self.data)[self.start : self.stop])

    def is_text(self) -> bool:
        """Return whether the whole block is UTF-8 and has no NUL bytes."""
        if self.data.find(b"\0", self.start, self.stop) >= 0:
            return False
        bounds = pa.py_buffer(np.array([0, len(self.codes)], np.int32))
        try:  # of several ways to check UTF-8, this one does not copy
            pa.StringArray.from_buffers(1, bounds, self.buffer).validate(full=True)
        except pa.ArrowInvalid:
            return False
        return True

    def iter_lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the number and content of each line, without its line feed."""
        bounds = zip(self.start + self.starts, self.start + self.ends, strict=True)
        for number, (start, end) in enumerate(bounds, self.first):
            yield number, bytes(self.data[start:end])

    def cut(self, size: int) -> tuple["Block", "Block"]:
        """Split the block at the first line end at or after ``size`` bytes; return both parts."""
        end = self.data.find(b"\n", self.start + size - 1, self.stop) + 1
        head = Block(self.data, self.start, end, self.first) if 0 < end < self.stop else self
        return head, Block(self.data, head.stop, self.stop, self.first + len(head.ends))


def read_line_blocks(path: Path) -> Iterator[Block | Bad]:
    """Yield the file in blocks of whole lines; a line that is too long is yielded as a ``Bad``.

    A block is about one chunk, or one line. Lines end at line feeds. Raises the errors of
    ``read_windows``.
    """
    number, giant = 1, None  # giant: beginning of a line that is too long and has not ended yet
    for window in read_windows(path):
        end = window.data.find(b"\n", window.start, window.stop)
        if giant is None and end - window.start > MAX_RECORD_BYTES:
            giant = _copy_excerpt(window)
        if giant is not None:
            window.start = end + 1 if end >= 0 else window.stop
            if end < 0 and not window.last:
                continue
            yield make_too_long_record(number, giant)
            number, giant = number + 1, None
        cut = (
            window.stop if window.last else window.data.rfind(b"\n", window.start, window.stop) + 1
        )
        if cut > window.start:
            block = Block(window.data, window.start, cut, number)
            yield block
            number, window.start = number + len(block.ends), cut
        if len(window) > MAX_RECORD_BYTES:
            giant, window.start = _copy_excerpt(window), window.stop


def _copy_excerpt(window: Window) -> bytes:
    return bytes(window.data[window.start : window.start + EXCERPT_BYTES])


def make_too_long_record(number: int, start: bytes) -> Bad:
    """Return the ``Bad`` of a record that is too long; ``start``: the record's first bytes."""
    return Bad(number, f"longer than {MAX_RECORD_BYTES} bytes", make_excerpt(start))
