"""The object store's directory: its lock, the seal of its index, and files without a row.

When the emulator stops, it seals the index: it writes size and CRC-32 of the index file, and the
next start compares them. A killed emulator leaves no seal; then SQLite checks the file, and every
row is read.

A file in ``data/`` whose name ends with TRANSIT is being written or deleted, so no row refers to
it. Every other file there contains the bytes of an object; if it has no row, the index has lost
rows, and the start is refused. Nothing is deleted here.
"""

import contextlib
import fcntl
import hashlib
import io
import logging
import os
import sqlite3
import uuid
import zlib
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Self

from trainyard.common import atomic_file
from trainyard.common.errors import EmulatorError
from trainyard.emulator.request_scope import S3Error
from trainyard.emulator.s3.object_index import INDEX, Index

# The bytes of the store's files. They are returned only if they agree with the CRCs in the index.
#
# A disk, an incomplete copy of the state, or another program may damage any file. A job must not
# train on damaged data, and a copy must not give them a valid checksum.

log = logging.getLogger(__name__)

BLOCK = 1 << 20  # bytes per CRC-32
_CHECK_AHEAD = 8 * BLOCK  # bytes checked before a response starts: most clients' range is smaller


class BlockSums:
    """The CRC-32 of each block of the bytes passed to ``update``."""

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
        """Return the CRCs as bytes: one unsigned int in native order per block."""
        return self._crcs.tobytes()


