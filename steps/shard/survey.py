"""What is known when all is read, before anything is packed: the units, and what is left out.

A unit is a range of the records' hashes. How many there are follows from the bytes of the distinct
records alone, and so does what is in each: not from how they lay in files, and not from the number
of instances. Every instance has read all raw objects, and comes to the same result.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from steps.shard.raw_objects import RawObject, stem
from steps.shard.shard_object import ShardObject
from steps.shard.shard_plan import Plan
from steps.shard.shard_progress import Record

STEM = "survey"
END = 2**64  # of the hashes

UNIT_SHARDS = 2
"""Largest shards that a unit's content would fill: so a workload that makes half as many bytes of
it still fills one."""
SMALL = 8 * 10**6
"""A smaller unit of content is not made to keep cores busy …"""
BUSY = 16
"""… and of larger ones no more than so many, unless their shards are full."""
SLOT = 4 * 2**20
"""Bytes of content that are packed at once, on average."""


class Survey(Record):
    """What is known of all records together."""

    names: list[str]
    """The raw objects' names, by rank."""
    runs: list[tuple[str, int]]
    """Every sorted run, and the rank of its raw object."""
    lost: list[int]
    """By rank: records that equal one elsewhere, and are left out."""
    bytes: dict[str, int]
    """How many bytes of content stay, by first folder, or under "" all of it."""

    def units(self, plan: Plan) -> list[ShardObject]:
        """All of them, of all instances."""
        made = []
        for folder, size in sorted(self.bytes.items()):
            count = max(size // (UNIT_SHARDS * plan.shard_bytes), min(BUSY, size // SMALL), 1)
            slots = -(-size // (count * SLOT)) or 1
            for number in range(count):
                name = f"{folder}/" * bool(folder) + f"{number:06d}-of-{count:06d}"
                made.append(
                    ShardObject(
                        name=name,
                        folder=folder,
                        number=number,
                        count=count,
                        slots=slots,
                        bytes=size // count,
                        stem=stem(name, plan.settings),
                        corpus=str(self.identity["corpus"]),
                    )
                )
        return made


def identity(objects: Sequence[RawObject], plan: Plan) -> dict[str, Any]:
    """What a survey must have been made of to count now."""
    told = sorted([one.name, one.bytes, one.modified] for one in objects)
    whole = json.dumps([plan.settings, plan.code, told]).encode()
    return {"corpus": hashlib.sha256(whole).hexdigest()}


def ranges(count: int, first: int = 0, last: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield, of ``count`` equal ranges of all hashes, those from ``first`` to before ``last``."""
    for number in range(first, count if last is None else last):
        yield -(-number * END // count), -(-(number + 1) * END // count)


def paths(survey: Survey, plan: Plan) -> list[tuple[Path, int]]:
    """The runs and ranks of their raw objects."""
    return [(plan.scratch / name, rank) for name, rank in survey.runs]
