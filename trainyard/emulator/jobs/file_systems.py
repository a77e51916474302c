"""What stands in for the file systems (FSx for Lustre, EFS) that a training job mounts.

The variable ``TRAINYARD_EMULATOR_FILE_SYSTEMS`` lists them, separated by commas:

fs-0123abcd=/a/folder                 shows that folder of this machine
fs-0123abcd/mount/data=s3://bucket/prefix        its folder /mount/data is associated with S3

Without a folder behind the id, it stands for the whole file system: DirectoryPath is looked up in
it, on FSx for Lustre without the mount name that it begins with.
"""

import os
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard.emulator.jobs.transfers import ClientFault, join_key, split_uri
from trainyard.emulator.runtime.isolation import choose

VARIABLE = "TRAINYARD_EMULATOR_FILE_SYSTEMS"
FORM = f"{VARIABLE}=%s=/a/local/folder (or =s3://bucket/prefix, which FSx for Lustre mirrors)"


@dataclass(frozen=True, slots=True)
class StandIn:
    """A local folder, or the S3 prefix, that a channel shows."""

    place: str
    """Absolute path, or ``s3://bucket/prefix``."""

    writable: bool

    def __str__(self) -> str:
        way = "" if self.writable or choose().notice else ", read-only"
        return f"{self.place}{way},"

    @property
    def is_mirrored(self) -> bool:
        return self.place.startswith("s3://")


def stand_in(source: Mapping[str, Any]) -> StandIn:
    """Return what replaces a channel's FileSystemDataSource here.

    Raises:
        ClientFault: nothing is known for the file system, or its folder is not there.
    """
    system, kind = source["FileSystemId"], source["FileSystemType"]
    stand_ins = {key: value for key, value in _list_stand_ins() if key.partition("/")[0] == system}
    if not stand_ins:
        raise ClientFault(
            f"{kind} file system {system} does not exist on this machine: set {FORM % system}"
        )
    path = posixpath.normpath(f"/{source['DirectoryPath']}").replace("//", "/")
    above = [key for key in stand_ins if f"{system}{path}/".startswith(f"{key}/")]
    if not above:
        raise ClientFault(
            f"{kind} file system {system}: {path} does not exist on this machine, where {VARIABLE} "
            f"has {', '.join(sorted(stand_ins))}"
        )
    key = max(above, key=len)
    rest = f"{system}{path}".removeprefix(key).strip("/")
    if key == system and kind == "FSxLustre":
        rest = rest.partition("/")[2]
    return _make_stand_in(stand_ins[key], rest, source)


def _list_stand_ins() -> Iterator[tuple[str, str]]:
    """Yield (file system's id, perhaps with a path behind it, what stands in for it)."""
    for pair in filter(None, map(str.strip, os.environ.get(VARIABLE, "").split(","))):
        key, equals, value = pair.partition("=")
        if not equals or not value.startswith(("/", "s3://")):
            raise ClientFault(f"{VARIABLE}: {pair!r}: expected {FORM % 'fs-0123abcd'}")
        yield key.rstrip("/"), value


def _make_stand_in(place: str, rest: str, source: Mapping[str, Any]) -> StandIn:
    stand_in_place = StandIn(place, source.get("FileSystemAccessMode") == "rw")
    if stand_in_place.writable and stand_in_place.is_mirrored:
        raise ClientFault("FileSystemAccessMode rw is run here only with a local folder: use ro")
    if stand_in_place.is_mirrored:
        bucket, key = split_uri(place)
        return StandIn(f"s3://{bucket}/{join_key(key, rest)}", stand_in_place.writable)
    folder = Path(place, rest)
    if not folder.is_dir():
        raise ClientFault(
            f"{source['FileSystemType']} file system {source['FileSystemId']}: "
            f"{source['DirectoryPath']} does not exist: {folder} is not a folder of this machine"
        )
    return StandIn(str(folder.resolve()), stand_in_place.writable)
