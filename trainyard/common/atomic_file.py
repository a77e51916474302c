"""Write files atomically: under its name, a file is either complete or does not exist.

The content is written to a draft: a file in the same folder, with a temporary name. After it is
flushed to the disk, it is renamed. If the writer is killed at any point, the old or the new file
remains, and perhaps a draft. An error says which file could not be written, how many bytes it
needs, how many are free, and what to do.
"""

import errno
import io
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from trainyard.common.errors import StorageError

LONGEST = 240  # characters of the target's name to keep in the draft's name, which may have 255


REMEDIES = {
    errno.ENOSPC: "delete what is not needed there, or use a larger volume (a recipe's volume_gb)",
    errno.EDQUOT: "delete what is not needed there, or have the quota raised",
    errno.EFBIG: "raise the limit of a file's size (ulimit -f), or use another file system",
}
"""Error number of a failed write to what to do about it."""


def make_storage_error(
    path: Path, error: OSError, size: int = 0, freed_bytes: int = 0
) -> StorageError:
    """Return the StorageError to raise instead of an error whose ``errno`` is in ``REMEDIES``.

    Args:
        path: file that cannot be written.
        error: the original error.
        size: bytes of the whole file, if known.
        freed_bytes: bytes on the disk that will be free again after the error.
    """
    folder = next(parent for parent in path.absolute().parents if parent.is_dir())
    stats = os.statvfs(folder)
    size_note = f"{size:,} bytes are needed, " if size else ""
    files = ", but no further file" if stats.f_files and not stats.f_favail else ""
    found_error = StorageError(
        f"{path}: cannot be written: {os.strerror(error.errno or 0)}: {size_note}"
        f"{stats.f_bavail * stats.f_frsize + freed_bytes:,} are free{files}; "
        f"{REMEDIES[error.errno or 0]}"
    )
    found_error.errno, found_error.strerror = error.errno, error.strerror
    return found_error


@contextmanager
def storage_errors(path: Path, size: int = 0) -> Iterator[None]:
    """Translate errors of the block, which writes to ``path``.

    Raises:
        StorageError: the disk is full, or a quota or a limit is reached.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, StorageError) or error.errno not in REMEDIES:
            raise
        raise make_storage_error(path, error, size) from error


class _Descriptor(io.FileIO):
    """An open file whose failing writes raise ``StorageError``, no matter what code calls them."""

    def __init__(self, descriptor: int, path: Path, size: int) -> None:
        super().__init__(descriptor, "wb")
        self._path, self._size = path, size

    def write(self, part: Any) -> int:
        try:
            return super().write(part)
        except OSError as error:
            if error.errno not in REMEDIES:
                raise
            # st_blocks of stat(2) is in units of 512 bytes, whatever the file system's block size.
            freed_bytes = os.fstat(self.fileno()).st_blocks * 512
            raise make_storage_error(self._path, error, self._size, freed_bytes) from error


class Draft:
    """A file under a temporary name: write to ``file``, then call ``finish`` or ``discard``.

    A ``with`` block provides ``file``. It finishes the file at the end, and discards it on an
    error. The temporary name is unique, because a process that was believed dead may still be
    writing to the same target.
    """

    def __init__(self, path: Path, mode: int = 0o666, size: int = 0) -> None:
        """Create a draft of ``path``, whose folder must exist; the umask restricts ``mode``.

        ``size`` is the number of bytes that the file will have, if known. It is used in the error
        if they do not fit.
        """
        self.path, self._size = path, size
        self.temporary = path.with_name(f".{path.name[:LONGEST]}.{secrets.token_hex(4)}.tmp")
        with storage_errors(path, size):
            descriptor = os.open(self.temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        self.file: BinaryIO = io.BufferedWriter(_Descriptor(descriptor, path, size))

    def finish(self, *, durable: bool = True) -> None:
        """Rename the draft to its target. A thread other than the writer's may call this.

        Args:
            durable: True if the content, and then the name, must survive a power failure.

        Raises:
            StorageError: the disk is full, or a quota or a limit is reached.
        """
        try:
            self.file.close()
            # A network file system may report only now that its disk is full.
            with storage_errors(self.path, self._size):
                # By name, because a library that was given the draft may have replaced the file.
                if durable:
                    flush_to_disk(self.temporary)
                self.temporary.replace(self.path)
        except BaseException:
            self.discard()
            raise
        # The name is stored in the folder, so the folder has to be flushed too.
        if durable:
            flush_to_disk(self.path.parent)

    def discard(self) -> None:
        """Remove the draft."""
        # Closing flushes again, so it may fail again.
        with suppress(OSError):
            self.file.close()
        self.temporary.unlink(missing_ok=True)

    def __enter__(self) -> BinaryIO:
        return self.file

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self.discard()


def write_draft(path: Path, *parts: str | bytes | memoryview) -> Draft:
    """Write all parts to a draft and return it. Its ``finish`` flushes and renames it."""
    views = [memoryview(part.encode() if isinstance(part, str) else part) for part in parts]
    draft = Draft(path, size=sum(part.nbytes for part in views))
    try:
        for part in views:
            draft.file.write(part)
        draft.file.flush()
    except BaseException:
        draft.discard()
        raise
    return draft


def write_file(path: Path, *parts: str | bytes | memoryview) -> None:
    """Replace ``path`` atomically by the parts (text as UTF-8). Its folder must exist."""
    write_draft(path, *parts).finish()


def flush_to_disk(path: Path) -> None:
    """Flush a file's content, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
