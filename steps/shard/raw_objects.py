"""Find the raw objects, and divide them among the instances.

A raw object is one file of raw data, or several neighbouring files that are one record each.
"""

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from pathlib import Path
from typing import NamedTuple

from trainyard.common.errors import DataError

log = logging.getLogger(__name__)

HIDDEN = (".", "_")
"""First characters of the names of files and folders that are not raw data."""

WHOLE_SUFFIXES = (
    ".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff",
    ".wav", ".flac", ".mp3", ".ogg",
)  # fmt: skip
"""Suffixes of files that are one record each. Many such files form one raw object."""

TOGETHER, TOGETHER_BYTES = 1000, 64 * 10**6
"""Maximum number of files in a raw object of ``WHOLE_SUFFIXES`` files, and maximum bytes unless a
single file is larger."""


class File(NamedTuple):
    """A file of raw data."""

    name: str
    """Path below the input folder, with forward slashes. It is the same on every instance."""
    bytes: int
    modified_ns: int
    """Time of the last change, in nanoseconds since 1970."""


@dataclass(frozen=True, slots=True)
class RawObject:
    """One file of raw data, or neighbouring files that are one record each."""

    name: str
    """Path below the input folder, with forward slashes. It is the same on every instance."""
    path: Path
    """Path of the file, or of the input folder if there are several files."""
    bytes: int
    modified_ns: int
    """Time of the last change, in nanoseconds since 1970. For several files: a hash of their times,
    names and sizes."""
    unit: str
    """16 hex digits: a hash of the name and the settings. The names of the object's sorted runs and
    progress records begin with it."""
    files: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """Names of several files below ``path``, or empty."""

    @property
    def folder(self) -> str:
        """Return the first folder in the name, or the name itself if it has no folder."""
        return self.name.split("/")[0]


def list_files(folder: Path) -> list[File]:
    """List every file below ``folder``, sorted by name. Links are followed.

    Names that begin with ``.`` or ``_`` are left out (``_SUCCESS``, ``.part-0.crc``): programs that
    write data in parts use such names for their own files, and Spark, Hive and ``pyarrow.dataset``
    skip them too.

    Raises:
        DataError: the folder is missing; a name is not UTF-8; a link leads nowhere, or to a folder
            that contains it; an entry is neither file nor folder.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: this folder of raw data does not exist")
    data_files: list[File] = []
    skip_count = 0
    for path, hidden in _iter_entries(folder, (folder.resolve(),)):
        if hidden:
            skip_count += path.is_file()
        else:
            data_files.append(_make_file(path.relative_to(folder).as_posix(), path))
    if skip_count:
        log.info("%d files whose names begin with . or _ are not raw data", skip_count)
    return sorted(data_files)


def build_objects(folder: Path, data_files: Iterable[File], sha256: str) -> list[RawObject]:
    """Return the raw objects that these files below ``folder`` form, the largest first.

    Several neighbouring files that are one record each (``WHOLE_SUFFIXES``) form one raw object.
    ``sha256``: hash of the settings, from which file names are derived.
    """
    data_files = sorted(data_files)
    whole_files = [file for file in data_files if file.name.lower().endswith(WHOLE_SUFFIXES)]
    several = []
    for group in _group_neighbours(whole_files):
        first, last = group[0].name, group[-1].name
        name = first if len(group) == 1 else f"{first} … {last} ({len(group)} files)"
        several.append(_make_object(folder, group, name, compute_stem(name, sha256)))
    single = [
        RawObject(
            file.name,
            folder / file.name,
            file.bytes,
            file.modified_ns,
            compute_stem(file.name, sha256),
        )
        for file in data_files
        if not file.name.lower().endswith(WHOLE_SUFFIXES)
    ]
    return sorted([*single, *several], key=lambda raw: (-raw.bytes, raw.name))


def find_raw_objects(folder: Path, sha256: str) -> list[RawObject]:
    """Return the raw objects of all files below ``folder``; ``sha256``: hash of the settings."""
    return build_objects(folder, list_files(folder), sha256)


def _group_neighbours(data_files: Sequence[File]) -> Iterator[list[File]]:
    """Yield groups of neighbouring files with the same first folder, each for one raw object.

    A group has at most TOGETHER files and, unless it is a single file, at most TOGETHER_BYTES.
    """
    group: list[File] = []
    size = 0
    for file in data_files:
        full = len(group) == TOGETHER or size + file.bytes > TOGETHER_BYTES
        if group and (full or _find_first_folder(file) != _find_first_folder(group[0])):
            yield group
            group, size = [], 0
        group.append(file)
        size += file.bytes
    if group:
        yield group


def _find_first_folder(file: File) -> str:
    """Return the first folder of the file's name, or "" if it has no folder."""
    return file.name.rpartition("/")[0].partition("/")[0]


