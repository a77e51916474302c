"""Write samples into shards of even size, and return the table of shards for the manifest."""

import hashlib
import io
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from training.data.bit_mixing import chain_hashes, mix_bits
from training.data.manifest import (
    Field,
    Files,
    Manifest,
    Samples,
    Shards,
    Source,
    build_row_dtype,
    write_manifest,
)
from trainyard.common import atomic_file
from trainyard.common.errors import DataError


def write_dataset(
    folder: Path,
    samples: Samples,
    fields: Mapping[str, Field],
    *,
    shard_bytes: int,
    host: str = "algo-1",
    split: str = "train",
    workload: Mapping[str, Any] | None = None,
    unit: str | None = None,
) -> Manifest:
    """Write samples from memory as the shards of one unit (records packed together), with a
    manifest of the instance ``host``; return that manifest.
    """
    writer = ShardWriter(folder, host, fields, shard_bytes)
    writer.add(samples)
    shards = writer.close()
    source = Source(name=unit or f"{host}.jsonl", records=writer.samples, samples=writer.samples)
    manifest = Manifest(
        split=split,
        fields=dict(fields),
        workload=dict(workload or {}),
        sources=[source],
        shards=shards,
    )
    write_manifest(manifest, folder / f"manifest-{host}.json")
    return manifest