class StoredBytes(io.RawIOBase):
    """A file of the store, open for reading; overwriting or deleting its key does not affect it.

    Every method raises S3's ``InternalError`` if the file is damaged.

    Args:
        name: what the bytes are, for errors: ``s3://bucket/key``.
        path: the file.
        size: number of bytes that were put.
        crcs: result of ``BlockSums.to_bytes`` for them.
    """

    def __init__(self, name: str, path: Path, size: int, crcs: bytes) -> None:
        self._name, self._path, self._size, self._fd = name, path, size, -1
        self._crcs = array("I", crcs)
        self._position = 0
        self._block: tuple[int, bytes] = (-1, b"")
        try:
            self._fd = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            raise self._make_damage_error(f"{size:,} bytes expected, no file found") from None
        self._check_size(os.fstat(self._fd).st_size)

    def iter_chunks(self, start: int, stop: int) -> Iterator[bytes]:
        """Iterate over the bytes from ``start`` to ``stop``, at most one block at a time."""
        while start < stop:
            offset = start % BLOCK
            piece = self._read_block(start // BLOCK)[offset : offset + stop - start]
            yield piece
            start += len(piece)

    def verify(self, start: int, stop: int) -> None:
        """Check the first ``_CHECK_AHEAD`` bytes of a range, before a response is started."""
        for _ in self.iter_chunks(start, min(stop, start + _CHECK_AHEAD)):
            pass

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        data = next(
            self.iter_chunks(self._position, min(self._size, self._position + len(view))), b""
        )
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
        """Return the block with that number, after checking its CRC-32."""
        # The last checked block is kept, because readers ask for pieces smaller than a block.
        if self._block[0] != number:
            data = os.pread(self._fd, BLOCK, number * BLOCK)
            if len(data) < min(BLOCK, self._size - number * BLOCK):
                self._check_size(number * BLOCK + len(data))
            if zlib.crc32(data) != self._crcs[number]:
                first, last = number * BLOCK, number * BLOCK + len(data)
                raise self._make_damage_error(
                    f"its {self._size:,} bytes are not those that were put, from {first:,} to "
                    f"{last:,}: CRC-32 {self._crcs[number]:08x} expected, "
                    f"{zlib.crc32(data):08x} found"
                )
            self._block = number, data
        return self._block[1]

    def _check_size(self, actual: int) -> None:
        if actual != self._size:
            self.close()
            raise self._make_damage_error(f"{self._size:,} bytes expected, {actual:,} found")

    def _make_damage_error(self, reason: str) -> S3Error:
        log.error("%s is damaged: %s in %s", self._name, reason, self._path)
        return S3Error(
            "InternalError",
            f"We encountered an internal error. Please try again. {self._name} is damaged: "
            f"{reason}; put it again, or run the step again that wrote it",
            500,
        )


_INTERRUPTED_FOLDER, _UNKNOWN = "interrupted", "unknown"
SEAL = "index.seal"
"""Name of the file with size and CRC-32 of the index; it exists while no emulator is running."""


def lock_folder(root: Path) -> int:
    """Lock the directory; return the descriptor of the lock.

    Raises EmulatorError if another process has locked it.
    """
    # The lock ends with the process, so that a killed emulator leaves no lock.
    fd = os.open(root / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise EmulatorError(
            f"{root} is in use by another emulator: stop that one, or name another --state"
        ) from None
    return fd


def is_locked(root: Path) -> bool:
    """Return whether another process has locked the directory."""
    try:
        os.close(lock_folder(root))
    except EmulatorError:
        return True
    return False


def check_index(root: Path) -> None:
    """Raise EmulatorError if the index cannot be used.

    It cannot be used if it is missing or empty although there are files in ``data/``, or if it
    differs from its seal.
    """
    index, files = root / INDEX, sorted((root / "data").glob("*/*"))
    if files and not (index.exists() and index.stat().st_size):
        raise EmulatorError(
            f"{index} is {'empty' if index.exists() else 'missing'}, and {root / 'data'} holds "
            f"{len(files)} files. The index names every object of S3, so nothing is served: "
            f"restore it, or move {root} away to start with an empty S3"
        )
    seal_path = root / SEAL
    if seal_path.exists() and (
        seal_sum := seal_path.read_text(errors="replace")
    ) != _format_checksum(index):
        raise EmulatorError(
            f"{index} has changed since the last stop: it has {_format_checksum(index)}, "
            f"expected {seal_sum}. "
            "It is damaged, or another copy, and it names every object of S3, so nothing is "
            f"served: restore it. To have it checked and used as it is, remove {seal_path}; to "
            f"start with an empty S3, move {root} away"
        )


def open_index(root: Path) -> Index:
    """Open the index. Raises EmulatorError if it cannot be read.

    Without a seal, all of it is read to check it. The seal is not removed yet: ``unseal_index``
    does that when the store is ready.
    """
    path = root / INDEX
    try:
        with contextlib.ExitStack() as cleanups:
            index = Index(path)
            cleanups.callback(index.close)
            if not (root / SEAL).exists():
                index.check()
            cleanups.pop_all()
    # SQLite notices only some damaged pages; for others, ``parse_info_row`` cannot decode a row.
    except (sqlite3.Error, ValueError, TypeError, AttributeError, OverflowError) as damage:
        raise EmulatorError(
            f"{path} cannot be read: {damage}. It names every object of S3, so nothing is served: "
            f"restore it, or move {root} away to start with an empty S3"
        ) from damage
    return index


def seal_index(root: Path) -> None:
    """Write the index's size and CRC-32 as its seal. Write none if the disk is full."""
    with contextlib.suppress(OSError):
        atomic_file.write_file(root / SEAL, _format_checksum(root / INDEX))


def unseal_index(root: Path) -> None:
    """Remove the seal, because the index is about to change."""
    (root / SEAL).unlink(missing_ok=True)


def _format_checksum(path: Path) -> str:
    """Return text with size and CRC-32 of the file."""
    if not path.exists():
        return "no file"
    crc = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            crc = zlib.crc32(chunk, crc)
    return f"{path.stat().st_size:,} bytes with the CRC-32 {crc:08x}"


def recover_folder(root: Path, index: Index) -> None:
    """Finish what a killed process started, and move away files that belong to no object.

    Raises:
        EmulatorError: the index has lost rows.
    """
    names = index.list_blobs() - {""}
    files_by_name = {path.name: path for path in sorted((root / "data").glob("*/*"))}
    # A put that was killed between its commit and its rename left the bytes under their old name.
    for name in names - files_by_name.keys():
        if transit_path := files_by_name.pop(name + TRANSIT, None):
            files_by_name[name] = transit_path.rename(transit_path.with_name(name))
    # The start continues: all other objects are complete, and only reads of these fail.
    if missing_names := names - files_by_name.keys():
        log.error(
            "%s names %d objects whose bytes are not in %s (%s): they cannot be read",
            root / INDEX,
            len(missing_names),
            root / "data",
            ", ".join(index.list_keys(sorted(missing_names)[:3])),
        )
    strays = [path for name, path in files_by_name.items() if name not in names]
    transit = [path for path in strays if path.name.endswith(TRANSIT)]
    _set_aside(
        root / _INTERRUPTED_FOLDER, transit, "they never became an object, or it was deleted"
    )
    unknown = [path for path in strays if not path.name.endswith(TRANSIT)]
    _refuse_unknown_files(root, unknown, len(files_by_name) - len(transit))
    _set_aside(root / _UNKNOWN, unknown, "the index does not name them")


def _refuse_unknown_files(root: Path, unknown: list[Path], count: int) -> None:
    """Raise EmulatorError if there are unknown files.

    The user can allow them by creating an empty folder, to which they are moved.
    """
    folder = root / _UNKNOWN
    if unknown and not (folder.is_dir() and not any(folder.iterdir())):
        raise EmulatorError(
            f"{root / INDEX} does not name {len(unknown)} of the {count} files in {root / 'data'} "
            f"({', '.join(path.name for path in unknown[:3])}): it is an older copy, or has lost "
            "rows, so nothing is served: restore the newest copy, or make an empty folder "
            f"{folder}, and the next start moves these files there"
        )


def _set_aside(folder: Path, files: Iterable[Path], reason: str) -> None:
    """Move the files to the folder ``folder``, and log why."""
    count = size = 0
    for path in files:
        folder.mkdir(exist_ok=True)
        count, size = count + 1, size + path.stat().st_size
        path.rename(folder / path.name)
    if count:
        log.warning("%d files (%.1f MB) are set aside in %s: %s", count, size / 1e6, folder, reason)


# Bytes that are being written to the object store.

TRANSIT = ".transit"
"""Suffix of a file's name while no row refers to its bytes: before a put is complete, and during a
delete."""
CHUNK = 1 << 20  # bytes copied at a time, so that memory does not depend on the object's size


class Blob:
    """Bytes to store: ``write`` them, then call :meth:`ObjectStore.commit`.

    As a context manager, it deletes the bytes at the end unless they were committed.
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
        """Append the bytes of ``source`` without computing their MD5, for a known ETag."""
        while chunk := source.read(CHUNK):
            self._put(chunk)

    def read(self) -> StoredBytes:
        """Open the bytes written so far for reading."""
        return StoredBytes(f"an uploaded part ({self.name})", self.path, self.size, self.crcs)

    def copy_from(self, source: BinaryIO) -> None:
        while chunk := source.read(CHUNK):
            self.write(chunk)

    def _put(self, chunk: bytes) -> None:
        view = memoryview(chunk)
        # An unbuffered write may write fewer bytes than it was given.
        while view:
            view = view[self._file.write(view) :]
        self._sums.update(chunk)
        self.size += len(chunk)

    def close(self, *, sync: bool = True) -> None:
        if not self._file.closed:
            if sync:
                os.fsync(self._file.fileno())
            self._file.close()

    def finalize(self) -> None:
        """Give the file its final name, because a row refers to it now."""
        self.is_committed = True  # first, because from now on the bytes must not be deleted
        self.path = self.path.rename(self.path.with_name(self.name))

    def discard(self) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.is_committed:
            self.discard()
