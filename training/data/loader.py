"""Batches for one rank, read ahead by a thread.

One thread, no worker processes: a copy between processes costs more than the read (with two
DataLoader workers every library falls to a tenth or less; see benchmarks/shards). The thread
gathers chunks of some megabytes; meanwhile the interpreter is free. Batches are views of them. If a
workload prepares its samples (``preparation``), a chunk has some for each of its threads.
"""

import hashlib
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from training.cpu_cores import count_cores_per_rank
from training.data.bit_mixing import ODD, mix_bits
from training.data.chunks import CHUNK, split_chunk
from training.data.dataset import Dataset
from training.data.manifest import Samples
from training.data.sample_order import Order, rank_positions
from trainyard.common.errors import TrainingError

# Preparation turns stored samples into what the model takes: decoded, cropped, augmented, one by
# one.
#
# A workload's ``prepare`` is called with each sample in threads of the loader: decoding libraries
# release Python's lock, and nothing has to be copied between processes. Its random draws follow
# from the seed that it is given, a hash of (the training's seed, the sample's position in the order
# of the training), which identifies the sample and the epoch. So pixels are the same whatever the
# ranks, threads and batches are, and after a resume; and a sample looks different in each epoch.

Sample = Mapping[str, np.ndarray]
Prepare = Callable[[Sample, int | None], Sample]
"""(stored sample, seed) → the model's sample; if the seed is None, prepare as for evaluation."""


class Preparation:
    """Run a workload's ``prepare`` in threads, for a training run, an evaluation or an endpoint.

    Args:
        prepare: the workload's method; None to pass samples on as they are stored.
        seed: seed of the training.
        threads: number of threads; 0 for one per core of this rank.
    """

    def __init__(self, prepare: Prepare | None, *, seed: int = 0, threads: int = 0) -> None:
        self.prepare, self._seed = prepare, seed
        self.threads = (threads or count_cores_per_rank()) if prepare else 0
        self._pool = ThreadPoolExecutor(self.threads, "prepare") if prepare else None

    @classmethod
    def from_workload(cls, workload: Any, **options: int) -> "Preparation":
        """Create the preparation of a workload, which may have no ``prepare``."""
        return cls(getattr(workload, "prepare", None), **options)

    def make_batch(
        self, samples: Samples, positions: np.ndarray | None = None, *, pin_memory: bool = False
    ) -> dict[str, Tensor]:
        """Prepare these samples; return them as tensors whose first dimension is the sample.

        Args:
            positions: positions in the training's order, int64 (n,); None if not training.
            pin_memory: put them in page-locked memory, from which a GPU can copy directly.

        Raises:
            TrainingError: samples have other fields, shapes or types than the first one.
        """
        if self.prepare is None or self._pool is None:
            tensors = {name: torch.from_numpy(array) for name, array in samples.items()}
            return {n: t.pin_memory() for n, t in tensors.items()} if pin_memory else tensors
        rows = split_batch(samples)
        seeds: Sequence[int | None] = [None] * len(rows)
        if positions is not None:
            name = f"prepare {self._seed}"
            start = np.frombuffer(hashlib.sha256(name.encode()).digest()[:8], "<u8")
            seeds = mix_bits(positions.astype(np.uint64) * ODD + start).tolist()
        # The first sample determines the fields, shapes and types that all others must have.
        first = self.prepare(rows[0], seeds[0])
        out = {}
        for name, array in first.items():
            dtype = torch.from_numpy(np.empty(0, np.asarray(array).dtype)).dtype
            shape = (len(rows), *np.shape(array))
            out[name] = torch.empty(shape, dtype=dtype, pin_memory=pin_memory)
        views = {name: tensor.numpy() for name, tensor in out.items()}
        _put_sample(views, 0, first)

        def make(number: int) -> None:
            """Prepare one sample, and write it into the batch."""
            assert self.prepare
            _put_sample(views, number, self.prepare(rows[number], seeds[number]))

        # Consume the results, so that an error in any thread is raised here.
        for _ in self._pool.map(make, range(1, len(rows))):
            pass
        return out


def split_batch(samples: Samples) -> list[Sample]:
    """Split samples into one dict per sample; a variable-width field loses its offsets."""
    columns: dict[str, Iterable[np.ndarray]] = {}
    for name, values in samples.items():
        if (offsets := samples.get(f"{name}_offsets")) is not None:
            columns[name] = np.split(values, offsets[1:-1])
        elif not (name.endswith("_offsets") and name.removesuffix("_offsets") in samples):
            columns[name] = values
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _put_sample(views: Mapping[str, np.ndarray], row: int, sample: Sample) -> None:
    """Write one sample into row ``row`` of the batch; raise TrainingError if its layout differs."""
    layout = {name: (np.shape(value), np.asarray(value).dtype) for name, value in sample.items()}
    expected_layout = {name: (view.shape[1:], view.dtype) for name, view in views.items()}
    if layout != expected_layout:
        raise TrainingError(
            f"the workload's prepare returned {layout} for one sample and {expected_layout} for "
            "another of the same batch; give every sample the same fields, shapes and types"
        )
    for name, value in sample.items():
        views[name][row] = value


