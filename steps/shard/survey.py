"""Survey of all records after reading and before packing: the units, and what is left out.

A unit is a range of the records' hashes. The number of units and the content of each depend only on
the distinct records: not on how the records are distributed over files, and not on the number of
instances. All instances compute the same units.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from steps.shard.raw_objects import PackingUnit, RawObject, compute_stem
from steps.shard.shard_plan import Plan
from steps.shard.shard_progress import Record
from trainyard.common.hashes import hash_json

STEM = "survey"
END = 2**64  # end of the range of hashes

UNIT_SHARDS = 2
"""Number of shards, of the maximum size, that a unit's content would fill. It is 2 so that a
workload whose samples take half the bytes still fills one."""
SMALL = 8 * 10**6
"""Minimum bytes of content of a unit that exists only to keep more cores busy."""
BUSY = 16
"""Maximum number of units, unless more are needed by size; enough to keep the cores busy."""
SLOT = 4 * 2**20
"""Average bytes of content that are packed at a time."""


class Counts(Record):
    """Records of one raw object, wherever its parts were read."""

    name: str
    records: int
    """Number of records, including duplicates and bad ones."""
    duplicates: int
    """Number of records left out because an equal one, of any object, is kept."""
    quarantined: int
    reasons: list[str]
    """Reasons why the first bad records were quarantined."""
    units: list[str]
    """Names of the quarantine files, without their suffix."""


class Survey(Record):
    """Survey of all records, as a progress record."""

    objects: list[Counts]
    """All raw objects. An object's index is its rank."""
    runs: list[tuple[str, int]]
    """Sorted runs of this instance, each with the rank of its raw object, or of one in the same
    first folder."""
    corpus: str
    """SHA-256 that identifies the raw objects."""
    distinct: bool
    """True if no two records in the runs of all instances are equal any more."""
    bytes: dict[str, int]
    """Bytes of content that are kept, by first folder. "" is the folder if it does not matter."""

    def list_units(self, plan: Plan) -> list[PackingUnit]:
        """Return the units of all instances."""
        units = []
        for folder, size in sorted(self.bytes.items()):
            count = max(size // (UNIT_SHARDS * plan.shard_bytes), min(BUSY, size // SMALL), 1)
            slots = -(-size // (count * SLOT)) or 1
            for number in range(count):
                name = f"{folder}/" * bool(folder) + f"{number:06d}-of-{count:06d}"
                units.append(
                    PackingUnit(
                        name=name,
                        folder=folder,
                        number=number,
                        count=count,
                        slots=slots,
                        bytes=size // count,
                        stem=compute_stem(name, plan.settings_sha256),
                        corpus=self.corpus,
                    )
                )
        return units


def corpus_sha256(objects: Sequence[RawObject], plan: Plan) -> str:
    """Return a SHA-256 of the settings and of the raw objects' names, sizes and times."""
    entries = sorted([raw.name, raw.bytes, raw.modified_ns] for raw in objects)
    return hash_json([plan.settings_sha256, entries])


def iter_hash_ranges(
    count: int, first: int = 0, last: int | None = None
) -> Iterator[tuple[int, int]]:
    """Yield (low, high) of the ``count`` equal ranges of hashes from ``first`` to ``last`` - 1."""
    for number in range(first, count if last is None else last):
        yield -(-number * END // count), -(-(number + 1) * END // count)


def list_run_paths(survey: Survey, plan: Plan) -> list[tuple[Path, int]]:
    """Return the path of each run of this instance, and the rank of its raw object."""
    return [(plan.scratch / name, rank) for name, rank in survey.runs]


def divide_units(units: Sequence[PackingUnit], count: int) -> list[list[PackingUnit]]:
    """Divide the units, in their order, into ``count`` parts of about equal bytes."""
    out: list[list[PackingUnit]] = [[] for _ in range(count)]
    total, preceding = sum(unit.bytes for unit in units) or 1, 0
    for unit in units:
        # A unit goes to the part that contains its middle.
        out[min(count - 1, (2 * preceding + unit.bytes) * count // (2 * total))].append(unit)
        preceding += unit.bytes
    return out
