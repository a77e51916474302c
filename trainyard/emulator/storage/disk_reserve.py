"""Disk space kept in reserve, so that something can be deleted when the disk is full.

An index needs space to record a deletion: without any, nothing could be deleted.
"""

import os
from contextlib import suppress
from pathlib import Path

SIZE = 1 << 20  # bytes: SQLite's journal of a deletion needs about ten pages of 4 kB


class Ballast:
    """A file that is deleted when less than its size is free, and created again when there is
    space.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.take()

    def drop(self) -> None:
        """Free the reserve if the disk is full; to be called before a deletion."""
        if self._free() < SIZE:
            self._path.unlink(missing_ok=True)

    def take(self) -> None:
        """Create the reserve if there is enough space; on a full disk it remains missing."""
        if not self._path.exists() and self._free() > 2 * SIZE:
            with suppress(OSError):
                self._path.write_bytes(b"\0" * SIZE)

    def _free(self) -> int:
        disk = os.statvfs(self._path.parent)
        return disk.f_bavail * disk.f_frsize
