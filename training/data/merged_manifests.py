"""Merge a folder's manifests into one dataset: its shards, their order, its fingerprint.

Nothing here depends on which instance wrote which shard.
"""

import functools
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from training.data.manifest import FORMAT, Source
from training.data.manifest_columns import Columns, ShardTable
from trainyard.common.errors import DataError


@dataclass(frozen=True, kw_only=True)
class MergedManifests(ShardTable):
    """The merged manifests of a split; shards are ordered by hash, then by name."""

    names: np.ndarray
    """Names of the shards' files: bytes, shape (shards,)."""
    fingerprint: str
    """SHA-256 over the description of a sample and the hashes of all shards: identifies the
    dataset.
    """
    units: Mapping[str, Sequence]
    """Fields of ``Source`` as columns: what the manifests say about the units."""

    @functools.cached_property
    def files(self) -> np.ndarray:
        """Names of the shards' files: strings, shape (shards,)."""
        return self.names.astype(str).astype(object)

    @functools.cached_property
    def sources(self) -> Sequence[Source]:
        """The ``Source`` of each unit (records that are packed together), sorted by its name."""
        rows = {name: row for row, name in enumerate(self.units["name"])}
        return [
            Source(**{field: column[rows[name]] for field, column in self.units.items()})
            for name in sorted(rows)
        ]


def merge_manifests(location: object, manifests: Mapping[str, Columns]) -> MergedManifests:
    """Merge manifests, given by file name; a shard that two of them list is read once.

    Raises:
        DataError: there is no manifest, or they do not form one dataset.
    """
    if not manifests:
        raise DataError(
            f"{location}: holds no manifest-*.json, so no complete dataset; "
            "was it written by the shard step, and did that step succeed?"
        )
    kinds = {_describe_samples(manifest) for manifest in manifests.values()}
    kind, *others = kinds
    if others:
        names = ", ".join(manifests)
        raise DataError(
            f"{location}: {names} disagree about what a sample is; shard the data again"
        )
    parts = list(manifests.values())
    sources = {
        name: list(itertools.chain.from_iterable(part.sources[name] for part in parts))
        for name in Source.model_fields
    }
    _check_parts(location, parts, sources)
    table = _join_shards(parts)
    table["digest"] = _hash_shards(table["sha256"])
    rows = _select_rows(location, table)
    table = {name: column[rows] for name, column in table.items()}
    fingerprint = hashlib.sha256(kind.encode())
    fingerprint.update(np.ascontiguousarray(table["digest"]).data)
    return MergedManifests(
        split=parts[0].split,
        fields=parts[0].fields,
        workload=parts[0].workload,
        names=table["names"],
        samples=table["samples"],
        source=table["source"],
        bytes=table["bytes"],
        sha256=table["sha256"],
        fingerprint=fingerprint.hexdigest(),
        units=sources,
        raw=parts[0].raw,
    )


def _describe_samples(manifest: Columns) -> str:
    """Return a text that identifies the kind of samples; of keys only ``fields``' order matters."""
    fields = [(name, field.dtype, field.shape) for name, field in manifest.fields.items()]
    workload = sorted(manifest.workload.items())
    return f"{FORMAT} {manifest.split} {fields!r} {workload!r}"


def _check_parts(
    location: object, parts: Sequence[Columns], sources: Mapping[str, Sequence]
) -> None:
    """Check that the manifests are of the same run of the shard step, and that none is missing.

    Raises:
        DataError: they disagree, or one is missing.
    """
    names = sources["name"]
    first_rows: dict[str, int] = {}
    for row, name in enumerate(names) if len(set(names)) != len(names) else ():
        first = first_rows.setdefault(name, row)
        if any(column[row] != column[first] for column in sources.values()):
            raise DataError(
                f"{location}: two manifests disagree about {name}, so they come from two different "
                "runs; empty the folder and shard the data again"
            )
    # Every instance reads all raw objects, so all must state the same about them.
    if any(part.raw != parts[0].raw for part in parts[1:]):
        raise DataError(
            f"{location}: the manifests disagree about the raw objects, so they come from "
            "different "
            "runs, or the instances were given different data; empty the folder and shard the "
            "data again"
        )
    # Without this check the units of a missing manifest would be absent without notice.
    for part in parts:
        if part.units is not None and part.units != len(set(names)):
            raise DataError(
                f"{location}: its {len(parts)} manifests list {len(set(names))} of {part.units} "
                "units; copy the manifests and shards of all instances"
            )


def _join_shards(parts: Sequence[Columns]) -> dict[str, np.ndarray]:
    """Join the shards of all manifests into one table; ``source`` is renumbered to rows of the
    joined sources.
    """
    befores = itertools.accumulate((len(part.sources["name"]) for part in parts), initial=0)
    columns = {
        "names": [part.files for part in parts],
        "samples": [part.samples for part in parts],
        "source": [part.source + before for part, before in zip(parts, befores, strict=False)],
        "bytes": [part.bytes for part in parts],
        "sha256": [part.sha256 for part in parts],
    }
    return {name: np.concatenate(arrays) for name, arrays in columns.items()}


def _hash_shards(hashes: np.ndarray) -> np.ndarray:
    """Return one hash per shard, shape (shards,), V32; for a shard of several files, a hash of
    their hashes.
    """
    if hashes.shape[1] == 1:
        return hashes[:, 0]
    texts = ("\n".join(row.tobytes().hex() for row in rows).encode() for rows in hashes)
    digests = b"".join(hashlib.sha256(text).digest() for text in texts)
    return np.frombuffer(digests, "V32")


def _select_rows(location: object, table: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the rows to read, each file once, ordered by hash, then by name.

    Raises:
        DataError: two manifests list a file with different hashes.
    """
    files = [name.decode() for name in table["names"].tolist()]
    hashes = [digest.tobytes() for digest in table["digest"]]
    # Keep only the first row of each file.
    hash_by_file: dict[str, bytes] = {}
    rows = []
    for row, (file, sha256) in enumerate(zip(files, hashes, strict=True)):
        if file not in hash_by_file:
            hash_by_file[file] = sha256
            rows.append(row)
        elif hash_by_file[file] != sha256:
            raise DataError(
                f"{location}: two manifests name {file} with different hashes, so they come from "
                "two "
                "different runs; empty the folder and shard the data again"
            )
    return np.array(sorted(rows, key=lambda row: (hashes[row], files[row])), np.int64)
