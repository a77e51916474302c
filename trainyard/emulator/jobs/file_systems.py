"""What stands in for the file systems (FSx for Lustre, EFS) that a training job mounts.

The variable ``TRAINYARD_EMULATOR_FILE_SYSTEMS`` lists them, separated by commas:

fs-0123abcd=/a/folder                 shows that folder of this machine
fs-0123abcd=/a/folder?ms=2&mb_per_second=100     and answers late: see :class:`Slow`
fs-0123abcd/mount/data=s3://bucket/prefix        its folder /mount/data is associated with S3

Without a folder behind the id, it stands for the whole file system: DirectoryPath is looked up in
it, on FSx for Lustre without the mount name that it begins with.
"""

import functools
import os
import posixpath
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from trainyard.emulator.jobs.transfers import ClientFault, join_key, split_uri
from trainyard.emulator.runtime.isolation import JOB, NODE, choose, mounting
from trainyard.emulator.runtime.mounted_folders import Slow
from trainyard.emulator.runtime.node import Mount

VARIABLE = "TRAINYARD_EMULATOR_FILE_SYSTEMS"
FORM = f"{VARIABLE}=%s=/a/local/folder (or =s3://bucket/prefix, which FSx for Lustre mirrors)"


@dataclass(frozen=True, slots=True)
class StandIn:
    """A local folder, or the S3 prefix, that a channel shows."""

    place: str
    """Absolute path, or ``s3://bucket/prefix``."""

    writable: bool
    slow: Slow | None

    def __str__(self) -> str:
        way = "" if self.writable or choose().notice else ", read-only"
        if slow := self.slow:
            way += f", {slow.first_byte * 1000:g} ms late, at {slow.total / 1e6:g} MB/s a node"
        return f"{self.place}{way},"

    @property
    def mirrored(self) -> bool:
        return self.place.startswith("s3://")


def stand_in(source: Mapping[str, Any]) -> StandIn:
    """Return what replaces a channel's FileSystemDataSource here.

    Raises:
        ClientFault: nothing is known for the file system, or its folder is not there.
    """
    system, kind = source["FileSystemId"], source["FileSystemType"]
    known = {key: value for key, value in _listed() if key.partition("/")[0] == system}
    if not known:
        raise ClientFault(
            f"{kind} file system {system} does not exist on this machine: set {FORM % system}"
        )
    path = posixpath.normpath(f"/{source['DirectoryPath']}").replace("//", "/")
    above = [key for key in known if f"{system}{path}/".startswith(f"{key}/")]
    if not above:
        raise ClientFault(
            f"{kind} file system {system}: {path} does not exist on this machine, where {VARIABLE} "
            f"has {', '.join(sorted(known))}"
        )
    key = max(above, key=len)
    rest = f"{system}{path}".removeprefix(key).strip("/")
    if key == system and kind == "FSxLustre":
        rest = rest.partition("/")[2]
    return _checked(known[key], rest, source)


def _listed() -> Iterator[tuple[str, str]]:
    """Yield (file system's id, perhaps with a path behind it, what stands in for it)."""
    for pair in filter(None, map(str.strip, os.environ.get(VARIABLE, "").split(","))):
        key, equals, value = pair.partition("=")
        if not equals or not value.startswith(("/", "s3://")):
            raise ClientFault(f"{VARIABLE}: {pair!r}: expected {FORM % 'fs-0123abcd'}")
        yield key.rstrip("/"), value


def _checked(value: str, rest: str, source: Mapping[str, Any]) -> StandIn:
    place, _, query = value.partition("?")
    slow = _slow(query)
    found = StandIn(place, source.get("FileSystemAccessMode") == "rw", slow)
    if found.writable and (slow or found.mirrored):
        raise ClientFault(
            "FileSystemAccessMode rw is run here only with a local folder that is not slow: use ro"
        )
    if slow and (why := cannot_be_slow()):
        raise ClientFault(f"{VARIABLE}: {query}: a slow folder cannot be mounted here: {why}")
    if found.mirrored:
        bucket, key = split_uri(place)
        return StandIn(f"s3://{bucket}/{join_key(key, rest)}", found.writable, slow)
    folder = Path(place, rest)
    if not folder.is_dir():
        raise ClientFault(
            f"{source['FileSystemType']} file system {source['FileSystemId']}: "
            f"{source['DirectoryPath']} does not exist: {folder} is not a folder of this machine"
        )
    return StandIn(str(folder.resolve()), found.writable, slow)


def _slow(query: str) -> Slow | None:
    """Return latency and rate; None where nothing is asked for."""
    try:
        given = {name: float(value) for name, value in parse_qsl(query, True, True)}
    except ValueError as error:
        raise ClientFault(
            f"{VARIABLE}: {query!r}: expected ms=2&mb_per_second=100: {error}"
        ) from None
    if {*given} - {"ms", "mb_per_second"} or not all(value > 0 for value in given.values()):
        raise ClientFault(f"{VARIABLE}: {query!r}: expected ms=2&mb_per_second=100, above 0")
    if not given:
        return None
    late, rate = given.get("ms", 0.0) / 1000, given.get("mb_per_second", float("inf")) * 1e6
    return Slow(first_byte=late, names=late, stream=rate, total=rate)


@functools.cache
def cannot_be_slow() -> str | None:
    """Return why no slow folder can be mounted for a job; None when one can. Tried once."""
    if why := choose().notice:
        return why
    slow = Slow(first_byte=0.0, stream=1.0, total=1.0)
    with tempfile.TemporaryDirectory() as folder:
        command = [*NODE, *mounting([Mount(folder, folder, True, slow)]), "/bin/ls", folder]
        done = subprocess.run(
            [*JOB, "--fork", "--", *command],
            capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
    said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    return said[-1] if done.returncode else None
