"""Bytes on their way into the object store."""

import hashlib
import io
import os
import uuid
from pathlib import Path
from typing import BinaryIO, Self

from trainyard.emulator.storage.stored_bytes import BlockSums, StoredBytes

TRANSIT = ".transit"
"""Suffix of a file's name while no row refers to its bytes: before a put is done, and in a
delete.
"""
CHUNK = 1 << 20  # bytes copied at a time: memory stays flat whatever an object's size


class Blob:
    """Bytes on their way into the store: ``write`` them, then :meth:`ObjectStore.commit`.

    As a context manager it removes the bytes again unless they were committed.
    """

    def __init__(self, data: Path) -> None:
        self.name = uuid.uuid4().hex
        self.path = data / self.name[:2] / f"{self.name}{TRANSIT}"
        self.size = 0
        self.is_committed = False
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._sums = BlockSums()
        self.path.parent.mkdir(exist_ok=True)
        self._file = self.path.open("wb", buffering=0)

    @property
    def md5(self) -> "hashlib._Hash":
        return self._md5

    @property
    def crcs(self) -> bytes:
        return self._sums.to_bytes()

    def write(self, chunk: bytes) -> None:
        self._put(chunk)
        self._md5.update(chunk)

    def append(self, source: io.RawIOBase) -> None:
        """Append the bytes of ``source`` without their MD5: for an object whose ETag is known."""
        while chunk := source.read(CHUNK):
            self._put(chunk)

    def read(self) -> StoredBytes:
        """Open the bytes so far for reading."""
        return StoredBytes(f"an uploaded part ({self.name})", self.path, self.size, self.crcs)

    def copy_from(self, source: BinaryIO) -> None:
        while chunk := source.read(CHUNK):
            self.write(chunk)

    def _put(self, chunk: bytes) -> None:
        view = memoryview(chunk)
        while view:
            view = view[self._file.write(view) :]
        self._sums.update(chunk)
        self.size += len(chunk)

    def close(self, *, sync: bool = True) -> None:
        if not self._file.closed:
            if sync:
                os.fsync(self._file.fileno())
            self._file.close()

    def settle(self) -> None:
        """Give the bytes their final name, since a row now refers to them."""
        self.is_committed = True  # first: from now on the bytes must not be discarded
        self.path = self.path.rename(self.path.with_name(self.name))

    def discard(self) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.is_committed:
            self.discard()
