"""Manifests: what a folder of shards holds, and the fingerprint that names the dataset.

A folder holds one manifest for each instance that wrote into it; the dataset is their union. A
manifest is written last, so a shard that no manifest names is not part of the dataset.
"""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from errors import DataError

FORMAT = 1


class Shard(BaseModel):
    """One file of samples: a flat little-endian array of ``samples`` × ``width`` elements."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: str = Field(pattern=r"^[\w.-]+$")
    samples: int = Field(ge=1)
    bytes: int = Field(ge=1)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Manifest(BaseModel):
    """What one instance wrote for one split."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1] = FORMAT
    dtype: Literal["uint16", "uint32"]
    width: int = Field(ge=1)
    """Elements in a sample."""
    shards: tuple[Shard, ...]
    records: int = Field(ge=0)
    """Raw records that went into this split."""
    quarantined: int = Field(ge=0)
    """Raw records that could not be read, in all splits of the instance."""
    workload: dict[str, Any]
    """What the workload needs to know again to read its samples (tokenizer and the like)."""

    @property
    def samples(self) -> int:
        return sum(shard.samples for shard in self.shards)


def write_manifest(manifest: Manifest, path: Path) -> None:
    """Write to a temporary name, flush, rename: a manifest is whole or not there."""
    write_atomically(path, manifest.model_dump_json(indent=1).encode())


def write_atomically(path: Path, content: bytes) -> None:
    """The file appears under its name with all of its content, or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def read_manifests(folder: Path) -> list[tuple[Path, Manifest]]:
    """Every manifest in the folder, by name.

    Raises:
        DataError: there is none, one is damaged, or they disagree about the format of a sample.
    """
    found = [(path, _read(path)) for path in sorted(folder.glob("manifest-*.json"))]
    if not found:
        raise DataError(
            f"{folder}: holds no manifest-*.json, so no complete dataset; "
            "was it written by the shard step, and did that step succeed?"
        )
    kinds = {(m.dtype, m.width, repr(sorted(m.workload.items()))) for _, m in found}
    if len(kinds) > 1:
        names = ", ".join(path.name for path, _ in found)
        raise DataError(f"{folder}: {names} disagree about what a sample is; shard the data again")
    return found


def _read(path: Path) -> Manifest:
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "file"
        raise DataError(f"{path}: {field}: {first['msg']}; shard the data again") from None


def fingerprint(manifests: Iterable[Manifest]) -> str:
    """SHA-256 over what a sample is and the sorted hashes of all shards."""
    manifests = list(manifests)
    digest = hashlib.sha256()
    kinds = {f"{m.format} {m.dtype} {m.width} {sorted(m.workload.items())!r}" for m in manifests}
    for kind in sorted(kinds):
        digest.update(kind.encode())
    for sha256 in sorted(shard.sha256 for m in manifests for shard in m.shards):
        digest.update(sha256.encode())
    return digest.hexdigest()
