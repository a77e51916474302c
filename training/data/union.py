"""The union of the manifests in a folder is the dataset: its shards, their order, its fingerprint.

Nothing here depends on which instance wrote which shard.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from errors import DataError
from training.data.manifest import Field, Manifest, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Union:
    """A split as all instances wrote it; the shards are ordered by hash, then by name."""

    split: str
    fields: Mapping[str, Field]
    workload: Mapping[str, Any]
    sources: Sequence[Source]
    """Every raw object that is read, by name: a copy of another one is not among them."""
    files: np.ndarray
    """Names of the shards' files, shape (shards,)."""
    samples: np.ndarray
    """Samples in each shard, int64."""
    bytes: np.ndarray
    """Sizes of each shard's files, shape (shards, 1 + variable-width fields), int64."""
    sha256: np.ndarray
    """Their hashes, of the same shape."""
    fingerprint: str
    """SHA-256 over what a sample is and the hashes of all shards: names the dataset."""


def unite(place: object, manifests: Mapping[str, Manifest]) -> Union:
    """The union of manifests given by file name.

    A raw object that was uploaded twice, under two names, gives the same shards twice: it is read
    once.

    Raises:
        DataError: there is none, or they do not make one dataset together.
    """
    if not manifests:
        raise DataError(
            f"{place}: holds no manifest-*.json, so no complete dataset; "
            "was it written by the shard step, and did that step succeed?"
        )
    kinds = {_kind(manifest) for manifest in manifests.values()}
    if len(kinds) > 1:
        names = ", ".join(manifests)
        raise DataError(f"{place}: {names} disagree about what a sample is; shard the data again")
    sources, columns = _sources(place, manifests.values()), _columns(manifests.values())
    chosen = _chosen(place, columns)
    first, files = next(iter(manifests.values())), columns["file"][chosen]
    copies: set[str] = set()
    if len(chosen) < len(columns["source"]):
        copies = set(columns["source"].tolist()) - set(columns["source"][chosen].tolist())
    return Union(
        split=first.split,
        fields=first.fields,
        workload=first.workload,
        sources=[source for source in sources if source.name not in copies],
        files=files,
        samples=columns["samples"][chosen],
        bytes=columns["bytes"][chosen],
        sha256=columns["sha256"][chosen],
        fingerprint=_fingerprint(*kinds, columns["digest"][chosen]),
    )


def _kind(manifest: Manifest) -> str:
    """What a sample is, in one line: the order of fields counts, that of other keys does not."""
    fields = [(name, field.dtype, field.shape) for name, field in manifest.fields.items()]
    workload = sorted(manifest.workload.items())
    return f"{manifest.format} {manifest.split} {fields!r} {workload!r}"


def _sources(place: object, manifests: Sequence[Manifest]) -> list[Source]:
    found: dict[str, Source] = {}
    for manifest in manifests:
        for source in manifest.sources:
            if found.setdefault(source.name, source) != source:
                raise DataError(
                    f"{place}: two manifests tell different things of {source.name}, so they are "
                    "of two different runs; empty the folder and shard the data again"
                )
    return [found[name] for name in sorted(found)]


def _columns(manifests: Sequence[Manifest]) -> dict[str, np.ndarray]:
    """The shards of all manifests as one table."""
    parts: dict[str, list] = {name: [] for name in ("file", "samples", "source", "bytes", "sha256")}
    for manifest in manifests:
        shards = manifest.shards
        names = np.array([source.name for source in manifest.sources], dtype=object)
        tables = [shards, *shards.values.values()]
        parts["file"].append(np.array(shards.file, dtype=object))
        parts["samples"].append(np.array(shards.samples, np.int64))
        parts["source"].append(names[np.array(shards.source, np.int64)])
        parts["bytes"].append(np.array([table.bytes for table in tables], np.int64).T)
        parts["sha256"].append(np.array([table.sha256 for table in tables], dtype=object).T)
    columns = {name: np.concatenate(arrays) for name, arrays in parts.items()}
    hashes = columns["sha256"]
    whole = hashes[:, 0] if hashes.shape[1] == 1 else [_digest(row) for row in hashes]
    digests = np.frombuffer(bytes.fromhex("".join(whole)), ">u8").reshape(-1, 4)
    return columns | {"digest": digests}


def _chosen(place: object, columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """Which rows are read, in their order: by hash, then by name."""
    files, digests = columns["file"].tolist(), columns["digest"]
    first = digests[:, 0].astype(np.uint64)
    order = np.argsort(first)
    if len(set(files)) == len(files) and (np.diff(first[order]) > 0).all():
        return order  # nothing stands twice, and 64 bits of the hashes tell them apart
    hashes = [digest.tobytes() for digest in digests]
    rows = _without_copies(_without_repeats(place, files, hashes), columns["source"], hashes)
    return np.array(sorted(rows, key=lambda row: (hashes[row], files[row])), np.int64)


def _without_repeats(place: object, files: Sequence[str], hashes: Sequence[bytes]) -> list[int]:
    """Leave out a file that another manifest named before."""
    found: dict[str, bytes] = {}
    rows = []
    for row, (file, sha256) in enumerate(zip(files, hashes, strict=True)):
        if file not in found:
            found[file] = sha256
            rows.append(row)
        elif found[file] != sha256:
            raise DataError(
                f"{place}: two manifests name {file} with different hashes, so they are of two "
                "different runs; empty the folder and shard the data again"
            )
    return rows


def _without_copies(rows: Sequence[int], sources: np.ndarray, hashes: Sequence[bytes]) -> list[int]:
    """Leave out every raw object that gave the very shards of another one."""
    given: dict[str, list[bytes]] = {}
    for row in rows:
        given.setdefault(sources[row], []).append(hashes[row])
    originals: dict[tuple[bytes, ...], str] = {}
    for name in sorted(given):
        originals.setdefault(tuple(sorted(given[name])), name)
    kept = set(originals.values())
    return [row for row in rows if sources[row] in kept]


def _fingerprint(kind: str, digests: np.ndarray) -> str:
    digest = hashlib.sha256(kind.encode())
    digest.update(digests.tobytes())
    return digest.hexdigest()


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
