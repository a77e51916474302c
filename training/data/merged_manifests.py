"""The dataset is the union of a folder's manifests: its shards, their order, its fingerprint.

Nothing here depends on which instance wrote which shard.
"""

import functools
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from training.data.bit_mixing import ODD
from training.data.manifest import FORMAT, Field, Source
from training.data.manifest_columns import Columns
from trainyard.common.errors import DataError

ALL = slice(None)  # all rows of a table, in their order


@dataclass(frozen=True, kw_only=True)
class MergedManifests:
    """A split as all instances wrote it; shards are ordered by hash, then by name."""

    split: str
    fields: Mapping[str, Field]
    workload: Mapping[str, Any]
    names: np.ndarray
    """Names of the shards' files: bytes, shape (shards,)."""
    samples: np.ndarray
    """Samples in each shard, int64."""
    source: np.ndarray
    """Row of ``units`` (a unit) that each shard comes from, int64."""
    bytes: np.ndarray
    """Sizes of each shard's files, shape (shards, 1 + variable-width fields), int64."""
    sha256: np.ndarray
    """Hashes of each shard's files, shape (shards, 1 + variable-width fields), 32 bytes each
    (V32)."""
    fingerprint: str
    """SHA-256 over the form of a sample and the hashes of all shards: identifies the dataset."""
    units: Mapping[str, Sequence]
    """Fields of ``Source`` as columns: what the manifests say about the units."""
    raw: Mapping[str, Sequence]
    """Fields of ``Raw`` as columns: what the manifests say about the raw objects."""

    @functools.cached_property
    def files(self) -> np.ndarray:
        """Names of the shards' files: strings, shape (shards,)."""
        return self.names.astype(str).astype(object)

    @functools.cached_property
    def sources(self) -> Sequence[Source]:
        """Every unit, sorted by name."""
        rows = {name: row for row, name in enumerate(self.units["name"])}
        return [
            Source(**{field: column[rows[name]] for field, column in self.units.items()})
            for name in sorted(rows)
        ]


def merge(place: object, manifests: Mapping[str, Columns]) -> MergedManifests:
    """Merge manifests, given by file name; a shard named by two of them is read once.

    Raises:
        DataError: there is no manifest, or they do not form one dataset.
    """
    if not manifests:
        raise DataError(
            f"{place}: holds no manifest-*.json, so no complete dataset; "
            "was it written by the shard step, and did that step succeed?"
        )
    kinds = {_kind(manifest) for manifest in manifests.values()}
    kind, *others = kinds
    if others:
        names = ", ".join(manifests)
        raise DataError(f"{place}: {names} disagree about what a sample is; shard the data again")
    parts = list(manifests.values())
    # Lists of one manifest are taken as they are: there may be 100,000 rows.
    sources = {
        name: parts[0].sources[name]
        if len(parts) == 1
        else list(itertools.chain.from_iterable(part.sources[name] for part in parts))
        for name in Source.model_fields
    }
    _check_parts(place, parts, sources)
    table = _join_shards(parts)
    table["digest"] = _digests(table["sha256"])
    rows = _order(table)
    # A hash or a name repeats, or seems to by its 64 bits: whole ones are compared, one by one.
    if rows is None:
        rows = _select_rows(place, table)
    if rows is not ALL:
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


def _kind(manifest: Columns) -> str:
    """Describe in one line what a sample is; only the order of fields matters, not of other
    keys.
    """
    fields = [(name, field.dtype, field.shape) for name, field in manifest.fields.items()]
    workload = sorted(manifest.workload.items())
    return f"{FORMAT} {manifest.split} {fields!r} {workload!r}"


def _check_parts(place: object, parts: Sequence[Columns], sources: Mapping[str, Sequence]) -> None:
    """Check that the manifests are of one run, and that none is missing."""
    names = sources["name"]
    first_rows: dict[str, int] = {}
    for row, name in enumerate(names) if len(set(names)) != len(names) else ():
        first = first_rows.setdefault(name, row)
        if any(column[row] != column[first] for column in sources.values()):
            raise DataError(
                f"{place}: two manifests tell different things of {name}, so they are "
                "of two different runs; empty the folder and shard the data again"
            )
    # Every instance has read all raw objects, and says the same of them.
    if any(part.raw != parts[0].raw for part in parts[1:]):
        raise DataError(
            f"{place}: the manifests tell different things of the raw objects, so they are of "
            "different runs, or the instances were given different data; empty the folder and "
            "shard the data again"
        )
    # The units of a manifest that is missing would be absent without notice.
    for part in parts:
        if part.units is not None and part.units != len(set(names)):
            raise DataError(
                f"{place}: its {len(parts)} manifests tell of {len(set(names))} units of "
                f"{part.units}; copy the manifests and shards of all instances"
            )


