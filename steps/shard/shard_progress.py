"""Keep records of what is done, so that a run can continue one that was killed.

There is one for each raw object read, one for the survey, one for each unit packed. All
belong to one instance: on a file system that several share, each has a folder of its own.
"""

import hashlib
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from steps.shard.raw_objects import RawObject
from steps.shard.shard_object import ShardObject
from steps.shard.shard_plan import Plan
from training.data.manifest import Shards
from trainyard.common import atomic_file
from trainyard.common.hashes import file_sha256

log = logging.getLogger(__name__)


class Record(BaseModel):
    """A record of any kind."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    identity: dict[str, str | int | bool]
    """Inputs of the recorded work: the record counts only for equal inputs."""


Kind = TypeVar("Kind", bound=Record)


class RunFile(BaseModel):
    """A sorted run that was written."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    records: int
    bytes: int
    """Bytes of the records' content, as ``Keys.size`` counts them."""
    sha256: str


class Read(Record):
    """Findings in one raw object, or in the part of it that this instance has."""

    unit: str
    """``RawObject.unit``."""
    records: int
    """Number of records: good, equal and bad ones."""
    duplicates: int
    """Records that equal another one of the same run."""
    quarantined: int
    reasons: list[str]
    """Reasons why the first bad records were quarantined."""
    quarantine: str | None
    """SHA-256 of the quarantine file; None without one."""
    content: str
    """SHA-256 over the good records, in their order."""
    ties: list[tuple[int, int]] = []
    """For a part of an object where equal records stay: place of each good file in the whole, and
    the hash of its record. ``content`` of the whole follows from those of all parts."""
    runs: list[RunFile]

    @property
    def source(self) -> str:
        """Return the name of the raw object."""
        return str(self.identity["source"])


class Part(BaseModel):
    """Output of a unit to one split."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    records: int
    samples: int
    statistics: dict[str, Any]
    shards: Shards


class Packed(Record):
    """Output of one unit."""

    splits: dict[str, Part]

    def files(self) -> Iterator[tuple[str, str]]:
        """Yield (path below the output folder, SHA-256) of every file that was written."""
        for split, part in self.splits.items():
            for row, file in enumerate(part.shards.file):
                yield f"{split}/{file}", part.shards.sha256[row]
                for field, values in part.shards.values.items():
                    name = f"{file.removesuffix('.npy')}.{field}.npy"
                    yield f"{split}/{name}", values.sha256[row]


def identity(raw: RawObject, plan: Plan) -> dict[str, str | int | bool]:
    """Return the identity that a progress record must have to count for ``raw`` now."""
    return {
        "source": raw.name,
        "bytes": raw.bytes,
        "modified": raw.modified,
        "settings": plan.settings,
        "code": plan.code,
    }


def write(record: Record, stem: str, folder: Path) -> None:
    """Write the record; all files that it names must have been written before."""
    body = record.model_dump_json().encode()
    atomic_file.write(folder / f"{stem}.json", _seal(body).encode() + b"\n" + body)


def read(kind: type[Kind], stem: str, identity: Mapping[str, Any], folder: Path) -> Kind | None:
    """Return the record; None unless it exists, is whole and has this identity."""
    try:
        return parsed(kind, (folder / f"{stem}.json").read_bytes(), identity)
    except FileNotFoundError:
        return None


def parsed(kind: type[Kind], content: bytes, identity: Mapping[str, Any]) -> Kind | None:
    """Return the record that a file holds; None unless it is whole and has this identity."""
    seal, _, body = content.partition(b"\n")
    if seal != _seal(body).encode():
        return None
    try:
        record = kind.model_validate_json(body)
    except ValidationError:
        return None
    return record if record.identity == identity else None


def already_read(objects: Sequence[RawObject], plan: Plan) -> dict[RawObject, Read]:
    """Return the objects that an earlier run has read; whether their runs still exist is not
    checked.
    """
    found = {raw: read(Read, raw.unit, identity(raw, plan), plan.progress) for raw in objects}
    return {
        raw: one
        for raw, one in found.items()
        if one and (not one.quarantine or _is(_quarantine(raw, plan), one.quarantine))
    }


def with_runs(done: Mapping[RawObject, Read], plan: Plan, processes: int) -> dict[RawObject, Read]:
    """Return the objects whose sorted runs are still as written; every run is hashed, in threads,
    since hashing does not hold Python's lock.
    """

    def whole(one: Read) -> bool:
        return all(is_whole(plan.scratch / run.name, run) for run in one.runs)

    if done:
        log.info("%d raw objects are done already: checking their sorted runs", len(done))
    with ThreadPoolExecutor(processes) as pool:
        found = zip(done.items(), pool.map(whole, done.values()), strict=True)
        return dict(item for item, good in found if good)


def already_packed(
    units: Sequence[ShardObject], plan: Plan, processes: int
) -> dict[ShardObject, Packed]:
    """Return the units that an earlier run packed, and whose files are still as written."""

    def checked(unit: ShardObject) -> Packed | None:
        one = read(Packed, unit.stem, unit.identity, plan.progress)
        if one is None or set(one.splits) != set(plan.tables):  # for example without a summary
            return None
        whole = all(_is(plan.output / name, sha256) for name, sha256 in one.files())
        return one if whole else None

    with ThreadPoolExecutor(processes) as pool:
        found = zip(units, pool.map(checked, units), strict=True)
        return {unit: one for unit, one in found if one is not None}


def remove_leftovers(objects: Iterable[RawObject], plan: Plan) -> None:
    """Delete all files of these objects, whole or half; each folder is listed once."""
    folders = [plan.scratch, plan.progress, plan.output / "quarantine"]
    _remove({raw.unit for raw in objects}, folders)


def remove_half_packed(units: Iterable[ShardObject], plan: Plan) -> None:
    """Delete all files of these units, whole or half; each folder is listed once."""
    folders = [plan.progress, *(plan.output / table for table in plan.tables)]
    _remove({unit.stem for unit in units}, folders)


def _remove(stems: set[str], folders: Iterable[Path]) -> None:
    for folder in folders:
        for entry in os.scandir(folder):
            if entry.name.lstrip(".")[:16] in stems:
                # A worker that was believed dead may be deleting its own temporary file.
                Path(entry.path).unlink(missing_ok=True)


def is_whole(path: Path, run: RunFile) -> bool:
    """Return whether the run is still as it was written."""
    return _is(path, run.sha256)


def _quarantine(raw: RawObject, plan: Plan) -> Path:
    return plan.output / "quarantine" / f"{raw.unit}.jsonl"


def _is(path: Path, sha256: str) -> bool:
    try:
        return file_sha256(path) == sha256
    except FileNotFoundError:
        return False


def _seal(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
