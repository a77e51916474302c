"""Read a dataset: the shards of all manifests in a folder or prefix as one array of samples.

A batch takes rows from many shards, perhaps from as many shards as it has rows. Reading them shard
by shard costs microseconds per shard and copies every row twice: measured on rows of 4 KB from 9
shards, 910 M tokens/s where one memory map gives 2,100, and 210 from 1,000 shards. So memory itself
is indexed instead: as an array that begins at the lowest row's address, with an element at every
byte, of which only the elements at which a row begins are read. That takes one pass over all rows,
as fast as from one map, however many shards there are.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from training.data.manifest import Samples, build_row_dtype
from training.data.manifest_columns import parse_manifest
from training.data.merged_manifests import merge_manifests
from training.data.open_shards import OpenShards, ShardCache
from training.data.shard_storage import ShardStorage, open_storage
from training.data.shard_writer import list_variable_fields
from trainyard.common.errors import DataError

RUN = 8  # rows; runs that are this long on average are copied as slices


def gather_rows(addresses: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Copy the rows at these memory addresses into a new array of shape (len(addresses),).

    The caller ensures that every address is that of a row inside an array, and that the arrays
    live until this returns.
    """
    breaks = np.diff(addresses) != dtype.itemsize
    # Each slice costs an iteration of Python's loop, so many short ones are indexed instead.
    if np.count_nonzero(breaks) * RUN > len(addresses):
        low = int(addresses.min())
        offsets = addresses - low
        return _view_memory(low, int(offsets.max()) + 1, dtype, stride=1)[offsets]
    out = np.empty(len(addresses), dtype)
    edges = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(addresses)] if len(out) else [0]
    for start, stop in itertools.pairwise(edges):
        run = _view_memory(int(addresses[start]), stop - start, dtype, stride=dtype.itemsize)
        out[start:stop] = run
    return out


class _Memory:
    """Describe memory to ``np.asarray``, which makes an array of it without copying or owning
    it.
    """

    def __init__(self, address: int, count: int, dtype: np.dtype, stride: int) -> None:
        self.__array_interface__ = {
            "version": 3,
            # True means read-only, as the memory maps are.
            "data": (address, True),
            "shape": (count,),
            "strides": (stride,),
            "typestr": f"|V{dtype.itemsize}",
        }


def _view_memory(address: int, count: int, dtype: np.dtype, *, stride: int) -> np.ndarray:
    """Return an array of ``count`` elements from ``address`` on, ``stride`` bytes apart."""
    return np.asarray(_Memory(address, count, dtype, stride)).view(dtype)


@dataclass(frozen=True, slots=True)
class Passage:
    """Consecutive samples as ``Dataset.stream`` yields them."""

    samples: Samples
    sources: np.ndarray
    """Unit that each sample comes from (``Dataset.find_source_name``), int64 (n,). A unit is a set
    of records that were packed together.
    """
    start: int
    """Position of the first sample in the order in which the whole split is streamed."""
    before: int
    """Unit of the sample before the passage; -1 if there is none."""
    is_past_share: bool
    """True if the passage begins after the end of the requested share."""


