"""Find the raw objects, and divide them among the instances."""

import hashlib
import logging
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from pathlib import Path
from typing import NamedTuple

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


class File(NamedTuple):
    """A file of raw data."""

    name: str
    """Path below the input folder, with forward slashes: the same on every instance."""
    bytes: int
    modified: int
    """Nanoseconds since 1970."""


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
    files: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """Names of several files below ``path``, or empty."""
    places: tuple[int, ...] = field(default=(), compare=False, repr=False)
    """Places of the files among all of the object, if this instance has a part of them only."""

    @property
    def folder(self) -> str:
        """Return the first part of its name."""
        return self.name.split("/")[0]


def files(folder: Path) -> list[File]:
    """List every file below ``folder``, sorted by name; links are followed.

    Names that begin with ``.`` or ``_`` are left out (``_SUCCESS``, ``.part-0.crc``): programs that
    write data in parts use such names for their own files, and Spark, Hive and ``pyarrow.dataset``
    skip them too.

    Raises:
        DataError: the folder is missing; a name is not UTF-8; a link leads nowhere or to a folder
            that it lies in; an entry is neither file nor folder.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: this folder of raw data does not exist")
    found: list[File] = []
    skipped = 0
    for path, hidden in _files(folder, (folder.resolve(),)):
        if hidden:
            skipped += path.is_file()
        else:
            found.append(_file(path.relative_to(folder).as_posix(), path))
    if skipped:
        log.info("%d files whose names begin with . or _ are not raw data", skipped)
    return sorted(found)


def objects(folder: Path, found: Iterable[File], settings: str) -> list[RawObject]:
    """Return the raw objects that these files below ``folder`` are, the largest first. Files that
    are one record each (``WHOLE``) are taken together.
    """
    found = sorted(found)
    whole = [one for one in found if one.name.lower().endswith(WHOLE)]
    several = [_together(folder, some, settings) for some in _neighbours(whole)]
    single = [
        RawObject(one.name, folder / one.name, one.bytes, one.modified, stem(one.name, settings))
        for one in found
        if not one.name.lower().endswith(WHOLE)
    ]
    return sorted([*single, *several], key=lambda one: (-one.bytes, one.name))


def find(folder: Path, settings: str) -> list[RawObject]:
    """Return the raw objects of all files below ``folder``."""
    return objects(folder, files(folder), settings)


def _neighbours(found: Sequence[File]) -> Iterator[list[File]]:
    """Yield files of one first folder in the order of their names, as many as go together."""
    some: list[File] = []
    size = 0
    for one in found:
        full = len(some) == TOGETHER or size + one.bytes > TOGETHER_BYTES
        if some and (full or _first(one) != _first(some[0])):
            yield some
            some, size = [], 0
        some.append(one)
        size += one.bytes
    if some:
        yield some


def _first(one: File) -> str:
    """Return the first folder of its path; "" without one."""
    return one.name.rpartition("/")[0].partition("/")[0]


def _together(folder: Path, some: Sequence[File], settings: str) -> RawObject:
    """Return the files as one raw object; its name has the first and the last of them."""
    names = tuple(one.name for one in some)
    name = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]} ({len(names)} files)"
    return _of(folder, some, name, stem(name, settings))


def _of(folder: Path, some: Sequence[File], name: str, unit: str) -> RawObject:
    entries = "".join(f"{one.name}\n{one.bytes} {one.modified}\n" for one in some)
    changed = int.from_bytes(hashlib.sha256(entries.encode()).digest()[:7])
    size = sum(one.bytes for one in some)
    return RawObject(name, folder, size, changed, unit, files=tuple(one.name for one in some))


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


def seen(whole: Iterable[RawObject], own: Mapping[str, File], settings: str) -> Iterator[RawObject]:
    """Yield of the raw objects what an instance has that sees only the files ``own``: an object, or
    the part of its files that are there.
    """
    for one in whole:
        names = [name for name in one.files or (one.name,) if name in own]
        if len(names) == len(one.files or (one.name,)):
            yield one
        elif names:
            unit = stem(f"{one.name}\n{names[0]}", settings)  # no other instance has this file
            part = _of(one.path, [own[name] for name in names], one.name, unit)
            yield replace(part, places=tuple(bisect_left(one.files, name) for name in names))


def divided(whole: Iterable[RawObject], count: int) -> list[list[RawObject]]:
    """Divide raw objects, given the largest first, among instances, of about equal bytes."""
    parts: list[list[RawObject]] = [[] for _ in range(count)]
    loads = [(0, number) for number in range(count)]
    for one in whole:
        load, number = heappop(loads)
        parts[number].append(one)
        heappush(loads, (load + one.bytes, number))
    return parts


def _file(name: str, path: Path) -> File:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise DataError(f"{name!r}: the file's name is not UTF-8, as S3's are; rename it") from None
    status = path.stat()
    return File(name, status.st_size, status.st_mtime_ns)


def stem(name: str, settings: str) -> str:
    """Return 16 hex digits with which the names of an object's files begin."""
    return hashlib.sha256(f"{name}\n{settings}".encode()).hexdigest()[:16]
