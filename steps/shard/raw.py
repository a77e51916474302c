"""The raw objects that this instance shards."""

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from errors import DataError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RawObject:
    """One file of raw data."""

    name: str
    """Its path below the input folder, with forward slashes: the same on every instance."""
    path: Path
    bytes: int
    modified: int
    """Nanoseconds since 1970."""
    unit: str
    """16 hex digits of its name and the settings; the names of all that it becomes begin so."""


def find(folder: Path, settings: str) -> list[RawObject]:
    """Every file below ``folder``, the largest first.

    Names that begin with ``.`` or ``_`` are left out (``_SUCCESS``, ``.part-0.crc``): what writes
    data in parts names its own files so, and Spark, Hive and ``pyarrow.dataset`` skip them too.

    Raises:
        DataError: there is no such folder, or a name is no UTF-8.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: there is no such folder of raw data")
    found, skipped = [], 0
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        if any(part.startswith((".", "_")) for part in parts):
            skipped += path.is_file()
        elif path.is_file():
            found.append(_raw_object("/".join(parts), path, settings))
    if skipped:
        log.info("%d files whose names begin with . or _ are no raw data", skipped)
    return sorted(found, key=lambda one: (-one.bytes, one.name))


def part_of(objects: Sequence[RawObject], host: str, hosts: Sequence[str]) -> list[RawObject]:
    """What ``host`` takes of a folder that all ``hosts`` see; every object goes to one of them."""
    return list(objects[sorted(hosts).index(host) :: len(hosts)])


def _raw_object(name: str, path: Path, settings: str) -> RawObject:
    try:
        unit = hashlib.sha256(f"{name}\n{settings}".encode()).hexdigest()[:16]
    except UnicodeEncodeError:
        raise DataError(f"{name!r}: the file's name is no UTF-8, as S3's are; rename it") from None
    status = path.stat()
    return RawObject(name, path, status.st_size, status.st_mtime_ns, unit)