@dataclass(frozen=True, slots=True)
class Share:
    """The ``index``-th of ``count`` consecutive shares that together make up a split."""

    index: int
    count: int

    def compute_bounds(self, samples: int, size: int) -> tuple[int, int]:
        """Return the positions [begin, stop) of the share's samples, read ``size`` at a time.

        Shares are cut between such batches, so each batch is the same whatever ``count`` is.
        """
        batches = -(-samples // size)
        begin, stop = (batches * number // self.count for number in (self.index, self.index + 1))
        return min(begin * size, samples), min(stop * size, samples)


class Dataset:
    """The samples of a split, by global index 0 … len-1.

    The samples are in the order of the shards' hashes, so the order does not depend on which
    instance wrote which shard. Opening a dataset reads the manifests and no shard; a shard is
    opened when a sample of it is read. It is safe to use from several threads.
    """

    def __init__(self, folder: Path | str | ShardStorage, *, in_memory: bool = False) -> None:
        """Read the manifests.

        Args:
            folder: a folder, ``s3://bucket/prefix``, or another ``ShardStorage``.
            in_memory: read whole shards into memory, from front to back, instead of mapping them;
                shards on S3 are always read so. Meant for an order that needs few shards at once.

        Raises:
            DataError: there is no manifest, one is damaged, two disagree, or there are no samples.
        """
        storage = (
            open_storage(folder, in_memory=in_memory) if isinstance(folder, str | Path) else folder
        )
        self.in_memory = storage.in_memory
        manifests = {
            name: parse_manifest(f"{storage}/{name}", content)
            for name, content in storage.read_manifests().items()
        }
        self.folder, self.manifests = folder, merge_manifests(storage, manifests)
        self.fields, self.fingerprint = self.manifests.fields, self.manifests.fingerprint
        self.starts = np.concatenate(([0], np.cumsum(self.manifests.samples)))
        self._variable, self._dtype = (
            list_variable_fields(self.fields),
            build_row_dtype(self.fields),
        )
        self.tables = ShardCache(storage, self.manifests, self.starts)
        if not len(self):
            raise DataError(
                f"{folder}: 0 samples; the raw data contains too little for this split "
                "(data.input, shard.validation_share and shard.test_share decide)"
            )

    def __len__(self) -> int:
        return int(self.starts[-1])

    @property
    def records(self) -> int:
        """Number of raw records that went into this split."""
        return sum(source.records for source in self.manifests.sources)

    @property
    def bytes(self) -> int:
        """Size of all shards, in bytes."""
        return int(self.manifests.bytes.sum())

    @property
    def statistics(self) -> list[dict[str, Any]]:
        """The workload's statistics of each unit, in the order of the units' names."""
        return [source.statistics for source in self.manifests.sources]

    def read(self, indices: Sequence[int] | np.ndarray) -> Samples:
        """Read samples by global index, in the given order, into new memory.

        Raises:
            IndexError: a sample does not exist.
            DataError: a shard is missing or damaged.
        """
        indices = np.asarray(indices, np.int64)
        # Viewed as unsigned, a negative index is huge.
        if len(indices) and indices.view(np.uint64).max() >= len(self):
            raise IndexError(f"{self.folder}: holds samples 0 to {len(self) - 1}, not {indices}")
        shards = np.searchsorted(self.starts, indices, side="right") - 1
        open_shards = self.tables.open_shards(shards)
        rows = gather_rows(
            open_shards.origins[shards] + indices * self._dtype.itemsize, self._dtype
        )
        samples: Samples = {}
        for name, field in self.fields.items():
            if field.shape is None:
                self._add_values(samples, name, rows[name], shards, open_shards)
            else:
                # With one field the row is that field; with several, each field is copied out of
                # the rows.
                samples[name] = rows[name] if len(self.fields) == 1 else rows[name].copy()
        return samples

    def iter_batches(self, size: int) -> Iterator[Samples]:
        """Yield all samples in order, ``size`` at a time; the last batch may be smaller."""
        for start in range(0, len(self), size):
            yield self.read(np.arange(start, min(start + size, len(self))))

    def stream(
        self, size: int, share: Share | None = None, *, past_share: bool = False
    ) -> Iterator[Passage]:
        """Yield every sample once, in the order in which it was packed, ``size`` at a time.

        Units come in the order of their names, and a unit's samples stay together, even if several
        shards hold them. Memory holds one passage at a time: a shard is closed once it is read to
        its end.

        Args:
            share: yield only this share's passages; they are cut as for the whole split.
            past_share: continue after the share's end, for records that begin in the share and end
                after it.
        """
        names, files = self.manifests.units["name"], self.manifests.names.tolist()
        keys = [
            # The files of a unit have the same stem, so the longer name has the higher number.
            (names[source], len(file), file)
            for source, file in zip(self.manifests.source.tolist(), files, strict=True)
        ]
        order = np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)
        counts, sources = self.manifests.samples[order], self.manifests.source[order]
        ends = np.cumsum(counts)
        # Add to a position in this order to get the global index.
        shift = self.starts[order] - (ends - counts)
        begin, stop = (share or Share(0, 1)).compute_bounds(len(self), size)
        before = int(sources[np.searchsorted(ends, begin - 1, side="right")]) if begin else -1
        for start in range(begin, len(self) if past_share else stop, size):
            positions = np.arange(start, min(start + size, len(self)))
            slots = np.searchsorted(ends, positions, side="right")
            samples = self.read(positions + shift[slots])
            yield Passage(samples, sources[slots], start, before, start >= stop)
            before = int(sources[slots[-1]])
            # The passage's first shard is read to its end. This unmaps all shards; the next one is
            # opened again.
            if ends[slots[0]] <= start + len(positions):
                self.tables.close()

    def get_source_name(self, source: int) -> str:
        """Return the name of unit ``source``; it begins with a raw folder's name if records were
        kept apart by folder.
        """
        return self.manifests.units["name"][source]

    def get_folders(self, sources: np.ndarray) -> np.ndarray:
        """Return the raw folder or input that each sample comes from: strings, shape (n,).

        If records were not kept apart by folder, it is the unit's own name.

        Args:
            sources: unit of each sample (``Passage.sources``).
        """
        numbers, indices = np.unique(sources, return_inverse=True)
        names = [self.get_source_name(number).split("/")[0] for number in numbers.tolist()]
        return np.array(names, object)[indices]

    def check_files(self) -> None:
        """Check that every shard exists with its size; cheap, because no shard is read.

        Raises:
            DataError: a shard is missing, or has another size.
        """
        self.tables.check_files()

    def prefetch_shards(self, shards: np.ndarray | None) -> None:
        """Begin to read these shards (None: all) into memory, and drop all others.

        Do nothing if files are mapped.

        Raises:
            DataError: the shards take more than half of this machine's memory.
        """
        self.tables.prefetch_shards(
            np.arange(len(self.manifests.names)) if shards is None else shards
        )

    def _add_values(
        self,
        samples: Samples,
        name: str,
        bounds: np.ndarray,
        shards: np.ndarray,
        open_shards: OpenShards,
    ) -> None:
        """Add the values of one variable-width field to ``samples``.

        Args:
            bounds: (start, stop) of each sample's values in its file, shape (n, 2).

        Raises:
            DataError: a sample's bounds are not inside its file.
        """
        starts, stops = bounds[:, 0], bounds[:, 1]
        column = 1 + self._variable.index(name)
        ends = self.manifests.bytes[shards, column] // self.tables.dtypes[column].itemsize
        offsets = np.concatenate(([0], np.cumsum(stops - starts)))
        # Checked here because a slice would silently shorten a damaged bound that goes beyond the
        # file.
        inside = ((starts >= 0) & (starts <= stops) & (stops <= ends)).all()
        pieces = _join_neighbours(shards, starts, stops)
        values = open_shards.read_pieces(column, *pieces) if inside else None
        if values is None or len(values) != offsets[-1]:
            raise DataError(
                f"{self.folder}: a sample's {name} is outside its file; "
                "python -m steps.shard.inspect --verify finds the damage"
            )
        samples[name], samples[f"{name}_offsets"] = values, offsets


def _join_neighbours(
    shards: np.ndarray, starts: np.ndarray, stops: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Join pieces that follow each other in a shard's file; return (shards, first elements,
    stops).
    """
    breaks = np.flatnonzero((np.diff(shards) != 0) | (starts[1:] != stops[:-1])) + 1
    # If there are no pieces, both slices give an empty array.
    first = np.concatenate(([0], breaks))[: len(shards)]
    last = np.concatenate((breaks, [len(shards)]))[: len(shards)] - 1
    return shards[first], starts[first], stops[last]
