"""Reads samples that lie apart from files that answer late: several reads are in flight at once.

In uniform order nearly every sample is a read of its own, which takes a remote file system 1 to 100
ms. Through a memory map they come one after the other, and the kernel reads 128 KB around each.
Here threads read just the samples, each straight into its place in the batch. What a file system
does with a hint (``madvise``) is its own affair; a read it must do.

By Little's law, latency × samples a second are in flight; both are measured. Where no read waits
for storage (data in the page cache) the memory map is faster, and no thread is started.
"""

import functools
import itertools
import math
import os
import resource
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager

import numpy as np

from training.data.dataset import Dataset
from training.data.manifest import Samples
from training.data.open_shards import Tables, header_room
from training.data.shard_storage import Folder
from trainyard.common.errors import DataError

MOST = 64
"""Largest number of reads in flight."""

HEADROOM = 2
"""Reads in flight ÷ those that the measured latency and rate need on average; also the least."""

LATE = 50e-6
"""Seconds of waiting for a sample from which threads read: handing it over costs about as much."""

DESCRIPTORS = 1024
"""Largest number of files kept open; fewer if the process may not open four times as many."""


class ReadsInFlight:
    """Reads a dataset's samples, by the memory maps or by threads, as their latency asks for.

    Safe to use from several threads.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        folder = dataset.tables.folder
        self._files = _Files(dataset.tables, folder) if folder else None
        self._pool = ThreadPoolExecutor(MOST, "reads")  # starts a thread when it is needed
        self._latency = math.nan if self._files else 0.0  # seconds a sample
        self.rate = math.inf
        """Samples a second that the consumer takes; infinite: not known."""

    @property
    def late(self) -> bool:
        """True if samples come so late that threads read them."""
        return self._latency >= LATE

    @property
    def count(self) -> int:
        """Number of reads in flight; 0 if samples are read by the memory maps."""
        needed_reads = HEADROOM * max(1.0, self._latency * self.rate)
        return math.ceil(min(needed_reads, MOST)) if self.late else 0

    def read(self, indices: np.ndarray) -> Samples:
        """Return what ``Dataset.read`` returns.

        Raises:
            IndexError: a sample does not exist.
            DataError: a shard is missing or damaged.
        """
        if self._files is None:
            return self._dataset.read(indices)
        # One sample tells whether storage answers late.
        if math.isnan(self._latency):
            self._read_mapped(indices[:1])
        if not self.late:
            return self._read_mapped(indices)
        waits: list[float] = []
        samples = self._dataset.read(indices, functools.partial(self._pieces, self._files, waits))
        self._latency = sum(waits) / max(1, len(indices))
        return samples

    def close(self) -> None:
        """End the threads and close the files. Garbage collection does the same."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        if self._files is not None:
            self._files.close()

    def _read_mapped(self, indices: np.ndarray) -> Samples:
        """Read by the memory maps. Only a major page fault waits for storage."""
        faults, began = _major_faults(), time.perf_counter()
        samples = self._dataset.read(indices)
        wait_seconds = time.perf_counter() - began if _major_faults() > faults else 0.0
        self._latency = wait_seconds / max(1, len(indices))
        return samples

    def _pieces(
        self,
        files: "_Files",
        waits: list[float],
        column: int,
        shards: np.ndarray,
        starts: np.ndarray,
        stops: np.ndarray,
    ) -> np.ndarray:
        """Return these elements of the shards' files, one piece after the other."""
        ends = np.cumsum(stops - starts)
        out = np.empty(ends[-1] if len(ends) else 0, self._dataset.tables.dtypes[column])
        room = out.view(np.uint8).data
        begins = ends - (stops - starts)
        columns = (shards.tolist(), starts.tolist(), begins.tolist(), ends.tolist())
        todo = deque(zip(*columns, strict=True))

        def work() -> float:
            seconds = 0.0
            try:
                while todo:
                    shard, start, begin, end = todo.popleft()
                    target = room[begin * out.itemsize : end * out.itemsize]
                    seconds += files.read(shard, column, start, target)
            except IndexError:  # another thread took the last one
                pass
            except BaseException:
                todo.clear()
                raise
            return seconds

        crew = [self._pool.submit(work) for _ in range(min(max(1, self.count), len(todo)))]
        wait(crew)  # all of them, also after an error: they write into ``out``
        waits += [future.result() for future in crew]
        return out


