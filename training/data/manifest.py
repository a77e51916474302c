"""Manifests: what one instance wrote into a folder of shards.

A manifest is written last, so a shard that no manifest names is not part of the dataset.
docs/shards.md describes the format for people who read it without Trainyard.
"""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic import Field as Constraint

from errors import DataError

FORMAT = 2

Samples = dict[str, np.ndarray]
"""n samples by field: (n, *shape); of a variable-width field its values one after the other, and
under ``<field>_offsets`` n + 1 int64 numbers: sample i is ``values[offsets[i]:offsets[i + 1]]``."""

Count = Annotated[int, Constraint(ge=0)]


class Frozen(BaseModel):
    """A part of a manifest: unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Field(Frozen):
    """One field of a sample."""

    dtype: Literal[
        "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
        "float16", "float32", "float64",
    ]  # fmt: skip
    shape: tuple[int, ...] | None = ()
    """Of one sample: () for a number; None for a flat array whose width varies."""


class Source(Frozen):
    """What one raw object gave to this split."""

    name: str
    """The object's path below the input prefix."""
    records: Count
    """Records that went into this split."""
    duplicates: Count = 0
    """Records that were left out, in all splits, because an earlier one was equal."""
    quarantined: Count = 0
    """Records that could not be read, in all splits."""
    samples: Count
    statistics: dict[str, Any] = {}
    """What the workload counted over the records of this split."""


class Files(Frozen):
    """Size and SHA-256 of one file for each shard."""

    bytes: list[int] = []
    sha256: list[str] = []


class Shards(Files):
    """The shards as a table, column by column: 100,000 rows are read in a fraction of a second."""

    file: list[str] = []
    samples: list[int] = []
    source: list[int] = []
    """Index into the manifest's sources."""
    values: dict[str, Files] = {}
    """Variable-width field → its files, ``<stem>.<field>.npy``."""

    def __len__(self) -> int:
        return len(self.file)

    # Checked column by column, not value by value: that would double the time to open a dataset.
    @model_validator(mode="after")
    def _columns_fit(self) -> Self:
        tables = [self, *self.values.values()]
        hashes, sizes = [table.sha256 for table in tables], [table.bytes for table in tables]
        numbers = [self.samples, self.source, *sizes]
        if len({len(column) for column in (self.file, *hashes, *numbers)}) > 1:
            raise ValueError("the columns are of different lengths")
        if any(column and min(column) < 0 for column in numbers):
            raise ValueError("a number is below 0")
        if any(set(map(len, column)) - {64} for column in hashes):
            raise ValueError("a sha256 has not 64 hexadecimal digits")
        for column in hashes:
            bytes.fromhex("".join(column))  # a ValueError names what is no hexadecimal digit
        # A name leads to a file beside the manifest, nowhere else.
        joined = "\n".join((*self.file, ""))
        if "/" in joined or "\\" in joined or joined.count(".npy\n") != len(self.file):
            raise ValueError("a file is no name of a shard: <name>.npy, without a folder")
        return self


class Manifest(Frozen):
    """What one instance wrote for one split."""

    # Hardly a string stands twice: looking each up in a cache takes as long as parsing it.
    model_config = ConfigDict(cache_strings="none")

    format: Literal[2] = FORMAT
    split: str
    fields: dict[str, Field]
    """Fields of a sample, in the order in which they stand in a row."""
    workload: dict[str, Any]
    """What the workload needs to know again to read its samples (tokenizer and the like)."""
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


def write_manifest(manifest: Manifest, path: Path) -> None:
    """A manifest is whole or not there."""
    write_atomically(path, manifest.model_dump_json(indent=1).encode())


def write_atomically(path: Path, *parts: bytes | memoryview) -> None:
    """The file appears under its name with all of its content, or not at all.

    The temporary name is unique: a process that was believed dead may still write the same file.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    temporary = Path(name)
    try:
        with open(descriptor, "wb") as file:
            os.chmod(descriptor, 0o644)  # mkstemp's 0600 would hide it from the next job's user
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """After this the new name outlives a power cut too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def parse_manifest(name: str, content: bytes) -> Manifest:
    """A manifest from its JSON.

    Raises:
        DataError: it is damaged, or of another format.
    """
    try:
        return Manifest.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "file"
        raise DataError(f"{name}: {field}: {first['msg']}; shard the data again") from None


def read_manifests(folder: Path) -> dict[str, Manifest]:
    """Every manifest in the folder by file name, in the order of their names.

    Raises:
        DataError: one is damaged, or of another format.
    """
    paths = sorted(folder.glob("manifest-*.json"))
    return {path.name: parse_manifest(str(path), path.read_bytes()) for path in paths}
