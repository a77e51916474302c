"""Write samples into shards of even size; the table of what was written goes into a manifest."""

import hashlib
import io
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from training.data.manifest import Field, Files, Samples, Shards, row_dtype, write_atomically


class ShardWriter:
    """Collects the samples that one raw object gives to one split, and writes them as shards.

    No shard is larger than ``shard_bytes`` (unless one sample is), and none much smaller than half
    of that unless there are not enough samples: a shard is written when two are waiting, and what
    is left at the end is shared evenly. While a thread writes one shard the next is collected, so
    memory holds four shards at most.

    Args:
        folder: where shards go; made if it is missing.
        stem: their names begin with it: ``<stem>-00000.npy`` …
        fields: of a sample.
        shard_bytes: the largest shard, values of variable-width fields included.
    """

    def __init__(
        self, folder: Path, stem: str, fields: Mapping[str, Field], shard_bytes: int
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.samples = 0
        self._folder, self._stem, self._fields, self._limit = folder, stem, fields, shard_bytes
        self._dtype = row_dtype(fields)
        self._parts: list[Samples] = []
        self._waiting = 0  # bytes
        self._thread = ThreadPoolExecutor(1)
        self._writing: Future | None = None
        self._shards = Shards(values={name: Files() for name in variable(fields)})

    def add(self, samples: Samples) -> None:
        """Add samples. The arrays may be kept until they are written: do not change them.

        Raises:
            ValueError: a field is missing, or of another shape or type; a defect of the workload.
        """
        count = check_samples(samples, self._fields)
        if count:
            self._parts.append(samples)
            self.samples += count
            self._waiting += int(_sizes(samples, self._fields, count).sum())
            if self._waiting >= 2 * self._limit:
                self._cut()

    def close(self) -> Shards:
        """Write what is left. The table of all shards; their ``source`` is 0."""
        if self._parts:
            waiting, ends = self._join()
            pieces = -(-int(ends[-1]) // self._limit)
            cuts = np.searchsorted(ends, ends[-1] * np.arange(1, pieces + 1) / pieces) + 1
            for start, stop in zip([0, *cuts[:-1]], np.minimum(cuts, len(ends)), strict=True):
                if stop > start:
                    self._write(part(waiting, self._fields, start, stop))
            self._parts = []
        self._wait()
        self._thread.shutdown()
        return self._shards

    def _cut(self) -> None:
        waiting, ends = self._join()
        start, done = 0, 0
        while ends[-1] - done >= 2 * self._limit:
            stop = max(start + 1, int(np.searchsorted(ends, done + self._limit, side="right")))
            self._write(part(waiting, self._fields, start, stop))
            start, done = stop, int(ends[stop - 1])
        rest = part(waiting, self._fields, start, len(ends))
        self._parts = [rest] if start < len(ends) else []
        self._waiting = int(ends[-1]) - done

    def _join(self) -> tuple[Samples, np.ndarray]:
        """All that waits, and after each sample the bytes so far."""
        waiting = join(self._parts, self._fields)
        count = check_samples(waiting, self._fields)
        return waiting, np.cumsum(_sizes(waiting, self._fields, count))

    def _write(self, samples: Samples) -> None:
        stem = f"{self._stem}-{len(self._shards):05d}"
        rows = np.empty(check_samples(samples, self._fields), self._dtype)
        files = {f"{stem}.npy": rows}
        for name, field in self._fields.items():
            if field.shape is None:
                offsets = samples[f"{name}_offsets"]
                rows[name] = np.stack([offsets[:-1], offsets[1:]], axis=1)
                values = np.dtype(field.dtype).newbyteorder("<")
                files[f"{stem}.{name}.npy"] = np.ascontiguousarray(samples[name], values)
            else:
                rows[name] = samples[name]
        self._shards.file.append(f"{stem}.npy")
        self._shards.samples.append(len(rows))
        self._shards.source.append(0)
        contents = {file: npy(array) for file, array in files.items()}
        tables = [self._shards, *self._shards.values.values()]
        for table, content in zip(tables, contents.values(), strict=True):
            table.bytes.append(sum(len(piece) for piece in content))
            table.sha256.append(_sha256(content))
        self._wait()
        self._writing = self._thread.submit(_write_all, self._folder, contents)

    def _wait(self) -> None:
        if self._writing:
            self._writing.result()


def variable(fields: Mapping[str, Field]) -> list[str]:
    """Names of the fields whose width varies."""
    return [name for name, field in fields.items() if field.shape is None]


def check_samples(samples: Samples, fields: Mapping[str, Field]) -> int:
    """How many samples these arrays hold.

    Raises:
        ValueError: they are not arrays of these fields.
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
            raise ValueError(f"{name}: {samples[name].dtype} does not go into {field.dtype}")
    if len(counts) > 1:
        raise ValueError(f"the fields hold different numbers of samples: {sorted(counts)}")
    return counts.pop()


def join(parts: list[Samples], fields: Mapping[str, Field]) -> Samples:
    """The samples of all parts in one."""
    if len(parts) == 1:
        return parts[0]
    out = {name: np.concatenate([samples[name] for samples in parts]) for name in fields}
    for name in variable(fields):
        widths = np.concatenate([np.diff(samples[f"{name}_offsets"]) for samples in parts])
        out[f"{name}_offsets"] = np.concatenate(([0], np.cumsum(widths)))
    return out


def part(samples: Samples, fields: Mapping[str, Field], start: int, stop: int) -> Samples:
    """Samples ``start`` … ``stop - 1``; views where that is possible."""
    out = {}
    for name, field in fields.items():
        if field.shape is None:
            offsets = samples[f"{name}_offsets"][start : stop + 1]
            out[name] = samples[name][offsets[0] : offsets[-1]]
            out[f"{name}_offsets"] = offsets - offsets[0]
        else:
            out[name] = samples[name][start:stop]
    return out


def npy(array: np.ndarray) -> list[bytes | memoryview]:
    """The array as numpy's own file format, version 1.0: header and content."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(array))
    return [header.getvalue(), memoryview(array.view(np.uint8)) if len(array) else b""]


def _sizes(samples: Samples, fields: Mapping[str, Field], count: int) -> np.ndarray:
    """Bytes that each sample takes in its shard."""
    sizes = np.full(count, row_dtype(fields).itemsize)
    for name in variable(fields):
        sizes += np.diff(samples[f"{name}_offsets"]) * np.dtype(fields[name].dtype).itemsize
    return sizes


def _sha256(content: list[bytes | memoryview]) -> str:
    digest = hashlib.sha256()
    for piece in content:
        digest.update(piece)
    return digest.hexdigest()


def _write_all(folder: Path, contents: Mapping[str, list[bytes | memoryview]]) -> None:
    for name, content in contents.items():
        write_atomically(folder / name, *content)
