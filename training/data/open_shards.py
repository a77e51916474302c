"""Keep shards open: as memory maps of their files, or as files in memory."""

import io
import os
import resource
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from tokenize import TokenError

import numpy as np

from training.data.manifest import build_row_dtype
from training.data.merged_manifests import MergedManifests
from training.data.shard_storage import ShardStorage, make_missing_error
from training.data.shard_writer import list_variable_fields
from trainyard.common.errors import DataError

MAPS = 16_384
"""Largest number of files mapped at once: Linux allows a process 65,530 maps (vm.max_map_count).
Fewer if the process may not open twice as many files: Python's mmap keeps the file open."""

MEMORY = 1 << 30
"""Largest number of bytes of shards in memory, unless ``ShardCache.hold`` set which shards are
needed.
"""

READERS = 4
"""Number of shards that are read into memory concurrently, because one stream from S3 does not
fill a network.
"""

NOT_OPEN = np.iinfo(np.int64).min


@dataclass(slots=True)
class OpenShards:
    """Shards that are open. Their memory lives as long as this object is referenced."""

    origins: np.ndarray
    """By shard: the address that the sample with global index 0 would have in it, or NOT_OPEN."""
    dtypes: Sequence[np.dtype]
    """Types of the elements of a shard's files; see ``ShardCache.dtypes``."""
    values: dict[int, list[np.ndarray]] = field(default_factory=dict)
    """Mapping of a shard to the values of each variable-width field."""
    rows: dict[int, np.ndarray] = field(default_factory=dict)
    weight: int = 0

    def read_pieces(
        self, column: int, shards: np.ndarray, starts: np.ndarray, stops: np.ndarray
    ) -> np.ndarray:
        """Join elements ``starts[i]`` … ``stops[i] - 1`` of file ``column`` of each shard."""
        pieces = zip(shards.tolist(), starts.tolist(), stops.tolist(), strict=True)
        arrays = [self.values[shard][column - 1][start:stop] for shard, start, stop in pieces]
        return np.concatenate(arrays or [np.empty(0, self.dtypes[column])])


