"""File systems that a training job mounts: a local directory, or S3, stands in for each."""

import os
import posixpath
from pathlib import Path

from trainyard.emulator.jobs.transfers import ClientFault

STAND_INS = "TRAINYARD_EMULATOR_FILE_SYSTEMS"
"""Variable ``fs-0123=/local/directory,fs-4567/mount=s3://bucket/prefix``: file system, or one of
its directories, and what stands in for it: a local directory, or the prefix with which FSx for
Lustre has associated it."""


def stand_in(channel: dict) -> str:
    """Return the local directory, or the S3 URI, that stands in for the channel's directory.

    Raises:
        ClientFault: none is named, or it is not a directory.
    """
    source = channel["DataSource"]["FileSystemDataSource"]
    system, path = source["FileSystemId"], source["DirectoryPath"]
    named = {key.strip().rstrip("/"): value.strip() for key, value in _pairs()}
    wanted = f"{system}{posixpath.normpath(path).rstrip('/')}"
    fitting = [key for key in named if f"{wanted}/".startswith(f"{key}/")]
    if not fitting:
        raise ClientFault(
            f"{source['FileSystemType']} file system {system} is not on this machine: set "
            f"{STAND_INS}={wanted}=/a/local/directory, or =s3://bucket/prefix, to what {path} holds"
        )
    nearest = max(fitting, key=len)
    found = f"{named[nearest].rstrip('/')}{wanted.removeprefix(nearest)}"
    if not found.startswith("s3://") and not (found.startswith("/") and Path(found).is_dir()):
        raise ClientFault(
            f"{STAND_INS}: {nearest}={named[nearest]} stands in for {wanted}, so {found} would "
            "be mounted, which is not a directory"
        )
    return found


def _pairs() -> list[tuple[str, str]]:
    given = os.environ.get(STAND_INS, "")
    return [(key, value) for key, _, value in (one.partition("=") for one in given.split(","))]
