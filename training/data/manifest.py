"""Manifests: a record of what one instance wrote into a folder of shards.

A manifest is written last, so a shard that no manifest lists is not part of the dataset.
docs/shards.md describes the format for readers without Trainyard. This module writes manifests;
manifest_columns.py reads them.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict
from pydantic import Field as Constraint
from pydantic_core import to_json

from trainyard.common import atomic_file

FORMAT: Literal[4] = 4

SUFFIX = ".npy"
"""Suffix of a shard's file name."""

BLANK = " "
"""Separator between file names."""

NAME = re.compile(r"[!-.0-\[\]-~]+\.npy")  # ASCII without spaces, slashes and backslashes

Samples = dict[str, np.ndarray]
"""n samples by field, shape (n, *shape). A variable-width field has the values of all samples
one after the other, and n + 1 int64 numbers under ``<field>_offsets``: sample i is
``values[offsets[i]:offsets[i + 1]]``.
"""

Count = Annotated[int, Constraint(ge=0)]
FieldName = Annotated[str, Constraint(pattern=r"^[^/\\]+$")]
"""Name of a field; part of file names if the field's width varies."""


class Frozen(BaseModel):
    """A part of a manifest; unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Field(Frozen):
    """Type and shape of one field of a sample."""

    dtype: Literal[
        "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
        "float16", "float32", "float64",
    ]  # fmt: skip
    shape: tuple[Count, ...] | None = ()
    """Shape of one sample: () for a number; None for a flat array whose width varies."""


class Raw(Frozen):
    """Counts of one raw object, for all splits together."""

    name: str
    """Path of the object relative to the input prefix."""
    records: Count
    """Number of all records, including duplicate and unreadable ones."""
    duplicates: Count = 0
    """Records left out because an equal one, in this or another object, is kept."""
    quarantined: Count = 0
    """Records that could not be read."""


class Source(Frozen):
    """Contribution of one unit to this split; a unit is a set of records that are packed
    together.
    """

    name: str
    """``<number>-of-<count>``, preceded by a raw folder's name if records were kept apart by
    folder."""
    records: Count
    """Number of records that went into this split."""
    samples: Count
    statistics: dict[str, Any] = {}
    """The workload's statistics over the records of this split."""


class Files(Frozen):
    """Size and SHA-256 of one file per shard."""

    bytes: list[int] = []
    sha256: list[str] = []


class Shards(Files):
    """The shards as a table, one list per column."""

    file: list[str] = []
    samples: list[int] = []
    source: list[int] = []
    """Indices into the manifest's sources."""
    values: dict[str, Files] = {}
    """Mapping of a variable-width field to its files, ``<stem>.<field>.npy``."""

    def __len__(self) -> int:
        return len(self.file)


class Head(Frozen):
    """A manifest parsed from JSON, whose tables (raw, sources, shards) are not yet checked."""

    format: Literal[4] = FORMAT
    split: str
    fields: dict[FieldName, Field]
    """Fields of a sample, in the order in which a row contains them."""
    workload: dict[str, Any]
    """Information that the workload needs to read its samples again, such as a tokenizer."""
    raw: Any
    units: Count | None = None
    """Number of units of all instances together; None if it is unknown."""
    sources: Any
    shards: Any


class Manifest(Head):
    """Record of one instance's output for one split, as it is written to the file."""

    raw: list[Raw] = []
    sources: list[Source]
    shards: Shards

    @property
    def samples(self) -> int:
        return sum(self.shards.samples)


def create_empty_samples(fields: Mapping[str, Field]) -> Samples:
    """Return arrays of these fields' types and shapes with no samples."""
    samples = {name: np.empty((0, *(f.shape or ())), f.dtype) for name, f in fields.items()}
    offsets = {f"{n}_offsets": np.zeros(1, np.int64) for n, f in fields.items() if f.shape is None}
    return samples | offsets


def build_row_dtype(fields: Mapping[str, Field]) -> np.dtype:
    """Return the type of a shard's elements: one sample, little-endian, without padding.

    A variable-width field is stored as (start, stop) in the shard's file of values.
    """
    return np.dtype(
        [
            (name, "<i8", (2,))
            if field.shape is None
            else (name, np.dtype(field.dtype).newbyteorder("<"), field.shape)
            for name, field in fields.items()
        ]
    )


def format_manifest(manifest: Manifest) -> bytes:
    """Return the manifest as it is written: tables by column, names and hashes as one string each.

    In this form 100,000 shards are read without an object per name and hash. They are in the order
    of their hashes, so that readers of one instance's manifest need not sort.
    """
    document = manifest.model_dump(mode="json")
    for table, kind in (("raw", Raw), ("sources", Source)):
        rows = document[table]
        document[table] = {name: [row[name] for row in rows] for name in kind.model_fields}
    shards = document["shards"]
    rows = sorted(range(len(manifest.shards)), key=shards["sha256"].__getitem__)
    for table in (shards, *shards["values"].values()):
        for name in table.keys() - {"values"}:
            table[name] = [table[name][row] for row in rows]
    shards["file"] = BLANK.join(shards["file"])
    for table in (shards, *shards["values"].values()):
        table["sha256"] = "".join(table["sha256"])
    return to_json(document, indent=1)


def write_manifest(manifest: Manifest, path: Path) -> None:
    """Write a manifest atomically: it is complete or absent."""
    atomic_file.write_file(path, format_manifest(manifest))
