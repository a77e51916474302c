"""One record for each raw object that is done, so that a run goes on where another was killed."""

import hashlib
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from steps.shard.plan import SPLITS, Plan
from steps.shard.raw import RawObject
from training.data.manifest import Shards, write_atomically
from training.data.verify import sha256_of

log = logging.getLogger(__name__)

FOLDERS = (*SPLITS, "quarantine", "progress")


class Part(BaseModel):
    """What a raw object gave to one split."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    records: int
    samples: int
    statistics: dict[str, Any]
    shards: Shards


class Progress(BaseModel):
    """What became of one raw object."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    identity: dict[str, str | int]
    records: int
    """Good, equal and bad ones."""
    duplicates: int
    quarantined: int
    reasons: list[str]
    """Why the first of them were quarantined."""
    quarantine: str | None
    """SHA-256 of the quarantine file, if there is one."""
    splits: dict[str, Part]

    def files(self, raw: RawObject) -> Iterator[tuple[str, str]]:
        """(path below the output folder, SHA-256) of every file that was written."""
        if self.quarantine:
            yield f"quarantine/{raw.unit}.jsonl", self.quarantine
        for split, part in self.splits.items():
            for row, file in enumerate(part.shards.file):
                yield f"{split}/{file}", part.shards.sha256[row]
                for field, values in part.shards.values.items():
                    name = f"{file.removesuffix('.npy')}.{field}.npy"
                    yield f"{split}/{name}", values.sha256[row]


class Sealed(BaseModel):
    """A record as it is on the disk: with the hash of itself."""

    sha256: str
    progress: Progress


def identity(raw: RawObject, plan: Plan) -> dict[str, str | int]:
    """What a record must have been made of to count for ``raw`` now."""
    return {
        "source": raw.name,
        "bytes": raw.bytes,
        "modified": raw.modified,
        "settings": plan.settings,
        "code": plan.code,
    }


def write(progress: Progress, raw: RawObject, plan: Plan) -> None:
    """All of the object's files must be on the disk: the record comes last."""
    sealed = Sealed(sha256=_seal(progress), progress=progress)
    path = plan.output / "progress" / f"{raw.unit}.json"
    write_atomically(path, sealed.model_dump_json().encode())


def read(raw: RawObject, plan: Plan) -> Progress | None:
    """The record of ``raw``, or None when there is none that is whole and of these settings."""
    try:
        content = (plan.output / "progress" / f"{raw.unit}.json").read_bytes()
        sealed = Sealed.model_validate_json(content)
    except (FileNotFoundError, ValidationError):
        return None
    whole = _seal(sealed.progress) == sealed.sha256
    return sealed.progress if whole and sealed.progress.identity == identity(raw, plan) else None


def taken_over(
    objects: Sequence[RawObject], plan: Plan, processes: int
) -> dict[RawObject, Progress]:
    """The objects that an earlier run finished, and whose files still are what it wrote.

    Every file is read and hashed, in threads: hashing does not hold Python's lock.
    """
    if next((plan.output / "progress").glob("*.json"), None):
        log.info("an earlier run left finished objects: reading all of their files again")
    with ThreadPoolExecutor(processes) as pool:
        found = pool.map(lambda raw: _read_checked(raw, plan), objects)
        return {raw: one for raw, one in zip(objects, found, strict=True) if one is not None}


def remove_leftovers(objects: Iterable[RawObject], output: Path) -> None:
    """Delete whatever there is of these objects, whole or half; each folder is listed once."""
    units = {raw.unit for raw in objects}
    for folder in FOLDERS:
        for entry in os.scandir(output / folder):
            if entry.name.lstrip(".")[:16] in units:
                # One that was believed dead may delete its own temporary file just now.
                Path(entry.path).unlink(missing_ok=True)


def _read_checked(raw: RawObject, plan: Plan) -> Progress | None:
    progress = read(raw, plan)
    if progress is None:
        return None
    try:
        files = progress.files(raw)
        whole = all(sha256_of(plan.output / name) == sha256 for name, sha256 in files)
    except FileNotFoundError:
        whole = False
    return progress if whole else None


def _seal(progress: Progress) -> str:
    return hashlib.sha256(progress.model_dump_json().encode()).hexdigest()
