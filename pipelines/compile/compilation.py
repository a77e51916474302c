"""A compiled pipeline, and the folders of code in S3 that its definition refers to.

A folder is stored under the hash of its content: the same content has the same key, whatever the
time, the machine or the path of the checkout. So an upsert of an unchanged commit changes nothing,
and the step cache stays valid (#2736 #2940 #3384).
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

from pipelines.compile.package_lock import (
    PACKAGES,
    merge_entries,
    parse_lock,
    select_with_dependencies,
)
from pipelines.compile.user_code import REQUIREMENTS
from pipelines.recipe.sections import Budget
from steps.train.train_script import Project
from training.export import shipped_files
from trainyard.common.errors import DefinitionError
from trainyard.plan.deployed_pipeline import State

# Wheelhouses: for each job, a folder with the wheels that it installs, so that it needs no
# package index.
#
# The name of a wheelhouse is a hash of the text of the requirements. So a definition can be
# compiled before the wheelhouse exists, and every later execution with the same text installs the
# wheels that were uploaded first.

_INCLUDE = re.compile(r"^\s*(?:-r|--requirement|-c|--constraint)[ =]*(\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Requirements:
    """A requirements file, and those that it includes."""

    name: str
    """Path in the folder of the job."""

    files: Mapping[str, bytes] = field(repr=False)
    """Mapping of path to content, of this file and of those that it includes."""

    @classmethod
    def from_folder(cls, name: str, folder: Mapping[str, bytes]) -> "Requirements":
        """Return the requirements file ``name`` of a job's folder.

        Args:
            name: path of the file in the folder.
            folder: mapping of path to content.

        Raises:
            DefinitionError: a file that is included is not in the folder.
        """
        return cls(name, dict(_iter_included_files(name, folder, set())))


def _iter_included_files(
    name: str, folder: Mapping[str, bytes], visited_names: set[str]
) -> Iterator[tuple[str, bytes]]:
    """Yield (path, content) of a requirements file and of all files that it includes."""
    if name in visited_names:
        return
    visited_names.add(name)
    if name not in folder:
        raise DefinitionError(f"packages.wheelhouse: the requirements include {name}, which is not "
                              "in the script's folder; add the file there")  # fmt: skip
    yield name, folder[name]
    for other in _INCLUDE.findall(folder[name].decode(errors="replace")):
        yield from _iter_included_files(
            (PurePosixPath(name).parent / other).as_posix(), folder, visited_names
        )


def list_requirements(
    folder: Mapping[str, bytes], script: Project | None
) -> tuple[Requirements, ...]:
    """Return what a job installs: from its own folder, and from the folder of the user's script.

    Raises:
        DefinitionError: a requirements file includes one that is not in its folder.
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
    """Requirements files that the job installs, in this order."""

    python: tuple[str, ...]
    """Python versions that the wheels are for, such as ``3.12``."""

    @property
    def key(self) -> str:
        """Key prefix of the wheels, without a slash at its end."""
        digest = hashlib.sha256(" ".join(self.python).encode())
        for requirements in self.lists:
            for name, content in sorted(requirements.files.items()):
                digest.update(f"{len(name)}:{name}{len(content)}:".encode())
                digest.update(content)
        return f"{self.prefix}/{digest.hexdigest()[:32]}"

    @property
    def manifest(self) -> str:
        """Key of the manifest, which maps wheels to SHA-256 hashes, and is written last."""
        return f"{self.key}.json"

    @property
    def uri(self) -> str:
        """URI that a job gets, with a slash at its end."""
        return f"s3://{self.bucket}/{self.key}/"


JOBS = "steps/requirements.txt"
"""Requirements of the jobs of WITH_WORKLOAD."""
WITH_WORKLOAD = ("shard", "train", "evaluate", "transform")
"""Steps that import the workload; the others install only the packages listed for each."""


@dataclass(frozen=True)
class Asset:
    """A folder of files that belongs at ``s3://<bucket>/<prefix>/<hash>/``."""

    bucket: str
    prefix: str
    files: Mapping[str, bytes] = field(repr=False)
    """Mapping of path inside the folder, with forward slashes, to content."""

    @cached_property
    def sha256(self) -> str:
        """Hash over the sorted names and contents.

        Each is preceded by its length, so that no two different folders give the same input.
        """
        digest = hashlib.sha256()
        for name, content in sorted(self.files.items()):
            digest.update(f"{len(name)}:{name}{len(content)}:".encode())
            digest.update(content)
        return digest.hexdigest()

    @property
    def key(self) -> str:
        """Key prefix in the bucket, without a slash at its end; it has 128 bits of the hash."""
        return f"{self.prefix}/{self.sha256[:32]}"

    @property
    def uri(self) -> str:
        """URI with a slash at its end, because SageMaker takes every key that starts with it."""
        return f"s3://{self.bucket}/{self.key}/"


