"""Manifests: what one instance wrote into a folder of shards.

A manifest is written last, so a shard that no manifest names is not part of the dataset.
docs/shards.md describes the format for people who read it without Trainyard. Here is what writes
it; columns.py reads it.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, model_validator
from pydantic import Field as Constraint
from pydantic_core import to_json

from trainyard.common import atomic_file

FORMAT = 4

SUFFIX = ".npy"
"""What the name of a shard's file ends with."""

BLANK = " "
"""Stands between the names of files."""

NAME = re.compile(r"[!-.0-\[\]-~]+\.npy")  # ASCII without blanks, slashes and backslashes
HASH = re.compile("[0-9a-f]{64}")

Samples = dict[str, np.ndarray]
"""n samples by field: (n, *shape); of a variable-width field its values one after the other, and
under ``<field>_offsets`` n + 1 int64 numbers: sample i is ``values[offsets[i]:offsets[i + 1]]``."""

Count = Annotated[int, Constraint(ge=0)]
FieldName = Annotated[str, Constraint(pattern=r"^[^/\\]+$")]
"""A part of the names of files, if the field's width varies."""


class Frozen(BaseModel):
    """A part of a manifest: unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Field(Frozen):
    """One field of a sample."""

    dtype: Literal[
        "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
        "float16", "float32", "float64",
    ]  # fmt: skip
    shape: tuple[Count, ...] | None = ()
    """The shape that one sample has: () for a number; None for a flat array whose width varies."""


class Raw(Frozen):
    """What was found in one raw object, for all splits together."""

    name: str
    """Its path below the input prefix."""
    records: Count
    """Good, equal and bad ones."""
    duplicates: Count = 0
    """Records that were left out because an equal one, of whatever object, stays."""
    quarantined: Count = 0
    """Records that could not be read."""


class Source(Frozen):
    """What one unit gave to this split: some of the records, packed together."""

    name: str
    """``<number>-of-<count>``; before it a raw folder's name, if records were kept apart by it."""
    records: Count
    """Records that went into this split."""
    samples: Count
    statistics: dict[str, Any] = {}
    """What the workload counted over the records of this split."""


class Files(Frozen):
    """Size and SHA-256 of one file for each shard."""

    bytes: list[int] = []
    sha256: list[str] = []


class Shards(Files):
    """The shards as a table, column by column."""

    file: list[str] = []
    samples: list[int] = []
    source: list[int] = []
    """Index into the manifest's sources."""
    values: dict[str, Files] = {}
    """Variable-width field → its files, ``<stem>.<field>.npy``."""

    def __len__(self) -> int:
        return len(self.file)

    @model_validator(mode="after")
    def _columns_fit(self) -> Self:
        tables = [self, *self.values.values()]
        hashes, sizes = [table.sha256 for table in tables], [table.bytes for table in tables]
        numbers = [self.samples, self.source, *sizes]
        if len({len(column) for column in (self.file, *hashes, *numbers)}) > 1:
            raise ValueError("the columns are of different lengths")
        if any(column and min(column) < 0 for column in numbers):
            raise ValueError("a number is below 0")
        if not all(HASH.fullmatch(sha256) for column in hashes for sha256 in column):
            raise ValueError("a sha256 has not 64 hexadecimal digits")
        # A name leads to a file beside the manifest, nowhere else.
        if not all(map(NAME.fullmatch, self.file)):
            raise ValueError("a file is no name of a shard: <name>.npy, without a folder or blank")
        return self


class Head(Frozen):
    """A manifest in JSON, its tables not yet looked at."""

    format: Literal[4] = FORMAT
    split: str
    fields: dict[FieldName, Field]
    """Fields of a sample, in the order in which they stand in a row."""
    workload: dict[str, Any]
    """What the workload needs to know again to read its samples (tokenizer and the like)."""
    raw: Any
    units: Count | None = None
    """Units of all instances together; None: nobody counted."""
    sources: Any
    shards: Any


class Manifest(Head):
    """What one instance wrote for one split, as it is put together to be written."""

    raw: list[Raw] = []
    sources: list[Source]
    shards: Shards

    @property
    def samples(self) -> int:
        return sum(self.shards.samples)

    @model_validator(mode="after")
    def _shards_name_a_source(self) -> Self:
        if self.shards.source and max(self.shards.source) >= len(self.sources):
            raise ValueError("shards.source names a source that is not there")
        return self


def no_samples(fields: Mapping[str, Field]) -> Samples:
    """None of these fields: arrays of their types and shapes without a sample."""
    samples = {name: np.empty((0, *(f.shape or ())), f.dtype) for name, f in fields.items()}
    offsets = {f"{n}_offsets": np.zeros(1, np.int64) for n, f in fields.items() if f.shape is None}
    return samples | offsets


def row_dtype(fields: Mapping[str, Field]) -> np.dtype:
    """The type of a shard's elements: one sample, little-endian, nothing between the fields.

    A variable-width field is (start, stop) in the shard's file of values.
    """
    return np.dtype(
        [
            (name, "<i8", (2,))
            if field.shape is None
            else (name, np.dtype(field.dtype).newbyteorder("<"), field.shape)
            for name, field in fields.items()
        ]
    )


def manifest_json(manifest: Manifest) -> bytes:
    """The manifest as it is written: tables column by column, names and hashes as one string each.

    So 100,000 shards are read without an object for each of their names and hashes. They stand in
    the order of their hashes, so nobody has to sort what one instance wrote.
    """
    whole = manifest.model_dump(mode="json")
    for table, kind in (("raw", Raw), ("sources", Source)):
        rows = whole[table]
        whole[table] = {name: [row[name] for row in rows] for name in kind.model_fields}
    shards = whole["shards"]
    rows = sorted(range(len(manifest.shards)), key=shards["sha256"].__getitem__)
    for table in (shards, *shards["values"].values()):
        for name in table.keys() - {"values"}:
            table[name] = [table[name][row] for row in rows]
    shards["file"] = BLANK.join(shards["file"])
    for table in (shards, *shards["values"].values()):
        table["sha256"] = "".join(table["sha256"])
    return to_json(whole, indent=1)


def write_manifest(manifest: Manifest, path: Path) -> None:
    """A manifest is whole or not there."""
    atomic_file.write(path, manifest_json(manifest))
