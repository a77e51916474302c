"""Find the raw objects."""

import hashlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainyard.common.errors import DataError

log = logging.getLogger(__name__)

HIDDEN = (".", "_")
"""First characters of the names of files and folders that are not raw data."""

WHOLE = (
    ".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff",
    ".wav", ".flac", ".mp3", ".ogg",
)  # fmt: skip
"""Suffixes of files that are one record each; many of them form one raw object."""

TOGETHER, TOGETHER_BYTES = 1000, 64 * 10**6
"""Maximum files in a raw object of ``WHOLE`` files, and maximum bytes unless one file alone has
more."""


@dataclass(frozen=True, slots=True)
class RawObject:
    """One file of raw data, or neighbouring files that are one record each."""

    name: str
    """Path below the input folder, with forward slashes: the same on every instance."""
    path: Path
    """Path of the file; of several files the input folder."""
    bytes: int
    modified: int
    """Nanoseconds since 1970; of several files a hash of their times, names and sizes."""
    unit: str
    """16 hex digits, a hash of its name and the settings; its runs' and records' names begin with
    it."""
    own: bool = True
    """True if this instance writes down the object's bad records: every instance reads every
    object."""
    files: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """Names of several files below ``path``, or empty."""

    @property
    def folder(self) -> str:
        """Return the first part of its name."""
        return self.name.split("/")[0]


def find(folder: Path, settings: str) -> list[RawObject]:
    """Find every file below ``folder``, the largest first; links are followed. Files that are one
    record each (``WHOLE``) are taken together.

    Names that begin with ``.`` or ``_`` are left out (``_SUCCESS``, ``.part-0.crc``): programs that
    write data in parts use such names for their own files, and Spark, Hive and ``pyarrow.dataset``
    skip them too.

    Raises:
        DataError: the folder is missing; a name is not UTF-8; a link leads nowhere or to a folder
            that it lies in; an entry is neither file nor folder.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: this folder of raw data does not exist")
    found: list[RawObject] = []
    skipped = 0
    for path, hidden in _files(folder, (folder.resolve(),)):
        if hidden:
            skipped += path.is_file()
        else:
            found.append(_raw_object(path.relative_to(folder).as_posix(), path, settings))
    if skipped:
        log.info("%d files whose names begin with . or _ are not raw data", skipped)
    whole = [one for one in found if one.name.lower().endswith(WHOLE)]
    found = [one for one in found if not one.name.lower().endswith(WHOLE)]
    found += [_together(folder, some, settings) for some in _neighbours(whole)]
    return sorted(found, key=lambda one: (-one.bytes, one.name))


def _neighbours(found: list[RawObject]) -> Iterator[list[RawObject]]:
    """Yield files of one first folder in the order of their names, as many as go together."""
    some: list[RawObject] = []
    size = 0
    for one in sorted(found, key=lambda one: one.name):
        full = len(some) == TOGETHER or size + one.bytes > TOGETHER_BYTES
        if some and (full or _first(one) != _first(some[0])):
            yield some
            some, size = [], 0
        some.append(one)
        size += one.bytes
    if some:
        yield some


def _first(one: RawObject) -> str:
    """Return the first folder of its path; "" without one."""
    return one.name.rpartition("/")[0].partition("/")[0]


def _together(folder: Path, some: list[RawObject], settings: str) -> RawObject:
    """Return the files as one raw object; its name has the first and the last of them."""
    names = tuple(one.name for one in some)
    name = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]} ({len(names)} files)"
    entries = "".join(f"{one.name}\n{one.bytes} {one.modified}\n" for one in some)
    changed = int.from_bytes(hashlib.sha256(entries.encode()).digest()[:7])
    size = sum(one.bytes for one in some)
    return RawObject(name, folder, size, changed, stem(name, settings), files=names)


def _files(folder: Path, within: tuple[Path, ...]) -> Iterator[tuple[Path, bool]]:
    """Yield (path below ``folder``, whether it is hidden). ``within``: the folders on the way.

    ``Path.rglob`` silently skips a folder behind a link, and a link to nothing.
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
    """Return the objects, each marked as the ``own`` of one of the instances."""
    names = sorted(one.name for one in objects)
    owner = {name: sorted(hosts)[number % len(hosts)] for number, name in enumerate(names)}
    return [replace(one, own=owner[one.name] == host) for one in objects]


def _raw_object(name: str, path: Path, settings: str) -> RawObject:
    try:
        unit = stem(name, settings)
    except UnicodeEncodeError:
        raise DataError(f"{name!r}: the file's name is not UTF-8, as S3's are; rename it") from None
    status = path.stat()
    return RawObject(name, path, status.st_size, status.st_mtime_ns, unit)


def stem(name: str, settings: str) -> str:
    """Return 16 hex digits with which the names of an object's files begin."""
    return hashlib.sha256(f"{name}\n{settings}".encode()).hexdigest()[:16]
