"""Hashes of a file's blocks, so that a part of it can be verified without the rest. No torch here.

Each ``shard-….safetensors`` has a ``shard-….sha256`` next to it: the SHA-256 of each 16 KiB of
it, 32 bytes each, one after the other (0.2 % of the file). The marker has the SHA-256 of these
hashes: a Merkle tree of two levels. To verify a slice, up to 16 KiB too much is read at each of
its ends.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

BLOCK = 16 * 2**10
HASH = 32  # bytes


class DamagedFile(Exception):  # noqa: N818 (a finding: the search continues with an older one)
    """A file of a checkpoint is missing or not as it was written; the message names it."""


class Source(Protocol):
    """The bytes of a file, on this machine or another."""

    def read(self, begin: int, into: memoryview) -> None:
        """Fill ``into`` with the bytes from ``begin`` on.

        Raises:
            DamagedFile: the file ends before ``into`` is full.
        """

    def close(self) -> None:
        """Close the source."""


def build_hashes_path(path: Path) -> Path:
    """Return the path of the file that holds the block hashes of ``path``."""
    return path.with_suffix(".sha256")


def hash_blocks(content: memoryview) -> bytes:
    """Return the hashes of the blocks of ``content``, which begins at a block boundary."""
    starts = range(0, len(content), BLOCK)
    return b"".join(hashlib.sha256(content[n : n + BLOCK]).digest() for n in starts)


class LocalFile:
    """A ``Source`` for a file on this machine."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = path.open("rb", buffering=0)
        except OSError as error:
            raise DamagedFile(f"{path.name} cannot be read: {error.strerror}") from None

    def read(self, begin: int, into: memoryview) -> None:
        self._file.seek(begin)
        offset = 0
        while offset < len(into):
            count = self._file.readinto(into[offset:])
            if not count:
                raise DamagedFile(f"{self._path.name} ends at byte {begin + offset}, too early")
            offset += count

    def close(self) -> None:
        self._file.close()


class VerifiedReader:
    """Read and verify parts of a file in ascending order, in whole blocks, each block once.

    Args:
        name: name of the file, for messages.
        size: size of the file as written, in bytes.
        hashes: hashes of the file's blocks.
        advance: called with the number of bytes read from the source.
    """

    def __init__(
        self,
        name: str,
        source: Source,
        size: int,
        hashes: bytes,
        advance: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._name, self._source, self._size = name, source, size
        self._hashes, self._advance = hashes, advance
        # Range of the file that is in the buffer.
        self._buffer, self._begin, self._end = bytearray(), 0, 0

    def read(self, begin: int, end: int) -> memoryview:
        """Return the bytes from ``begin`` to ``end``; the view is valid until the next call.

        Raises:
            DamagedFile: the bytes are not as they were written.
        """
        first, last = begin - begin % BLOCK, min(self._size, -(-end // BLOCK) * BLOCK)
        if not (self._begin <= first and last <= self._end):
            self._fill(first, last)
        return memoryview(self._buffer)[begin - self._begin : end - self._begin]

    def close(self) -> None:
        """Close the underlying source."""
        self._source.close()

    def _fill(self, first: int, last: int) -> None:
        """Read and verify the blocks from ``first`` to ``last``, except those already in the
        buffer.
        """
        overlap = b""
        if self._begin <= first < self._end <= last:
            overlap = bytes(memoryview(self._buffer)[first - self._begin : self._end - self._begin])
        self._buffer = bytearray(last - first)
        self._begin, self._end = first, last
        self._buffer[: len(overlap)] = overlap
        fresh = memoryview(self._buffer)[len(overlap) :]
        self._source.read(first + len(overlap), fresh)
        self._advance(len(fresh))
        number = (first + len(overlap)) // BLOCK
        expected_hashes = self._hashes[number * HASH :][: -(-len(fresh) // BLOCK) * HASH]
        hashes = hash_blocks(fresh)
        if hashes == expected_hashes:
            return
        wrong = next(
            n
            for n in range(0, len(hashes), HASH)
            if hashes[n:][:HASH] != expected_hashes[n:][:HASH]
        )
        offset = (number + wrong // HASH) * BLOCK
        raise DamagedFile(
            f"{self._name} was changed since it was written: the hash of bytes {offset} to "
            f"{min(offset + BLOCK, self._size)} does not match"
        )
