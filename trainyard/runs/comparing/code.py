"""The files of a step's code, and how two versions of one differ.

An archive is read in memory: nothing is unpacked, no name is followed.

Whoever made the archive decides what it says of itself: it may unpack to more than any disk holds,
name files outside of it, or be no archive. Only regular files count, and each limit below holds for
what was really read.
"""

import difflib
import gzip
import hashlib
import io
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

LARGEST = 20_000_000
"""Bytes of an archive that are downloaded at most."""
LARGEST_TEXT = 1_000_000
"""Bytes of a file that are shown as text at most."""
UNPACKED = 50_000_000
"""Bytes that an archive may unpack to; what comes behind them is not looked at."""
MOST_FILES = 5_000

CONTEXT = 3
MOST_LINES = 4_000
"""Lines of a diff that are shown."""
LONGEST_LINE = 2_000
"""Characters of a line that are shown."""
MOST_PAIRS = 25_000_000
"""Lines of one side times lines of the other that are lined up: difflib's time may grow with it."""


@dataclass(frozen=True, slots=True)
class Contents:
    """The files of an archive or a folder: name → SHA-256 of the content, or its ETag."""

    files: dict[str, str]
    fault: str = ""
    """Why there may be more than these."""


class _Bounded(io.RawIOBase):
    """A stream that ends with an error after so many bytes."""

    def __init__(self, inner: io.BufferedIOBase, most: int) -> None:
        self._inner, self._left = inner, most

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > self._left:
            size = self._left + 1
        found = self._inner.read(size)
        self._left -= len(found)
        if self._left < 0:
            raise tarfile.ReadError(f"it unpacks to more than {UNPACKED:,} bytes")
        return found


FAULTS = (tarfile.TarError, zlib.error, EOFError, OSError, ValueError, OverflowError)
"""What reading a broken archive raises."""


def contents(archive: bytes) -> Contents:
    """The regular files of a ``.tar.gz``, and what kept others from being read."""
    found: dict[str, str] = {}
    try:
        for name, stream in _members(archive):
            if len(found) == MOST_FILES:
                return Contents(found, f"only its first {MOST_FILES:,} files were read")
            found[name] = hashlib.sha256(stream.read()).hexdigest()
    except FAULTS as error:
        return Contents(found, f"the archive cannot be read to its end: {error}")
    return Contents(found)


def file(archive: bytes, wanted: str) -> bytes | None:
    """The content of one file, as far as it can be shown; None where there is none of that name."""
    content = None
    try:
        for name, stream in _members(archive):
            if name == wanted:  # of two with one name the later one is what unpacking leaves
                content = stream.read(LARGEST_TEXT + 1)
    except FAULTS:  # what was found before it stands
        return content
    return content


def _members(archive: bytes) -> Iterator[tuple[str, IO[bytes]]]:
    packed = archive[:2] == b"\x1f\x8b"
    raw = io.BytesIO(archive)
    stream = _Bounded(gzip.GzipFile(fileobj=raw) if packed else raw, UNPACKED)
    with tarfile.open(fileobj=stream, mode="r|", errors="replace") as tar:
        for member in tar:
            if member.isreg() and not member.issparse():
                opened = tar.extractfile(member)
                if opened is not None:
                    yield member.name.removeprefix("./"), opened


@dataclass(frozen=True, slots=True)
class Diff:
    """How a file's two versions differ."""

    lines: tuple[str, ...] = ()
    """Of a unified diff, behind its first two."""
    note: str = ""
    """What is not shown, and why."""


def diff(old: bytes | None, new: bytes | None) -> Diff:
    """What changed from ``old`` to ``new``; None: there was no such file."""
    sides: list[list[str]] = []
    for content in (old or b"", new or b""):
        if len(content) > LARGEST_TEXT:
            return Diff(note=f"a version has more than {LARGEST_TEXT:,} bytes")
        try:
            sides.append(content.decode().split("\n") if content else [])
        except UnicodeDecodeError:
            return Diff(note="a binary file")
    if b"\0" in (old or b"") + (new or b""):
        return Diff(note="a binary file")
    if len(sides[0]) * len(sides[1]) > MOST_PAIRS:
        return Diff(note="the versions are too long to be lined up")
    found = list(difflib.unified_diff(sides[0], sides[1], n=CONTEXT, lineterm=""))[2:]
    more = len(found) - MOST_LINES
    note = f"{more:,} further lines of the difference are not shown" if more > 0 else ""
    return Diff(tuple(line[:LONGEST_LINE] for line in found[:MOST_LINES]), note)
