"""The object store's directory: its lock, its index's seal, and files without a row at the start.

A stop seals the index: it writes down size and CRC-32 of the file, and the next start compares
them. A killed emulator leaves no seal; then SQLite checks the file, and every row is read.

A file in ``data/`` whose name ends with TRANSIT is being written or deleted, so no row refers to
it. Every other file there holds the bytes of an object; if it has no row, the index has lost rows,
and the start is refused. Nothing is deleted here.
"""

import contextlib
import fcntl
import logging
import os
import sqlite3
import zlib
from collections.abc import Iterable
from pathlib import Path

from trainyard.common import atomic_file
from trainyard.common.errors import EmulatorError
from trainyard.emulator.storage.blob import CHUNK, TRANSIT
from trainyard.emulator.storage.object_index import INDEX, Index

log = logging.getLogger(__name__)

_INTERRUPTED_FOLDER, _UNKNOWN = "interrupted", "unknown"
SEAL = "index.seal"
"""Name of the file with size and CRC-32 of the index, while no emulator is running."""


def lock_folder(root: Path) -> int:
    """Lock the directory; return the descriptor. Raise EmulatorError if another process has it."""
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
    """Return whether another process has the directory."""
    try:
        os.close(lock_folder(root))
    except EmulatorError:
        return True
    return False


def need_index(root: Path) -> None:
    """Raise EmulatorError if the index is missing or empty and files are in ``data/``, or if it is
    not as the last stop left it.
    """
    index, files = root / INDEX, sorted((root / "data").glob("*/*"))
    if files and not (index.exists() and index.stat().st_size):
        raise EmulatorError(
            f"{index} is {'empty' if index.exists() else 'missing'}, and {root / 'data'} holds "
            f"{len(files)} files. The index names every object of S3, so nothing is served: "
            f"restore it, or move {root} away to start with an empty S3"
        )
    seal_path = root / SEAL
    if seal_path.exists() and (seal_sum := seal_path.read_text(errors="replace")) != _sum(index):
        raise EmulatorError(
            f"{index} is not as the last stop left it: it has {_sum(index)}, expected {seal_sum}. "
            "It is damaged, or another copy, and it names every object of S3, so nothing is "
            f"served: restore it. To have it checked and used as it is, remove {seal_path}; to "
            "start "
            f"with an empty S3, move {root} away"
        )


def open_index(root: Path) -> Index:
    """Open the index. Raises EmulatorError if it cannot be read; without a seal it is read whole.

    The seal stays until the store is served.
    """
    path = root / INDEX
    try:
        with contextlib.ExitStack() as undone:
            index = Index(path)
            undone.callback(index.close)
            if not (root / SEAL).exists():
                index.check()
            undone.pop_all()
    except (sqlite3.Error, ValueError, TypeError, AttributeError, OverflowError) as damage:
        raise EmulatorError(
            f"{path} cannot be read: {damage}. It names every object of S3, so nothing is served: "
            f"restore it, or move {root} away to start with an empty S3"
        ) from damage
    return index


def seal(root: Path) -> None:
    """Write down what the closed index is; on a full disk there is no seal."""
    with contextlib.suppress(OSError):
        atomic_file.write(root / SEAL, _sum(root / INDEX))


def unseal(root: Path) -> None:
    """Remove the seal: the index is about to change."""
    (root / SEAL).unlink(missing_ok=True)


def _sum(path: Path) -> str:
    if not path.exists():
        return "no file"
    crc = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            crc = zlib.crc32(chunk, crc)
    return f"{path.stat().st_size:,} bytes with the CRC-32 {crc:08x}"


def settle(root: Path, index: Index) -> None:
    """Finish what a killed process began; set aside bytes that belong to no object.

    Raises:
        EmulatorError: the index has lost rows.
    """
    names = index.blobs() - {""}
    lying = {path.name: path for path in sorted((root / "data").glob("*/*"))}
    for name in names - lying.keys():
        if moving := lying.pop(name + TRANSIT, None):
            lying[name] = moving.rename(moving.with_name(name))
    if lost := names - lying.keys():
        log.error(
            "%s names %d objects whose bytes are not in %s (%s): they cannot be read",
            root / INDEX,
            len(lost),
            root / "data",
            ", ".join(index.keys_of(sorted(lost)[:3])),
        )
    strays = [path for name, path in lying.items() if name not in names]
    transit = [path for path in strays if path.name.endswith(TRANSIT)]
    _set_aside(
        root / _INTERRUPTED_FOLDER, transit, "they never became an object, or it was deleted"
    )
    unknown = [path for path in strays if not path.name.endswith(TRANSIT)]
    _refuse(root, unknown, len(lying) - len(transit))
    _set_aside(root / _UNKNOWN, unknown, "the index does not name them")


def _refuse(root: Path, unknown: list[Path], count: int) -> None:
    """Raise EmulatorError if files are unknown, unless the user made an empty folder for them."""
    place = root / _UNKNOWN
    if unknown and not (place.is_dir() and not any(place.iterdir())):
        raise EmulatorError(
            f"{root / INDEX} does not name {len(unknown)} of the {count} files in {root / 'data'} "
            f"({', '.join(path.name for path in unknown[:3])}): it is an older copy, or has lost "
            "rows, so nothing is served: restore the newest copy, or make an empty folder "
            f"{place}, and the next start moves these files there"
        )


def _set_aside(place: Path, files: Iterable[Path], reason: str) -> None:
    count = size = 0
    for path in files:
        place.mkdir(exist_ok=True)
        count, size = count + 1, size + path.stat().st_size
        path.rename(place / path.name)
    if count:
        log.warning("%d files (%.1f MB) are set aside in %s: %s", count, size / 1e6, place, reason)
