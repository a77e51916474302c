"""The object store's directory: its lock, and the handling of files without a row at the start.

A file in ``data/`` whose name ends with TRANSIT is being written or deleted, so no row refers to
it. Every other file there holds the bytes of an object; if it has no row, the index has lost rows,
and the start is refused. Nothing is deleted here.
"""

import fcntl
import logging
import os
from collections.abc import Iterable
from pathlib import Path

from trainyard.common.errors import EmulatorError
from trainyard.emulator.storage.blob import TRANSIT
from trainyard.emulator.storage.object_index import INDEX, Index

log = logging.getLogger(__name__)

_INTERRUPTED, _UNKNOWN = "interrupted", "unknown"


def own(root: Path) -> int:
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
        os.close(own(root))
    except EmulatorError:
        return True
    return False


def need_index(root: Path) -> None:
    """Raise EmulatorError if the index is missing or empty and files are in ``data/``."""
    index, files = root / INDEX, sorted((root / "data").glob("*/*"))
    if files and not (index.exists() and index.stat().st_size):
        raise EmulatorError(
            f"{index} is {'empty' if index.exists() else 'missing'}, and {root / 'data'} holds "
            f"{len(files)} files. The index names every object of S3, so nothing is served: "
            f"restore it, or move {root} away to start with an empty S3"
        )


def settle(root: Path, index: Index) -> None:
    """Finish what a killed process began; set aside bytes that belong to no object.

    Raises:
        EmulatorError: the index has lost rows.
    """
    named = index.blobs() - {""}
    lying = {path.name: path for path in sorted((root / "data").glob("*/*"))}
    for name in named - lying.keys():
        if moving := lying.pop(name + TRANSIT, None):
            lying[name] = moving.rename(moving.with_name(name))
    if lost := named - lying.keys():
        log.error(
            "%s names %d objects whose bytes are not in %s (%s): they cannot be read",
            root / INDEX,
            len(lost),
            root / "data",
            ", ".join(index.keys_of(sorted(lost)[:3])),
        )
    strays = [path for name, path in lying.items() if name not in named]
    transit = [path for path in strays if path.name.endswith(TRANSIT)]
    _set_aside(root / _INTERRUPTED, transit, "they never became an object, or it was deleted")
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


def _set_aside(place: Path, files: Iterable[Path], why: str) -> None:
    count = size = 0
    for path in files:
        place.mkdir(exist_ok=True)
        count, size = count + 1, size + path.stat().st_size
        path.rename(place / path.name)
    if count:
        log.warning("%d files (%.1f MB) are set aside in %s: %s", count, size / 1e6, place, why)
