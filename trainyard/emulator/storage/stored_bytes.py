"""The bytes of the store's files: none leaves the store before it agrees with what the index kept.

A disk, a copy of the state that was cut off, or another program may damage any file. A job must not
train on that, and a copy must not give it a good checksum.
"""

import io
import logging
import os
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainyard.emulator.api import S3Error

log = logging.getLogger(__name__)

BLOCK = 1 << 20  # bytes that one CRC-32 is about
_CHECK_AHEAD = 8 * BLOCK  # bytes that are checked before an answer begins: a range of most clients


class BlockSums:
    """The CRC-32 of each block of the bytes so far."""

    def __init__(self) -> None:
        self._size, self._crcs = 0, array("I")

    def update(self, chunk: bytes) -> None:
        view = memoryview(chunk)
        while view:
            if self._size % BLOCK == 0:
                self._crcs.append(0)
            piece = view[: BLOCK - self._size % BLOCK]
            self._crcs[-1] = zlib.crc32(piece, self._crcs[-1])
            self._size += len(piece)
            view = view[len(piece) :]

    def to_bytes(self) -> bytes:
        return self._crcs.tobytes()


class StoredBytes(io.RawIOBase):
    """A file of the store, open for reading; an overwrite or delete of its key does not affect it.

    Args:
        name: what the bytes are, for errors: ``s3://bucket/key``.
        size: bytes that were put.
        crcs: ``BlockSums.packed`` of them.

    Every method raises S3's ``InternalError`` where the file is damaged.
    """

    def __init__(self, name: str, path: Path, size: int, crcs: bytes) -> None:
        self._name, self._path, self._size, self._fd = name, path, size, -1
        self._crcs = array("I", crcs)
        self._position = 0
        self._block: tuple[int, bytes] = (-1, b"")
        try:
            self._fd = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            raise self._damage_error(f"{size:,} bytes expected, no file found") from None
        self._check_size(os.fstat(self._fd).st_size)

    def chunks(self, start: int, stop: int) -> Iterator[bytes]:
        """Iterate over the bytes from ``start`` to ``stop``, at most a block at a time."""
        while start < stop:
            place = start % BLOCK
            piece = self._read_block(start // BLOCK)[place : place + stop - start]
            yield piece
            start += len(piece)

    def verify(self, start: int, stop: int) -> None:
        """Check the first MB of a range, while an error can still be the answer."""
        for _ in self.chunks(start, min(stop, start + _CHECK_AHEAD)):
            pass

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        data = next(self.chunks(self._position, min(self._size, self._position + len(view))), b"")
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
        super().close()

    def _read_block(self, number: int) -> bytes:
        if self._block[0] != number:
            data = os.pread(self._fd, BLOCK, number * BLOCK)
            if len(data) < min(BLOCK, self._size - number * BLOCK):
                self._check_size(number * BLOCK + len(data))
            if zlib.crc32(data) != self._crcs[number]:
                first, last = number * BLOCK, number * BLOCK + len(data)
                raise self._damage_error(
                    f"its {self._size:,} bytes are not those that were put, from {first:,} to "
                    f"{last:,}: CRC-32 {self._crcs[number]:08x} expected, "
                    f"{zlib.crc32(data):08x} found"
                )
            self._block = number, data
        return self._block[1]

    def _check_size(self, actual: int) -> None:
        if actual != self._size:
            self.close()
            raise self._damage_error(f"{self._size:,} bytes expected, {actual:,} found")

    def _damage_error(self, reason: str) -> S3Error:
        log.error("%s is damaged: %s in %s", self._name, reason, self._path)
        return S3Error(
            "InternalError",
            f"We encountered an internal error. Please try again. {self._name} is damaged: "
            f"{reason}; "
            "put it again, or run the step again that wrote it",
            500,
        )
