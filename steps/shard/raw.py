"""The raw objects."""

import hashlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainyard.common.errors import DataError

log = logging.getLogger(__name__)

HIDDEN = (".", "_")
"""What the name of a file or folder begins with that is no raw data."""


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
    """16 hex digits of its name and the settings; the names of its runs and records begin so."""
    own: bool = True
    """Whether this instance writes down what is bad in it: every instance reads every object."""

    @property
    def folder(self) -> str:
        """The first part of its name."""
        return self.name.split("/")[0]


def find(folder: Path, settings: str) -> list[RawObject]:
    """Every file below ``folder``, the largest first; links are followed.

    Names that begin with ``.`` or ``_`` are left out (``_SUCCESS``, ``.part-0.crc``): what writes
    data in parts names its own files so, and Spark, Hive and ``pyarrow.dataset`` skip them too.

    Raises:
        DataError: there is no such folder; a name is no UTF-8; a link leads nowhere or to a folder
            that it lies in; there is something that is neither file nor folder.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: there is no such folder of raw data")
    found: list[RawObject] = []
    skipped = 0
    for path, hidden in _files(folder, (folder.resolve(),)):
        if hidden:
            skipped += path.is_file()
        else:
            found.append(_raw_object(path.relative_to(folder).as_posix(), path, settings))
    if skipped:
        log.info("%d files whose names begin with . or _ are no raw data", skipped)
    return sorted(found, key=lambda one: (-one.bytes, one.name))


def _files(folder: Path, within: tuple[Path, ...]) -> Iterator[tuple[Path, bool]]:
    """(what lies below ``folder``, whether it is hidden). ``within``: the folders on the way.

    ``Path.rglob`` passes over a folder behind a link without a word, and over a link to nothing.
    """
    for path in folder.iterdir():
        if path.name.startswith(HIDDEN):
            yield from ((one, True) for one in (path, *path.rglob("*")))
        elif path.is_dir():
            real = path.resolve()
            if real in within:
                raise DataError(f"{path}: is a link to {real}, in which it lies; delete it")
            yield from _files(path, (*within, real))
        elif path.is_file():
            yield path, False
        else:
            what = "a link that leads nowhere" if path.is_symlink() else "neither file nor folder"
            raise DataError(f"{path}: is {what}; delete it, or begin its name with _")


def shared(objects: Sequence[RawObject], host: str, hosts: Sequence[str]) -> list[RawObject]:
    """The same; each is the ``own`` of one of the instances."""
    names = sorted(one.name for one in objects)
    owner = {name: sorted(hosts)[number % len(hosts)] for number, name in enumerate(names)}
    return [replace(one, own=owner[one.name] == host) for one in objects]


def _raw_object(name: str, path: Path, settings: str) -> RawObject:
    try:
        unit = stem(name, settings)
    except UnicodeEncodeError:
        raise DataError(f"{name!r}: the file's name is no UTF-8, as S3's are; rename it") from None
    status = path.stat()
    return RawObject(name, path, status.st_size, status.st_mtime_ns, unit)


def stem(name: str, settings: str) -> str:
    """What the names of files begin with, 16 hex digits."""
    return hashlib.sha256(f"{name}\n{settings}".encode()).hexdigest()[:16]
