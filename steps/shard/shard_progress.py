"""Progress records, which tell the job's processes and instances what has been done.

There is one record for each raw object read, one for the survey, and one for each unit packed. Each
instance has its own folder of records, even on a file system that several instances share.
"""

import hashlib
import logging
import shutil
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from steps.shard.shard_plan import Plan
from training.data.manifest import Shards
from trainyard.common import atomic_file

log = logging.getLogger(__name__)


class Record(BaseModel):
    """A progress record, or a part of one."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Kind = TypeVar("Kind", bound=Record)


class RunFile(Record):
    """A sorted run that was written."""

    name: str
    records: int
    bytes: int
    """Bytes of the records' content, as ``Keys.size`` counts them."""


class ReadResult(Record):
    """Result of reading one raw object, or the part of it that this instance has."""

    source: str
    """Name of the raw object."""
    unit: str
    """``RawObject.unit``."""
    records: int
    """Number of records, including duplicates and bad ones."""
    duplicates: int
    """Number of records left out because an equal one is in the same run."""
    quarantined: int
    reasons: list[str]
    """Reasons why the first bad records were quarantined."""
    runs: list[RunFile]


class SplitOutput(Record):
    """Output of a unit to one split."""

    records: int
    samples: int
    statistics: dict[str, Any]
    shards: Shards


class PackedUnit(Record):
    """Output of one unit to each split."""

    splits: dict[str, SplitOutput]


def write_progress(record: Record, stem: str, folder: Path) -> None:
    """Write ``<folder>/<stem>.json``, after all files that the record names have been written."""
    body = record.model_dump_json().encode()
    atomic_file.write_file(folder / f"{stem}.json", _compute_checksum(body).encode() + b"\n" + body)


def read_progress(kind: type[Kind], stem: str, folder: Path) -> Kind | None:
    """Return the record in ``<folder>/<stem>.json``; None if missing, incomplete or damaged."""
    try:
        return parse_record(kind, (folder / f"{stem}.json").read_bytes())
    except FileNotFoundError:
        return None


def parse_record(kind: type[Kind], content: bytes) -> Kind | None:
    """Return the record in a file's content; None if it is incomplete or damaged."""
    seal, _, body = content.partition(b"\n")
    if seal != _compute_checksum(body).encode():
        return None
    try:
        return kind.model_validate_json(body)
    except ValidationError:
        return None


def remove_leftovers(plan: Plan) -> None:
    """Remove the files that an earlier, killed run of the job left on this instance.

    The manifests are removed first, because they name the other files. Then follow half-written
    files, progress records and sorted runs.
    """
    # Patterns of half-written files, as ``atomic_file`` names them.
    halves = {"quarantine": f".summary-{plan.host}.json.*"}
    halves |= dict.fromkeys(plan.folders, f".manifest-{plan.host}.json.*")
    for folder in plan.folders:
        (plan.output / folder / f"manifest-{plan.host}.json").unlink(missing_ok=True)
    for folder, pattern in halves.items():
        for half in (plan.output / folder).glob(pattern):
            half.unlink(missing_ok=True)
    for path in (plan.progress, plan.scratch):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)


def _compute_checksum(body: bytes) -> str:
    """Return the checksum that precedes a record in its file."""
    return hashlib.sha256(body).hexdigest()