Batch = Mapping[str, Tensor]


class DevicePrefetcher:
    """Move a step's micro-batches from the loader to the device ahead of time.

    On CUDA they are copied on a separate stream, from pinned memory, so neither the host nor the
    computation waits for a copy that fits in a step's time. On other devices nothing is read ahead.

    Args:
        batches: batches of a loader.
        count: micro-batches per step.
    """

    def __init__(self, batches: Iterator[Batch], count: int, device: torch.device) -> None:
        self._batches, self._count, self._device = batches, count, device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._coming: tuple[list[Batch], Any] | None = None
        self._failure: Exception | None = None

    def fetch(self) -> None:
        """Start copying the next step's micro-batches; call it once this step's work is queued.

        An error is kept until ``take`` raises it, because it belongs to the step that needs the
        data.
        """
        if self._stream is None or self._coming is not None or self._failure is not None:
            return
        try:
            with torch.cuda.stream(self._stream):
                # The event is recorded after the last copy, so that ``take`` can make the
                # computation wait for it.
                self._coming = self._copy_batches(), self._stream.record_event()
        except Exception as error:  # noqa: BLE001  ``take`` raises it
            self._failure = error

    def take(self) -> list[Batch]:
        """Return the next step's micro-batches, ready for the current stream.

        Raises:
            DataError: a shard is missing or damaged.
        """
        if self._stream is None:
            return self._copy_batches()
        self.fetch()
        if self._failure is not None:
            raise self._failure
        assert self._coming is not None  # noqa: S101 (``fetch`` set it, or failed)
        (batches, copy_event), self._coming = self._coming, None
        current = torch.cuda.current_stream(self._device)
        current.wait_event(copy_event)
        for batch in batches:
            for tensor in batch.values():
                tensor.record_stream(current)  # the copying stream must not reuse its memory yet
        return batches

    def _copy_batches(self) -> list[Batch]:
        return [move_batch(next(self._batches), self._device) for _ in range(self._count)]


def move_batch(batch: Batch, device: torch.device) -> dict[str, Tensor]:
    """Return the batch on the device, without waiting for a copy from pinned memory."""
    return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}


SAMPLES_PER_THREAD = 4
"""Samples in a chunk per preparing thread, if samples are prepared."""

PREFETCH_CHUNKS = 3
"""Number of chunks read before they are requested."""

INDICES = 1 << 14
"""Maximum number of samples whose indices are computed at once: this costs less than
20 ns each instead of 2 µs.
"""