def read_folder(root: Path) -> dict[str, bytes]:
    """Return a mapping of name to content of the files below ``root``, without tools' caches."""
    return {name: path.read_bytes() for name, path in shipped_files.iter_files(root, hidden=True)}


def collect_step_code(
    checkout: Path, step: str, source: Path | None, packages: Sequence[str] = ()
) -> dict[str, bytes]:
    """Return the folder that runs a step: its job and the packages that it imports, nothing else.

    Args:
        checkout: root of the checkout.
        step: name of the step.
        source: folder of the user's own workload; its requirements.txt, if it has one, is added to
            ours.
        packages: requirements of this step only.

    Raises:
        DefinitionError: the checkout or ``source`` does not contain a file that the job needs, or
            the lock does not contain a package that the step needs.
    """
    if source is not None and not source.is_dir():
        raise DefinitionError(f"workload.source: {source} is not a folder; it must hold a package")
    package_names = [*packages]
    try:
        if step in WITH_WORKLOAD:
            package_names = [
                *parse_requirement_lines((checkout / JOBS).read_text(encoding="utf-8")),
                *package_names,
            ]
        else:
            source = None
        # Only the step's own files: a change in steps/evaluate/job.py must not change the code of
        # the other steps, because they would all miss the cache.
        files = {"steps/__init__.py": b"", f"steps/{step}/__init__.py": b""}
        files |= {n: path.read_bytes() for n, path in shipped_files.iter_step_files(checkout, step)}
        if package_names:
            files |= _build_requirements(checkout, step, package_names, source)
    except FileNotFoundError as error:
        raise DefinitionError(
            f"step {step}: {error.filename} is missing; build the definition in a complete checkout"
        ) from None
    return (read_folder(source) if source else {}) | files


def _build_requirements(
    checkout: Path, step: str, package_names: Sequence[str], source: Path | None = None
) -> dict[str, bytes]:
    """Return requirements.txt: the lock's entries for ``package_names`` and their dependencies.

    The requirements of the user's workload are added.
    """
    lock = parse_lock((checkout / PACKAGES).read_text(encoding="utf-8"), PACKAGES)
    entries = select_with_dependencies(lock, package_names, f"step {step}")
    if source is not None and (user_file := source / "requirements.txt").is_file():
        more = parse_lock(user_file.read_text(encoding="utf-8"), f"workload.source: {user_file}")
        entries = merge_entries(entries, more, f"workload.source: {user_file}")
    return {"requirements.txt": "".join(entry.line for entry in entries).encode()}


def parse_requirement_lines(text: str) -> list[str]:
    """Return the requirements in a file with one name and version range per line."""
    return [line for part in text.splitlines() if (line := part.partition("#")[0].strip())]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledPipeline:
    """A compiled pipeline: everything that an upsert uploads."""

    name: str
    description: str
    region: str
    role: str
    body: str
    """The definition as JSON text."""

    assets: tuple[Asset, ...]
    """Folders that the definition refers to."""

    max_parallel_steps: int
    tags: dict[str, str]
    kms_key: str | None
    budget: Budget = Budget()
    """Limit on the cost of an execution."""

    recipe_fields: Mapping[str, str] = field(default_factory=dict)
    """Mapping of path to JSON of the recipe's fields that are not part of the definition."""

    account: str | None = None
    """ID of the only account in which the pipeline may be upserted; None for any account."""

    environment: str | None = None
    """Environment of the recipe; None without one."""

    wheelhouses: tuple[Wheelhouse, ...] = ()
    """Folders of wheels that ``pipelines.package`` must have uploaded before the upsert."""

    @property
    def sha256(self) -> str:
        """Return the hash of the definition's text."""
        return hashlib.sha256(self.body.encode()).hexdigest()

    @property
    def state(self) -> State:
        """State of the pipeline that an upsert would create."""
        return State(
            name=self.name,
            definition=self.body,
            role=self.role,
            description=self.description,
            max_parallel_steps=self.max_parallel_steps,
            tags=self.tags,
        )
