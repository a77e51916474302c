"""Room that is kept on a disk so that something can be deleted when it is full.

An index takes room to note that something is gone: without any, nothing could ever go.
"""

import os
from contextlib import suppress
from pathlib import Path

SIZE = 1 << 20  # bytes: SQLite's journal of a deletion takes some ten pages of 4 kB


class Ballast:
    """A file that is given up where less than its size is free, and made anew where there is."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.take()

    def drop(self) -> None:
        """Before what frees something."""
        if self._free() < SIZE:
            self._path.unlink(missing_ok=True)

    def take(self) -> None:
        """Whenever there may be room again; on a full disk it stays without."""
        if not self._path.exists() and self._free() > 2 * SIZE:
            with suppress(OSError):
                self._path.write_bytes(b"\0" * SIZE)

    def _free(self) -> int:
        disk = os.statvfs(self._path.parent)
        return disk.f_bavail * disk.f_frsize