class ShardCache:
    """Open shards when they are read, and close them when too many are open.

    It is safe to use from several threads.
    """

    def __init__(
        self, storage: ShardStorage, manifests: MergedManifests, starts: np.ndarray
    ) -> None:
        self._storage, self._manifests, self._starts = storage, manifests, starts
        self._variable = list_variable_fields(manifests.fields)
        self._dtype = build_row_dtype(manifests.fields)
        self.dtypes = [self._dtype]
        """Types of the elements of a shard's files: its rows, then each variable-width field."""
        for name in self._variable:
            self.dtypes.append(np.dtype(manifests.fields[name].dtype).newbyteorder("<"))
        # The limit counts bytes in memory, or maps.
        self._weights = (
            manifests.bytes.sum(axis=1)
            if storage.in_memory
            else np.full(len(manifests.names), manifests.bytes.shape[1])
        )
        self._min_limit = MEMORY
        if not storage.in_memory:
            files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            self._min_limit = MAPS if files == resource.RLIM_INFINITY else min(MAPS, files // 2)
        self._limit = self._min_limit
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(READERS, "shards") if storage.in_memory else None
        self._loading: dict[int, Future] = {}
        self._held_shards = np.empty(0, np.int64)
        self._open_shards = self._open_none()

    def open_shards(self, shards: np.ndarray) -> OpenShards:
        """Open these shards if they are not open yet; return all open ones.

        Args:
            shards: numbers of the shards, in any order; may repeat.

        Raises:
            DataError: a file is missing, or is not what its manifest says.
        """
        with self._lock:
            closed_shards = self._find_closed(shards)
            if (
                len(closed_shards)
                and self._open_shards.weight + self._weights[closed_shards].sum() > self._limit
            ):
                # All shards are closed at once. Which one was used last does not matter: if the
                # shards do not fit, the order is uniform, and any of them is as likely to be next
                # as any other.
                self._open_shards = self._open_none()
                closed_shards = self._find_closed(shards)
            for shard in closed_shards.tolist():
                future = self._loading.pop(shard, None)
                rows, values = future.result() if future else self._open_files(shard)
                self._register(shard, rows, values)
            return self._open_shards

    def prefetch_shards(self, shards: np.ndarray) -> None:
        """Begin to read these shards into memory, and drop all others; do nothing if files are
        mapped.

        Raises:
            DataError: the shards take more than half of this machine's memory.
        """
        if self._pool is None or np.array_equal(shards, self._held_shards):
            return
        self._check_memory(shards)
        self._held_shards = shards
        with self._lock:
            before, wanted_shards = self._open_shards, set(shards.tolist())
            # A read that has begun cannot be cancelled; its result is then discarded.
            for shard in self._loading.keys() - wanted_shards:
                self._loading.pop(shard).cancel()
            self._open_shards = self._open_none()
            for shard in before.rows.keys() & wanted_shards:
                self._register(shard, before.rows[shard], before.values[shard])
            for shard in shards.tolist():
                if shard not in self._loading and shard not in before.rows:
                    self._loading[shard] = self._pool.submit(self._open_files, shard)
            # With a lower limit ``open_shards`` would drop what is held here.
            self._limit = max(self._min_limit, int(self._weights[shards].sum()))

    def close(self) -> None:
        """Unmap every file. Shards in memory are kept; ``hold`` and the limit drop them."""
        if not self._storage.in_memory:
            with self._lock:
                self._open_shards = self._open_none()

    def check_files(self) -> None:
        """Check that every file exists with its size; cheap, because no file is read.

        Raises:
            DataError: a file is missing, or has another size.
        """
        sizes = self._storage.list_file_sizes()
        for shard, expected_sizes in enumerate(self._manifests.bytes.tolist()):
            for name, size in zip(self.list_file_names(shard), expected_sizes, strict=True):
                if name not in sizes:
                    raise make_missing_error(self._storage, name)
                self._check_size(name, sizes[name], size)

    def _open_none(self) -> OpenShards:
        return OpenShards(np.full(len(self._manifests.names), NOT_OPEN), self.dtypes)

    def _find_closed(self, shards: np.ndarray) -> np.ndarray:
        """Return the shards that are not open, each once, in ascending order."""
        closed_shards = shards[self._open_shards.origins[shards] == NOT_OPEN]
        # np.unique is not used: its first call imports numpy.ma, 12 ms of every start and resume.
        return (
            np.array(sorted(set(closed_shards.tolist())), np.int64)
            if len(closed_shards)
            else closed_shards
        )

    def _register(self, shard: int, rows: np.ndarray, values: list[np.ndarray]) -> None:
        """Register an opened shard, with the address of its rows."""
        open_shards, size = self._open_shards, self._dtype.itemsize
        open_shards.rows[shard], open_shards.values[shard] = rows, values
        open_shards.origins[shard] = (
            rows.__array_interface__["data"][0] - int(self._starts[shard]) * size
        )
        open_shards.weight += int(self._weights[shard])

    def _open_files(self, shard: int) -> tuple[np.ndarray, list[np.ndarray]]:
        """Open a shard's files; return its rows and the values of each variable-width field."""
        arrays = []
        for column, dtype in enumerate(self.dtypes):
            content = self._storage.open(self.list_file_names(shard)[column])
            offset = self._check_file(shard, column, content)
            arrays.append(content[offset:].view(dtype))
        return arrays[0], arrays[1:]

    def _check_file(self, shard: int, column: int, content: np.ndarray) -> int:
        """Check a file; return the offset of its elements in bytes.

        Args:
            column: number of the shard's file, as in ``dtypes``.
            content: uint8, the file.

        Raises:
            DataError: the file is not what its manifest says.
        """
        name, dtype = self.list_file_names(shard)[column], self.dtypes[column]
        self._check_size(name, len(content), int(self._manifests.bytes[shard, column]))
        try:
            # Ten bytes: magic string, version, and the length of the header that follows.
            header = content[: 10 + int(content[8:10].view("<u2")[0])].tobytes()
            stored_dtype, offset = _parse_header(header)
            if stored_dtype != dtype:
                raise ValueError(f"it holds {stored_dtype}, its manifest says {dtype}")
            count, remainder = divmod(len(content) - offset, dtype.itemsize)
            if remainder:
                raise ValueError(f"{remainder} bytes are left after its elements")
        except (ValueError, IndexError, TokenError) as error:  # numpy does not catch TokenError
            raise DataError(
                f"{self._storage}/{name}: is not the .npy file that was written: {error}; "
                "copy it again"
            ) from None
        if column == 0 and count != self._manifests.samples[shard]:
            raise DataError(
                f"{self._storage}/{name}: holds {count} samples, its "
                f"manifest says {self._manifests.samples[shard]}; shard the data again"
            )
        return offset

    def _check_size(self, name: str, size: int, expected_size: int) -> None:
        if size != expected_size:
            raise DataError(
                f"{self._storage}/{name}: has {size} bytes, its manifest says {expected_size}; "
                "it was truncated or changed: copy it again"
            )

    def _check_memory(self, shards: np.ndarray) -> None:
        """Raise DataError if the shards take more than half of this machine's memory."""
        needed_bytes = int(self._weights[shards].sum())
        available_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if needed_bytes > available_bytes // 2:
            raise DataError(
                f"{self._storage}: {len(shards)} shards of {needed_bytes / 1e9:.1f} GB would have "
                "to "
                f"be in memory at once, and the machine has {available_bytes / 1e9:.1f} GB; use "
                "loop.shuffle=windowed with smaller window_samples, smaller shards "
                "(shard.shard_mb), or mount the data"
            )

    def list_file_names(self, shard: int) -> list[str]:
        """Return the names of a shard's files, in the order of ``dtypes``."""
        file = self._manifests.names[shard].decode()
        stem = file.removesuffix(".npy")
        return [file, *(f"{stem}.{name}.npy" for name in self._variable)]


def _parse_header(content: bytes) -> tuple[np.dtype, int]:
    """Return type and offset of the elements.

    Raises:
        ValueError: not the header of a one-dimensional .npy file of version 1.0.
    """
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    if version != (1, 0):
        raise ValueError(f"format {version}; expected (1, 0)")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    if len(shape) != 1:
        raise ValueError(f"shape {shape}; expected one dimension")
    return dtype, file.tell()
