"""Survey all records after reading, before packing: the units, and the records left out.

A unit is a range of the records' hashes. Their number depends on the bytes of the distinct
records alone, and so does the content of each: not on the layout in files, and not on the number
of instances, all of which come to the same result.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from steps.shard.raw_objects import RawObject, ShardObject, stem
from steps.shard.shard_plan import Plan
from steps.shard.shard_progress import Record
from trainyard.common.hashes import json_sha256

STEM = "survey"
END = 2**64  # end of the range of hashes

UNIT_SHARDS = 2
"""Largest shards that a unit's content would fill, so that a workload whose samples take half the
bytes still fills one."""
SMALL = 8 * 10**6
"""Minimum bytes of content for a unit that is added to keep cores busy."""
BUSY = 16
"""Maximum number of units added to keep cores busy, unless their shards are full."""
SLOT = 4 * 2**20
"""Average bytes of content that are packed at once."""


class Counts(Record):
    """Records of one raw object, wherever its parts were read."""

    name: str
    records: int
    """Number of records: good, equal and bad ones."""
    duplicates: int
    """Number of records left out because an equal one, of whatever object, stays."""
    quarantined: int
    reasons: list[str]
    """Reasons why the first bad records were quarantined."""
    units: list[str]
    """Names of the quarantine files, without suffix."""


class Survey(Record):
    """Survey of all records together."""

    objects: list[Counts]
    """All raw objects, by rank."""
    runs: list[tuple[str, int]]
    """Sorted runs of this instance, each with the rank of its raw object, or of one in the same
    first folder."""
    corpus: str
    """SHA-256 that identifies the raw objects."""
    distinct: bool
    """True if no two records of the runs of all instances are equal any more."""
    bytes: dict[str, int]
    """Bytes of content that stay, by first folder, or under "" all of it."""

    def units(self, plan: Plan) -> list[ShardObject]:
        """Return all units, of all instances."""
        units = []
        for folder, size in sorted(self.bytes.items()):
            count = max(size // (UNIT_SHARDS * plan.shard_bytes), min(BUSY, size // SMALL), 1)
            slots = -(-size // (count * SLOT)) or 1
            for number in range(count):
                name = f"{folder}/" * bool(folder) + f"{number:06d}-of-{count:06d}"
                units.append(
                    ShardObject(
                        name=name,
                        folder=folder,
                        number=number,
                        count=count,
                        slots=slots,
                        bytes=size // count,
                        stem=stem(name, plan.settings),
                        corpus=self.corpus,
                    )
                )
        return units


def corpus_sha256(objects: Sequence[RawObject], plan: Plan) -> str:
    """Return a hash of the raw objects and the settings."""
    entries = sorted([raw.name, raw.bytes, raw.modified_ns] for raw in objects)
    return json_sha256([plan.settings, entries])


def ranges(count: int, first: int = 0, last: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield, of ``count`` equal ranges of all hashes, those from ``first`` to before ``last``."""
    for number in range(first, count if last is None else last):
        yield -(-number * END // count), -(-(number + 1) * END // count)


def paths(survey: Survey, plan: Plan) -> list[tuple[Path, int]]:
    """Return the runs and the ranks of their raw objects."""
    return [(plan.scratch / name, rank) for name, rank in survey.runs]


def shares(units: Sequence[ShardObject], count: int) -> list[list[ShardObject]]:
    """Divide the units, in their order, into ``count`` neighbourhoods of about equal bytes."""
    out: list[list[ShardObject]] = [[] for _ in range(count)]
    total, preceding = sum(unit.bytes for unit in units) or 1, 0
    for unit in units:
        # A unit goes to the part in which its middle lies.
        out[min(count - 1, (2 * preceding + unit.bytes) * count // (2 * total))].append(unit)
        preceding += unit.bytes
    return out