class _Files:
    """Files of a dataset, each opened as often as it is read at the same time.

    A file system in user space (FastFile) may answer the reads of one open file one by one.
    """

    def __init__(self, tables: Tables, folder: Folder) -> None:
        self._tables, self._folder = tables, folder
        self._offsets: dict[tuple[int, int], int] = {}  # of the elements of files that are checked
        self._free: dict[tuple[int, int], list[int]] = {}
        self._free_count = 0  # descriptors in ``_free``
        self._lock = threading.Lock()
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        is_unlimited = files == resource.RLIM_INFINITY
        self._most = DESCRIPTORS if is_unlimited else min(DESCRIPTORS, files // 4)

    def read(self, shard: int, column: int, start: int, out: memoryview) -> float:
        """Fill ``out`` with a file's elements from ``start`` on; return seconds waited for storage.

        Raises:
            DataError: the file is missing, damaged or too short.
        """
        began = time.perf_counter()
        name = self._tables.names(shard)[column]
        with self._folder.naming(name), self._lend_descriptor(shard, column, name) as descriptor:
            place = start * self._tables.dtypes[column].itemsize + self._offsets[shard, column]
            # Without waiting at first: what the page cache holds is not storage's latency.
            offset = _read_cached(descriptor, out, place)
            if offset == len(out):
                return 0.0
            while offset < len(out):
                more = os.preadv(descriptor, [out[offset:]], place + offset)
                if not more:
                    raise DataError(
                        f"{self._folder}/{name}: ends before a sample's last byte; it was cut off: "
                        "copy it again, or python -m steps.shard.inspect --verify finds the damage"
                    )
                offset += more
        return time.perf_counter() - began

    @contextmanager
    def _lend_descriptor(self, shard: int, column: int, name: str) -> Iterator[int]:
        """Lend a descriptor of a file that was checked when it was first opened."""
        file = shard, column
        with self._lock:
            free = self._free.get(file)
            descriptor = free.pop() if free else None
            self._free_count -= descriptor is not None
        if descriptor is None:
            # Outside the lock: a remote file system may take long, and other files can be read
            # meanwhile.
            descriptor = self._folder.descriptor(name)
        try:
            if file not in self._offsets:
                dtype, size = self._tables.dtypes[column], os.fstat(descriptor).st_size
                content = np.frombuffer(os.pread(descriptor, header_room(dtype), 0), np.uint8)
                self._offsets[file] = self._tables.offset(shard, column, size, content)
            yield descriptor
        except BaseException:
            # A descriptor whose reading failed is not lent again.
            os.close(descriptor)
            raise
        with self._lock:
            self._free.setdefault(file, []).append(descriptor)
            self._free_count += 1
        if self._free_count > self._most:
            self.close()

    def close(self) -> None:
        """Close the files that nobody is reading."""
        with self._lock:
            free, self._free, self._free_count = self._free, {}, 0
        for descriptor in itertools.chain.from_iterable(free.values()):
            os.close(descriptor)

    __del__ = close


def _read_cached(descriptor: int, out: memoryview, place: int) -> int:
    """Read what lies in the page cache; return the number of bytes, 0 if that cannot be known."""
    try:
        return os.preadv(descriptor, [out], place, os.RWF_NOWAIT)
    except OSError:  # not cached, or a file system, kernel or sandbox without such reads
        return 0  # a fault of the file shows in the read that follows


def _major_faults() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_majflt