def _join_shards(parts: Sequence[Columns]) -> dict[str, np.ndarray]:
    """Join the shards of all manifests into one table; ``source`` counts through all sources."""
    befores = itertools.accumulate((len(part.sources["name"]) for part in parts), initial=0)
    columns = {
        "names": [part.files for part in parts],
        "samples": [part.samples for part in parts],
        "source": [part.source + before for part, before in zip(parts, befores, strict=False)],
        "bytes": [part.bytes for part in parts],
        "sha256": [part.sha256 for part in parts],
    }
    return {
        name: arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
        for name, arrays in columns.items()
    }


def _digests(hashes: np.ndarray) -> np.ndarray:
    """Return one hash per shard, shape (shards,), V32; for several files, one of their hashes."""
    if hashes.shape[1] == 1:
        return hashes[:, 0]
    texts = ("\n".join(row.tobytes().hex() for row in rows).encode() for rows in hashes)
    digests = b"".join(hashlib.sha256(text).digest() for text in texts)
    return np.frombuffer(digests, "V32")


def _order(table: Mapping[str, np.ndarray]) -> np.ndarray | slice | None:
    """Return the rows by hash; None if a hash repeats, or 64 bits do not distinguish the hashes."""
    keys = np.ascontiguousarray(table["digest"]).view(">u8").reshape(-1, 4)[:, 0].astype(np.uint64)
    # Two rows of one name may be one shard that two manifests list, which only the slow way sees.
    if not _distinct(_mix_names(table["names"])):
        return None
    if (keys[1:] > keys[:-1]).all():
        return ALL  # one instance writes its shards in this order
    order = np.argsort(keys)
    sorted_keys = keys[order]
    return order if (sorted_keys[1:] > sorted_keys[:-1]).all() else None


def _distinct(keys: np.ndarray) -> bool:
    """Return whether no two of the keys, uint64, are equal.

    Takes a quarter of the time of sorting: every key stores its number in a table, where later
    ones overwrite earlier ones. A key that finds another's number there is compared with it, and
    goes into the next round.
    """
    # A power of two, so that a mask picks the slot; two to four slots a key keep the rounds few.
    table = np.empty(1 << (2 * len(keys)).bit_length(), np.int32)
    mask = np.uint64(len(table) - 1)
    while len(keys):
        numbers, slots = np.arange(len(keys), dtype=np.int32), (keys & mask).view(np.int64)
        table[slots] = numbers
        stored_numbers = table[slots]
        lost = stored_numbers != numbers
        if (keys[lost] == keys[stored_numbers[lost]]).any():
            return False
        keys = keys[lost]
    return True


def _mix_names(names: np.ndarray) -> np.ndarray:
    """Return 64 bits for each name, uint64: equal for equal names, else almost always different."""
    # The loop takes eight letters at once.
    if names.itemsize < 8:
        names = names.astype("S8")
    hashes = np.zeros(len(names), np.uint64)
    last = names.itemsize - 8
    for offset in (*range(0, last, 8), last):  # eight letters at a time; the last eight may overlap
        letters = names.getfield("<u8", offset)
        hashes = (hashes ^ letters) * ODD
        hashes ^= hashes >> np.uint64(32)
    return hashes


def _select_rows(place: object, table: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the rows to read, ordered by hash, then by name."""
    files = [name.decode() for name in table["names"].tolist()]
    hashes = [digest.tobytes() for digest in table["digest"]]
    # A file that another manifest named before is read once.
    hash_by_file: dict[str, bytes] = {}
    rows = []
    for row, (file, sha256) in enumerate(zip(files, hashes, strict=True)):
        if file not in hash_by_file:
            hash_by_file[file] = sha256
            rows.append(row)
        elif hash_by_file[file] != sha256:
            raise DataError(
                f"{place}: two manifests name {file} with different hashes, so they are of two "
                "different runs; empty the folder and shard the data again"
            )
    return np.array(sorted(rows, key=lambda row: (hashes[row], files[row])), np.int64)