class Loader:
    """Endless micro-batches of one rank: mappings of field to tensor, in the stored types.

    The first micro-batch is read alone, and the chunks double from there, so that the first batch
    after a start or a resume waits for nothing else. For a CUDA device the tensors are in pinned
    memory, so that ``tensor.to(device, non_blocking=True)`` overlaps with the computation. Sample i
    of a variable-width field ``f`` is ``f[f_offsets[i]:f_offsets[i + 1]]``.

    Args:
        global_batch: samples that all ranks take in one optimizer step.
        micro_batch: samples in one dict; ``global_batch`` is a multiple of ``world`` times that.
        position: samples that all ranks together have taken: where the first global batch begins.
        preparation: prepares stored samples; if None, they are passed on as stored.
    """

    def __init__(
        self,
        dataset: Dataset,
        order: Order,
        *,
        global_batch: int,
        micro_batch: int,
        rank: int = 0,
        world: int = 1,
        position: int = 0,
        device: torch.device | str = "cpu",
        preparation: Preparation | None = None,
    ) -> None:
        if global_batch % (micro_batch * world):
            raise ValueError(f"{global_batch=} is not a multiple of {micro_batch=} × {world=}")
        self.stall_seconds = 0.0
        """Seconds that ``next`` has spent waiting for the thread."""
        self._begin, self._batch, self._micro = position, global_batch, micro_batch
        self._share = global_batch // world
        self._yielded_count, self._planned_count = 0, 0  # samples of this rank
        pin_memory = torch.device(device).type == "cuda"
        self._chunks = _Chunks(
            dataset, order, position, global_batch, rank, world, pin_memory, preparation
        )
        size = max(1, int(dataset.manifests.bytes.sum()) // len(dataset) * micro_batch)
        threads = preparation.threads if preparation else 0
        # Micro-batches in a full chunk: if samples are prepared, enough for all threads; otherwise
        # the largest power of two that fits into CHUNK, but at least one.
        at_once = (
            -(-SAMPLES_PER_THREAD * threads // micro_batch)
            or 1 << (CHUNK // size).bit_length() >> 1
            or 1
        )
        self._max_samples = micro_batch * at_once
        self._next = micro_batch
        # Two chunks are prepared at once, so that no thread waits for the last sample of one.
        self._pool = ThreadPoolExecutor(2 if threads else 1, "loader")
        self._coming: deque[tuple[int, int, Future[dict[str, Tensor]]]] = deque()
        self._delivery_time = time.perf_counter()  # when the last chunk was delivered
        self._batches: Iterator[dict[str, Tensor]] = iter(())

    @property
    def position(self) -> int:
        """Position at which the next global batch begins, or the current one if it is only
        partly read.
        """
        return self._begin + self._yielded_count // self._share * self._batch

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> dict[str, Tensor]:
        """Return the next micro-batch.

        Raises:
            DataError: a shard is missing or damaged.
        """
        batch = next(self._batches, None)
        while batch is None:
            self._batches = split_chunk(self._take_next_chunk(), self._micro)
            batch = next(self._batches, None)
        self._yielded_count += self._micro
        return batch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the thread after its current chunk. Garbage collection of the loader does the
        same.
        """
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _take_next_chunk(self) -> dict[str, Tensor]:
        """Return the next chunk; after a failure, the next call tries the same one again.

        Raises:
            DataError: a shard is missing or damaged.
        """
        began = time.perf_counter()
        working = began - self._delivery_time
        first, size, coming = (
            self._coming[0] if self._coming else (self._planned_count, self._next, None)
        )
        # A caller that needs a chunk whose read has not begun reads it itself, instead of waiting
        # for the thread to wake up. The exceptions are shards in memory, because the thread knows
        # what it will need, and prepared samples, because the chunks after it would wait.
        if coming is None or (not self._chunks.busy and coming.cancel()):
            chunk = self._chunks.read(first, size)
        else:
            chunk = coming.result()
        # A chunk leaves the queue only once it has arrived, so that after a failure it is tried
        # again.
        if self._coming:
            self._coming.popleft()
        else:
            self._plan_next_chunk()
        while len(self._coming) < self._count_ahead(working):
            start, count = self._plan_next_chunk()
            self._coming.append((start, count, self._pool.submit(self._chunks.read, start, count)))
        self._delivery_time = time.perf_counter()
        self.stall_seconds += self._delivery_time - began
        return chunk

    def _count_ahead(self, working: float) -> int:
        """Return how many chunks to read ahead; 0 if the consumer mostly waits for memory.

        In that case there is no work to hide the reads behind, and two threads get in each other's
        way: measured against a raw loop in order, 0.57 with the thread and 0.75 without (two cores,
        both busy).
        """
        ahead = self._chunks.busy or working * 2 > self._chunks.seconds
        return PREFETCH_CHUNKS if ahead else 0

    def _plan_next_chunk(self) -> tuple[int, int]:
        """Plan the next chunk; return it as (first sample of this rank, number of samples)."""
        chunk = self._planned_count, self._next
        self._planned_count += self._next
        self._next = min(2 * self._next, self._max_samples)
        return chunk


class _Chunks:
    """Read and prepare chunks, for the loader and its threads.

    It has no reference to the loader, so that the threads do not keep the loader alive. Two threads
    may use it at the same time: the only state that they share is a cache of upcoming indices.
    """

    def __init__(
        self,
        dataset: Dataset,
        order: Order,
        position: int,
        global_batch: int,
        rank: int,
        world: int,
        pin_memory: bool,
        preparation: Preparation | None = None,
    ) -> None:
        self._preparation = preparation or Preparation(None)
        self.busy = dataset.in_memory or self._preparation.threads > 0
        """True if there is always work to do at the same time as the consumer's."""
        self._dataset, self._order = dataset, order
        self._begin, self._pin_memory = position, pin_memory
        self._part = {"global_batch": global_batch, "rank": rank, "world": world}
        self._block = (0, np.empty(0, np.int64))
        self.seconds = math.inf  # that the last chunk took to read

    def read(self, first: int, count: int) -> dict[str, Tensor]:
        """Read and prepare samples ``first`` … ``first + count - 1`` of this rank."""
        began = time.perf_counter()
        begin, indices = self._block
        if not begin <= first <= first + count <= begin + len(indices):
            # Blocks of indices double up to INDICES, so that the first batch does not wait for a
            # whole one.
            block = max(count, min(2 * len(indices), INDICES))
            block_positions = rank_positions(self._begin, first, block, **self._part)
            begin, indices = self._block = first, self._order.indices_at(block_positions)
        indices = indices[first - begin : first - begin + count]
        positions = None
        if self.busy:
            positions = rank_positions(self._begin, first, count, **self._part)
        if positions is not None and self._dataset.in_memory:
            self._dataset.prefetch_shards(self._order.find_next_shards(int(positions[0])))
        samples = self._dataset.read(indices)
        tensors = self._preparation.make_batch(samples, positions, pin_memory=self._pin_memory)
        self.seconds = time.perf_counter() - began
        return tensors
