"""Wheelhouses: for each job, the wheels of what it installs, so that it needs no index.

A wheelhouse is named by the text of the requirements, so a definition is compiled without it, and
what was once uploaded for a text is what every later run installs.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from pipelines.compile.user_code import REQUIREMENTS
from steps.train.train_script import Project
from trainyard.common.errors import DefinitionError

_INCLUDE = re.compile(r"^\s*(?:-r|--requirement|-c|--constraint)[ =]*(\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Requirements:
    """A requirements file, with those that it includes."""

    name: str
    """Path in the job's folder."""

    files: Mapping[str, bytes] = field(repr=False)
    """Path → content, of this file and of those that it includes."""

    @classmethod
    def from_folder(cls, name: str, folder: Mapping[str, bytes]) -> "Requirements":
        """Return the file ``name`` of a job's folder, path → content.

        Raises:
            DefinitionError: the folder lacks a file that is included.
        """
        return cls(name, dict(_follow_includes(name, folder, set())))


def _follow_includes(
    name: str, folder: Mapping[str, bytes], visited_names: set[str]
) -> Iterator[tuple[str, bytes]]:
    if name in visited_names:
        return
    visited_names.add(name)
    if name not in folder:
        raise DefinitionError(f"packages.wheelhouse: the requirements name {name}, which is not "
                              "in the folder that travels with the script")  # fmt: skip
    yield name, folder[name]
    for other in _INCLUDE.findall(folder[name].decode(errors="replace")):
        yield from _follow_includes(
            (PurePosixPath(name).parent / other).as_posix(), folder, visited_names
        )


def requirements_of(
    folder: Mapping[str, bytes], script: Project | None
) -> tuple[Requirements, ...]:
    """Return what a job installs: from its own folder, and for the user's script beside it.

    Raises:
        DefinitionError: a requirements file includes one that does not travel.
    """
    requirement_files = []
    if REQUIREMENTS in folder and (script is None or folder != script.files):
        requirement_files.append(Requirements.from_folder(REQUIREMENTS, folder))
    if script and script.requirements:
        requirement_files.append(Requirements.from_folder(script.requirements, script.files))
    return tuple(requirement_files)


@dataclass(frozen=True)
class Wheelhouse:
    """A folder of wheels in S3, for the requirements of one job."""

    bucket: str
    prefix: str
    """Key prefix of all wheelhouses of the pipeline, without a slash at its end."""

    lists: tuple[Requirements, ...]
    """What the job installs, in its order."""

    python: tuple[str, ...]
    """Python versions that the wheels are for, as ``3.12``."""

    @property
    def key(self) -> str:
        """Return the key prefix of the wheels, without a slash at its end."""
        digest = hashlib.sha256(" ".join(self.python).encode())
        for requirements in self.lists:
            for name, content in sorted(requirements.files.items()):
                digest.update(f"{len(name)}:{name}{len(content)}:".encode())
                digest.update(content)
        return f"{self.prefix}/{digest.hexdigest()[:32]}"

    @property
    def manifest(self) -> str:
        """Return the key of the manifest, which is written last: wheel → SHA-256."""
        return f"{self.key}.json"

    @property
    def uri(self) -> str:
        """Return the URI that a job is given, with a slash at its end."""
        return f"s3://{self.bucket}/{self.key}/"
