"""Digests of files by what is in them: an archive's times and owners do not count."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from trainyard.common.hashes import file_sha256, json_sha256
from trainyard.emulator.jobs.transfers import local_path
from trainyard.runs.run_differences import FAULTS, LARGEST, contents

ARCHIVES = (".tar.gz", ".tgz")


def content_digest(path: Path, name: str) -> str:
    """Return the SHA-256 of the file that is known as ``name``; of an archive, one over its
    members.
    """
    file_digest = file_sha256(path)
    if not name.endswith(ARCHIVES) or path.stat().st_size > LARGEST:
        return file_digest
    return archive_digest(path.read_bytes()) or file_digest


def archive_digest(archive: bytes) -> str | None:
    """Return a digest of the members of a ``.tar.gz``; None if it cannot be read to its end."""
    archive_contents = contents(archive)
    if archive_contents.fault:
        return None
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            members = list(tar)
    except FAULTS:
        return None
    if any(member.issparse() for member in members):  # contents() leaves them out
        return None
    forms = [
        (member.name, str(member.type), member.mode & 0o111, member.linkname) for member in members
    ]
    return json_sha256([archive_contents.files, sorted(forms)])


class Files:
    """The objects that stand in S3 before a run: URI → file of this machine."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = files

    def digest(self, uri: str) -> str | None:
        """Return a digest of what a job sees that gets ``uri``; None if nothing is known there."""
        if files := self._below(uri):
            digests = {name: content_digest(path, name) for name, path in sorted(files.items())}
            return json_sha256(digests)[:16]
        return None

    def _below(self, uri: str) -> dict[str, Path]:
        """Return path below the mount → file."""
        return {
            local_path(uri, file_uri): path
            for file_uri, path in self._files.items()
            if file_uri.startswith(uri)
        }