class ShardWriter:
    """Collect the samples that one unit gives to one split, and write them as shards.

    No shard is larger than ``shard_bytes`` (unless one sample is), and none is much smaller than
    half of that unless there are too few samples: a shard is written once the samples of two are
    waiting, and the rest is shared evenly at the end. One thread writes a shard while the next is
    collected, so memory holds four shards at most. Another thread waits for the disk: a shard is
    flushed while the next is written.

    Args:
        folder: where shards are written; created if missing.
        stem: prefix of their names: ``<stem>-00000.npy`` …
        fields: fields of a sample.
        shard_bytes: largest size of a shard, including the values of variable-width fields.
    """

    def __init__(
        self, folder: Path, stem: str, fields: Mapping[str, Field], shard_bytes: int
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.samples = 0
        self._folder, self._stem, self._fields, self._limit = folder, stem, fields, shard_bytes
        self._dtype = build_row_dtype(fields)
        self._parts: deque[tuple[Samples, int]] = deque()  # each with its size in bytes
        self._waiting = 0  # total size of the parts in bytes
        self._thread, self._disk = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        self._writing: Future | None = None
        self._flushing: Future | None = None
        self._shards = Shards(values={name: Files() for name in list_variable_fields(fields)})

    def add(self, samples: Samples) -> None:
        """Add samples. The arrays may be kept until they are written: do not change them.

        Raises:
            ValueError: a field is missing, or has another shape or type; this is a defect of the
                workload.
            DataError: a value is out of the range of its field's type. ``finish`` and ``close`` may
                raise it too, because a shard's values are checked when it is written.
        """
        count = check_samples(samples, self._fields)
        if count:
            size = int(_compute_sample_sizes(samples, self._fields).sum())
            self._parts.append((samples, size))
            self.samples += count
            self._waiting += size
            while self._waiting >= 2 * self._limit:
                self._write_next_shard()

    def flush(self) -> None:
        """Begin to write the remaining samples, without waiting, so that several writers overlap.

        Do not call ``add`` afterwards.
        """
        if self._parts:
            waiting, ends = self._take(self._waiting)
            pieces = -(-int(ends[-1]) // self._limit)
            cuts = np.searchsorted(ends, ends[-1] * np.arange(1, pieces + 1) / pieces) + 1
            for start, stop in zip([0, *cuts[:-1]], np.minimum(cuts, len(ends)), strict=True):
                if stop > start:
                    self._write(slice_parts(waiting, self._fields, start, stop))

    def close(self) -> Shards:
        """Write the remaining samples; return the table of all shards, whose column ``source`` is 0
        everywhere.
        """
        self.flush()
        self._wait()
        if self._flushing:
            self._flushing.result()
        self._thread.shutdown()
        self._disk.shutdown()
        return self._shards

    def _write_next_shard(self) -> None:
        """Write one shard of the waiting samples."""
        head, ends = self._take(self._limit)
        stop = max(1, int(np.searchsorted(ends, self._limit, side="right")))
        self._write(slice_parts(head, self._fields, 0, stop))
        size = int(ends[stop - 1])
        # Only samples of the last part are left.
        rest = slice_parts(head, self._fields, stop, len(ends))
        self._parts.extendleft((samples, int(ends[-1]) - size) for samples in rest)
        self._waiting -= size

    def _take(self, size: int) -> tuple[list[Samples], np.ndarray]:
        """Take at least ``size`` bytes of waiting samples.

        Return them, and the cumulative bytes after each sample.
        """
        parts, sizes = [], []
        while self._parts and size > 0:
            samples, bytes_ = self._parts.popleft()
            parts.append(samples)
            sizes.append(_compute_sample_sizes(samples, self._fields))
            size -= bytes_
        return parts, np.cumsum(np.concatenate(sizes))

    def _write(self, parts: list[Samples]) -> None:
        """Begin to write one shard, and add it to the table."""
        stem = f"{self._stem}-{len(self._shards):05d}"
        for name, field in self._fields.items():
            for samples in parts:
                _check_range(f"{stem}.npy", name, samples[name], np.dtype(field.dtype))
        files = {f"{stem}.npy": self._build_rows(parts)}
        for name in list_variable_fields(self._fields):
            values = np.dtype(self._fields[name].dtype).newbyteorder("<")
            flat = [np.ascontiguousarray(samples[name], values) for samples in parts]
            files[f"{stem}.{name}.npy"] = flat
        self._shards.file.append(f"{stem}.npy")
        self._shards.samples.append(sum(count_samples(samples, self._fields) for samples in parts))
        self._shards.source.append(0)
        contents = {file: encode_npy(arrays) for file, arrays in files.items()}
        # Wait for the previous shard: only one is written while the next is collected, so that
        # memory stays bounded.
        self._wait()
        self._writing = self._thread.submit(self._write_files, contents)
        tables = [self._shards, *self._shards.values.values()]
        # Hashed while the thread writes the shard.
        for table, content in zip(tables, contents.values(), strict=True):
            table.bytes.append(sum(len(piece) for piece in content))
            digest = hashlib.sha256()
            for piece in content:
                digest.update(piece)
            table.sha256.append(digest.hexdigest())

    def _build_rows(self, parts: list[Samples]) -> list[np.ndarray]:
        """Return one element per sample, without a copy if the samples already have the file's
        layout.
        """
        if len(self._fields) == 1 and not list_variable_fields(self._fields):
            [name] = self._fields
            base = self._dtype[0].base
            arrays = [np.ascontiguousarray(samples[name], base) for samples in parts]
            return [array.reshape(len(array), -1).view(self._dtype)[:, 0] for array in arrays]
        counts = [count_samples(samples, self._fields) for samples in parts]
        rows = np.empty(sum(counts), self._dtype)
        # Values in the parts before this one.
        value_counts = dict.fromkeys(list_variable_fields(self._fields), 0)
        for samples, piece in zip(parts, np.split(rows, np.cumsum(counts)[:-1]), strict=True):
            for name, field in self._fields.items():
                if field.shape is None:
                    offsets = samples[f"{name}_offsets"] + value_counts[name]
                    piece[name][:, 0], piece[name][:, 1] = offsets[:-1], offsets[1:]
                    value_counts[name] += len(samples[name])
                else:
                    piece[name] = samples[name]
        return [rows]

    def _write_files(self, contents: Mapping[str, list[bytes | memoryview]]) -> None:
        """Write files and start flushing them; at most two shards are in progress at once."""
        drafts = [atomic_file.write_draft(self._folder / file, *c) for file, c in contents.items()]
        before, self._flushing = self._flushing, self._disk.submit(_finish_drafts, drafts)
        if before:
            before.result()

    def _wait(self) -> None:
        if self._writing:
            self._writing.result()


def list_variable_fields(fields: Mapping[str, Field]) -> list[str]:
    """Return the names of the variable-width fields."""
    return [name for name, field in fields.items() if field.shape is None]


def check_samples(samples: Samples, fields: Mapping[str, Field]) -> int:
    """Check that these arrays match the fields; return how many samples they contain.

    Raises:
        ValueError: the arrays do not match the fields.
    """
    counts = set()
    for name, field in fields.items():
        if field.shape is None:
            offsets = samples[f"{name}_offsets"]
            if samples[name].ndim != 1 or offsets[-1] != len(samples[name]) or offsets[0]:
                raise ValueError(f"{name}: the offsets do not fit the values")
            counts.add(len(offsets) - 1)
        else:
            if samples[name].shape[1:] != field.shape:
                raise ValueError(
                    f"{name}: samples of shape {samples[name].shape[1:]}; declared: {field.shape}"
                )
            counts.add(len(samples[name]))
        if not np.can_cast(samples[name].dtype, field.dtype, "same_kind"):
            raise ValueError(f"{name}: {samples[name].dtype} cannot be converted to {field.dtype}")
    if len(counts) > 1:
        raise ValueError(f"the fields hold different numbers of samples: {sorted(counts)}")
    return counts.pop()


def _check_range(file: str, name: str, values: np.ndarray, dtype: np.dtype) -> None:
    """Check that the type can hold every value; a float may be rounded, but not to infinity.

    Raises:
        DataError: a value is out of range; numpy would silently wrap an integer around.
    """
    if not values.size or np.can_cast(values.dtype, dtype, "safe"):
        return
    info = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    if values.dtype.kind in "iu":
        low, high = values.min(), values.max()
    else:  # bounds of the finite values; 0 and 0 if there are none
        finite = np.isfinite(values)
        low = values.min(initial=0, where=finite)
        high = values.max(initial=0, where=finite)
    smallest, largest = np.array([info.min, info.max], dtype).tolist()
    if smallest <= low.item() and high.item() <= largest:
        return
    if dtype.kind == "f":  # a value slightly beyond the largest float is rounded to it
        with np.errstate(over="ignore"):
            wrong = np.isfinite(values) & np.isinf(values.astype(dtype))
    else:
        wrong = (values < info.min) | (values > info.max)
    if wrong.any():
        raise DataError(
            f"{file}: column {name!r} holds {values[wrong][0].item()!r}, and {dtype} goes from "
            f"{info.min} to {info.max}; declare a wider dtype for the field, or scale the values"
        )


def slice_samples(samples: Samples, fields: Mapping[str, Field], start: int, stop: int) -> Samples:
    """Return samples ``start`` … ``stop - 1``, as views where possible."""
    out = {}
    for name, field in fields.items():
        if field.shape is None:
            offsets = samples[f"{name}_offsets"][start : stop + 1]
            out[name] = samples[name][offsets[0] : offsets[-1]]
            out[f"{name}_offsets"] = offsets - offsets[0]
        else:
            out[name] = samples[name][start:stop]
    return out


def slice_parts(
    parts: list[Samples], fields: Mapping[str, Field], start: int, stop: int
) -> list[Samples]:
    """Return samples ``start`` … ``stop - 1``, counted over all parts, as views in one or more
    parts.
    """
    out, before = [], 0
    for samples in parts:
        count = count_samples(samples, fields)
        first, last = max(start - before, 0), min(stop - before, count)
        if first < last:
            out.append(slice_samples(samples, fields, first, last))
        before += count
    return out


def encode_npy(arrays: list[np.ndarray]) -> list[bytes | memoryview]:
    """Return arrays, one after the other, in numpy's file format 1.0: the header, then each
    array's bytes.
    """
    description = np.lib.format.header_data_from_array_1_0(arrays[0])
    description["shape"] = (sum(map(len, arrays)),)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, description)
    return [header.getvalue(), *(array.view(np.uint8).data for array in arrays if len(array))]


def count_samples(samples: Samples, fields: Mapping[str, Field]) -> int:
    """Return the number of samples in arrays that passed ``check_samples``."""
    name, field = next(iter(fields.items()))
    return len(samples[f"{name}_offsets"]) - 1 if field.shape is None else len(samples[name])


def _compute_sample_sizes(samples: Samples, fields: Mapping[str, Field]) -> np.ndarray:
    """Return the bytes that each sample takes in its shard."""
    sizes = np.full(count_samples(samples, fields), build_row_dtype(fields).itemsize)
    for name in list_variable_fields(fields):
        sizes += np.diff(samples[f"{name}_offsets"]) * np.dtype(fields[name].dtype).itemsize
    return sizes


def _finish_drafts(drafts: list[atomic_file.Draft]) -> None:
    for draft in drafts:
        draft.finish()


# Hashes that identify examples by their content: 64 bits, the same on every machine and in every
# run.


def hash_samples(samples: Samples, fields: Mapping[str, Field]) -> np.ndarray:
    """Hash each sample's bytes over all its fields: int64 (n,).

    Two different samples have the same hash with a probability of 2^-64: among 10^8 test and 10^9
    train samples, the probability that one pair is wrongly taken for equal is half a percent.
    """
    out = np.zeros(count_samples(samples, fields), np.uint64)
    for name, field in fields.items():
        # Little-endian, because the hashed bytes must be the same on every machine.
        rows = np.ascontiguousarray(samples[name], np.dtype(field.dtype).newbyteorder("<"))
        if field.shape is None:
            # 8 bytes of BLAKE2b per sample: chaining word by word needs equally many words in each
            # sample.
            raw = rows.view(np.uint8).data
            bounds = (samples[f"{name}_offsets"] * rows.itemsize).tolist()
            digests = (blake2b(raw[a:b], digest_size=8).digest() for a, b in pairwise(bounds))
            out = chain_hashes(out, np.frombuffer(b"".join(digests), "<u8"))
            continue
        for word in _to_words(rows.reshape(len(rows), -1)).T:
            out = chain_hashes(out, word)
    return mix_bits(out).view(np.int64)


def _to_words(rows: np.ndarray) -> np.ndarray:
    """Return the bytes of each row as uint64, padded with zeros: shape (n, words)."""
    raw = rows.view(np.uint8).reshape(len(rows), -1)
    width = -(-raw.shape[1] // 8) * 8
    if width != raw.shape[1]:
        buffer = np.zeros((len(raw), width), np.uint8)
        buffer[:, : raw.shape[1]] = raw
        raw = buffer
    return raw.view("<u8")
