"""The files in an archive of code, read in memory: nothing is unpacked, no name is followed.

Whoever made the archive decides what it says of itself: it may unpack to more than any disk holds,
name files outside of it, or be no archive. Only regular files count, and each limit below holds for
what was really read.
"""

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
_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class Mark:
    """What tells one content of a file from another."""

    size: int
    digest: str
    """SHA-256 of the content, or S3's ETag of it."""


@dataclass(frozen=True, slots=True)
class Contents:
    """The files of an archive or a folder, by their names in it."""

    files: dict[str, Mark]
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
    found: dict[str, Mark] = {}
    try:
        for name, stream in _members(archive):
            if len(found) == MOST_FILES:
                return Contents(found, f"only its first {MOST_FILES:,} files were read")
            found[name] = _mark(stream)
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
                    yield normal(member.name), opened


def _mark(stream: IO[bytes]) -> Mark:
    digest, size = hashlib.sha256(), 0
    while block := stream.read(_AT_ONCE):
        digest.update(block)
        size += len(block)
    return Mark(size, digest.hexdigest())


def normal(name: str) -> str:
    """A member's name without a leading ``./``: archives of the same folder have it or not."""
    while name.startswith("./"):
        name = name[2:]
    return name


def sha256(content: bytes) -> str:
    """What ``Mark.digest`` is of a content that was read."""
    return hashlib.sha256(content).hexdigest()
