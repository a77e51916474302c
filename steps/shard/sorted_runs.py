"""Store records in sorted runs between reading and packing.

A run is an Arrow IPC file of one batch, sorted by ``order``. It contains for each record its keys
and then the columns that the workload packs. ``order`` is a hash of the record, so the records of
any range of hashes are next to each other in every run, whatever raw objects they came from.
"""

import functools
import mmap
import resource
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from steps.shard.duplicate_records import mark_kept_records
from steps.shard.shard_progress import RunFile
from steps.shard.survey import END
from trainyard.common import atomic_file

KEYS = ("order", "tie", "size", "split")

FILES, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
MAPS = 8192 if FILES == resource.RLIM_INFINITY else min(8192, FILES // 4)
"""Maximum number of runs that are mapped at once, because Python's mmap keeps the file open."""


@dataclass(frozen=True)
class Keys:
    """Keys of records, without their content: arrays of the same length."""

    order: np.ndarray
    """Hash of the columns in which duplicates are equal, or of all columns, uint64."""
    tie: np.ndarray
    """Hash of all columns, uint64."""
    size: np.ndarray
    """Bytes of the record's content: those of its strings, and 8 for a number; uint32."""
    split: np.ndarray
    """Index into SPLITS, uint8."""


class RunWriter:
    """Writer of one raw object's records as sorted runs, one for every ``limit`` bytes.

    Runs are not flushed to the disk (fsync), because a run's hash is checked before a process other
    than its writer uses it.
    """

    def __init__(self, folder: Path, stem: str, *, limit: int, unique: bool) -> None:
        self.duplicates = 0
        """Number of records left out because an equal one is in the same run."""
        self._folder, self._stem, self._limit, self._unique = folder, stem, limit, unique
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._runs: list[RunFile] = []

    def add(self, keys: Keys, records: pa.RecordBatch) -> None:
        """Add records and their keys. Categories must be plain strings."""
        arrays = [pa.array(getattr(keys, name)) for name in KEYS]
        names = [*KEYS, *records.schema.names]
        self.append(pa.RecordBatch.from_arrays([*arrays, *records.columns], names))

    def append(self, records: pa.RecordBatch) -> None:
        """Add records whose first columns are their keys."""
        self._waiting.append(records)
        self._bytes += records.nbytes
        if self._bytes >= self._limit:
            self._write()

    def close(self) -> list[RunFile]:
        """Write the remaining records; return all runs."""
        if self._waiting:
            self._write()
        return self._runs

    def _write(self) -> None:
        """Sort the collected records, drop duplicates if ``unique``, and write them as a run."""
        # One batch per run, so that a range of hashes is one slice of it.
        records = pa.concat_batches(self._waiting)
        self._waiting, self._bytes = [], 0
        order, tie = _to_numpy(records, 0), _to_numpy(records, 1)
        indices = np.argsort(order, kind="stable")
        if self._unique:
            mask = mark_kept_records(order, tie, np.zeros(len(order), np.uint8))
            self.duplicates += len(order) - int(mask.sum())
            indices = indices[mask[indices]]
        records = records.take(pa.array(indices))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, records.schema) as file:
            file.write_batch(records)
        # Written in one piece, because the pages of a file written in several cost more to map.
        content = sink.getvalue()
        name = f"{self._stem}-{len(self._runs):05d}.arrow"
        atomic_file.write_draft(self._folder / name, memoryview(content)).finish(durable=False)
        self._runs.append(
            RunFile(
                name=name,
                records=len(records),
                bytes=int(_to_numpy(records, 2).sum(dtype=np.int64)),
            )
        )