def _make_object(folder: Path, group: Sequence[File], name: str, unit: str) -> RawObject:
    """Return one raw object of several files; a hash of names, sizes and times is its time."""
    entries = "".join(f"{file.name}\n{file.bytes} {file.modified_ns}\n" for file in group)
    modified_hash = int.from_bytes(hashlib.sha256(entries.encode()).digest()[:7])
    size = sum(file.bytes for file in group)
    return RawObject(
        name, folder, size, modified_hash, unit, files=tuple(file.name for file in group)
    )


def _iter_entries(folder: Path, parents: tuple[Path, ...]) -> Iterator[tuple[Path, bool]]:
    """Yield (path, whether it is hidden) of each file below ``folder``, and each hidden entry.

    ``parents`` are the folders on the way here, to detect a link to one of them. ``Path.rglob`` is
    not used because it silently skips a folder behind a link, and a link to nothing.
    """
    for path in folder.iterdir():
        if path.name.startswith(HIDDEN):
            yield from ((inner, True) for inner in (path, *path.rglob("*")))
        elif path.is_dir():
            real = path.resolve()
            if real in parents:
                raise DataError(
                    f"{path}: is a link to {real}, a folder that contains it; delete it"
                )
            yield from _iter_entries(path, (*parents, real))
        elif path.is_file():
            yield path, False
        else:
            problem = (
                "a link that leads nowhere" if path.is_symlink() else "neither file nor folder"
            )
            raise DataError(f"{path}: is {problem}; delete it, or begin its name with _")


def iter_own_objects(
    all_objects: Iterable[RawObject], own_files: Mapping[str, File], sha256: str
) -> Iterator[RawObject]:
    """Yield the raw objects, or parts of them, that consist of an instance's ``own_files``.

    ``sha256``: hash of the settings, from which file names are derived.
    """
    for raw in all_objects:
        names = [name for name in raw.files or (raw.name,) if name in own_files]
        if len(names) == len(raw.files or (raw.name,)):
            yield raw
        elif names:
            unit = compute_stem(
                f"{raw.name}\n{names[0]}", sha256
            )  # no other instance has this file
            yield _make_object(raw.path, [own_files[name] for name in names], raw.name, unit)


def divide_objects(all_objects: Iterable[RawObject], count: int) -> list[list[RawObject]]:
    """Divide raw objects among ``count`` instances so that each gets about the same bytes.

    ``all_objects`` must be sorted, the largest first.
    """
    parts: list[list[RawObject]] = [[] for _ in range(count)]
    loads = [(0, number) for number in range(count)]
    for raw in all_objects:
        load, number = heappop(loads)
        parts[number].append(raw)
        heappush(loads, (load + raw.bytes, number))
    return parts


def _make_file(name: str, path: Path) -> File:
    """Return the file with its size and time; raise DataError if its name is not UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise DataError(f"{name!r}: the file's name is not UTF-8, as S3's are; rename it") from None
    status = path.stat()
    return File(name, status.st_size, status.st_mtime_ns)


def compute_stem(name: str, sha256: str) -> str:
    """Return a hash, 16 hex digits, of ``name`` and the settings' ``sha256``, to name files."""
    return hashlib.sha256(f"{name}\n{sha256}".encode()).hexdigest()[:16]


# The unit of work that one process packs: a range of the records' hashes.


@dataclass(frozen=True, slots=True)
class PackingUnit:
    """A unit that one process packs: the records whose hashes are in one range."""

    name: str
    folder: str
    """First folder of its records, or "" if they may have any."""
    number: int
    count: int
    """Number of units of this folder. They divide the range of all hashes evenly."""
    slots: int
    """Number of parts in which the unit is packed, one after the other."""
    bytes: int
    """Expected bytes of its content: the average of the folder's units."""
    stem: str
    """16 hex digits with which the names of all its files begin."""
    corpus: str
    """SHA-256 that identifies the raw objects."""
