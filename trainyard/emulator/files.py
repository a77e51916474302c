"""Writing a file so that nobody ever sees half of it."""

import os
from pathlib import Path


def write_atomic(path: Path, data: bytes) -> None:
    """Replaces ``path`` by ``data``: temporary name, flush, fsync, rename, fsync of the folder."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Makes a rename or a new name in ``path`` durable."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