class Run:
    """An open run: a memory map of its file."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._records = pa.ipc.open_file(pa.py_buffer(self._map)).get_batch(0)
        self._order = _to_numpy(self._records, 0)
        self.records = len(self._order)

    def select(self, low: int, high: int) -> pa.RecordBatch:
        """Return keys and content of records with ``low`` <= ``order`` < ``high``, not copied."""
        start, stop = self.find_positions(low, high)
        return self._records.slice(start, stop - start)

    def find_positions(self, low: int, high: int) -> tuple[int, int]:
        """Return (start, stop) of the slice of records that ``select`` returns."""
        start = int(np.searchsorted(self._order, np.uint64(low)))
        # END is 2^64, the end of the last range, which does not fit into uint64.
        if high == END:
            return start, self.records
        return start, int(np.searchsorted(self._order, np.uint64(high)))

    @property
    def schema(self) -> pa.Schema:
        return self._records.schema

    def release_pages(self) -> None:
        """Release the pages of the file that this process has read; they can be read again."""
        self._map.madvise(mmap.MADV_DONTNEED)


open_run = functools.lru_cache(MAPS)(Run)
"""Open a run. It stays open until ``MAPS`` other runs have been opened after it."""


@dataclass(frozen=True)
class RecordRange:
    """Records of some runs whose ``order`` is in one range, unsorted."""

    pieces: Sequence[pa.RecordBatch]
    ranks: np.ndarray
    """Rank of each record's raw object, int64."""

    @property
    def keys(self) -> Keys:
        return Keys(
            *(
                np.concatenate([_to_numpy(piece, column) for piece in self.pieces])
                for column in range(len(KEYS))
            )
        )

    def read_content(self, keep_mask: np.ndarray) -> pa.RecordBatch:
        """Return the content of the records where ``keep_mask`` (bool) is True, unsorted."""
        cuts = np.cumsum([len(piece) for piece in self.pieces])[:-1]
        selection = [
            piece if mask.all() else piece.filter(pa.array(mask))
            for piece, mask in zip(self.pieces, np.split(keep_mask, cuts), strict=True)
        ]
        records = pa.concat_batches(selection)
        return pa.RecordBatch.from_arrays(
            records.columns[len(KEYS) :], records.schema.names[len(KEYS) :]
        )


def read_part(runs: Sequence[tuple[Path, int]], low: int, high: int) -> RecordRange | None:
    """Return the records with ``low`` <= ``order`` < ``high``, or None if there are none.

    ``runs`` has (path, rank of the raw object) of each run. The records are copied if there are
    more runs than may be mapped at once.
    """
    pieces, counts, ranks = [], [], []
    for path, rank in runs:
        piece = open_run(path).select(low, high)
        if len(piece):
            # Copy in that case: a view would keep a map open that ``open_run`` has to close.
            piece_copy = piece.take(pa.array(np.arange(len(piece)))) if len(runs) > MAPS else piece
            pieces.append(piece_copy)
            counts.append(len(piece))
            ranks.append(rank)
    return RecordRange(pieces, np.repeat(np.array(ranks, np.int64), counts)) if pieces else None


def release_runs(runs: Sequence[tuple[Path, int]]) -> None:
    """Release the memory that ``read_part`` has read, after its result was used."""
    for path, _ in runs if len(runs) <= MAPS else ():
        open_run(path).release_pages()


def read_keys(
    paths: Sequence[Path], spans: Iterable[tuple[int, int]]
) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """Yield (keys of the records, number of records in each run) for each range of hashes.

    The keys are ``order``, ``tie`` and ``size``, one run after the other; the numbers are int64.
    """
    for low, high in spans:
        counts = np.zeros(len(paths), np.int64)
        pieces = [NO_KEYS]
        for number, path in enumerate(paths):
            piece = open_run(path).select(low, high)
            counts[number] = len(piece)
            if len(piece):
                pieces.append(piece.select(SURVEY_KEYS))
        yield pa.concat_batches(pieces), counts
        # The caller is done with this range. Nothing may access the pages after they are released.
        del pieces
        release_runs([(path, 0) for path in paths])


SURVEY_KEYS = KEYS[:3]
NO_KEYS = pa.RecordBatch.from_pylist(
    [], schema=pa.schema(zip(SURVEY_KEYS, (pa.uint64(), pa.uint64(), pa.uint32()), strict=True))
)


def _to_numpy(records: pa.RecordBatch, column: int) -> np.ndarray:
    return records.column(column).to_numpy()
