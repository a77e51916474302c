"""The shards as a ``torch.utils.data`` dataset in the training's order, for other training loops.

The samplers of other loops count upwards, each rank through its part of the numbers. So item ``i``
is the ``i``-th sample of the order from the training's position on, and nothing here needs to know
ranks or workers: a sampler that does not shuffle gives each optimizer step the samples that our own
loop gives it.

A batch is read with those that follow it, in one go, and PyTorch's ``default_collate`` takes it as
it was read: going through its samples takes several times as long as reading them.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, default_collate
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data._utils.collate import default_collate_fn_map  # its documented registry

from training.data.chunks import CHUNK, split_chunk
from training.data.dataset import Dataset
from training.data.sample_order import Order, create_uniform_order, create_windowed_order
from trainyard.common.errors import DataError

Sample = dict[str, Tensor]
"""Mapping of field to tensor, of one sample or of several (``Batch.tensors``)."""


class Item(Sample):
    """One sample of a batch; by this type ``default_collate`` finds ``collate``."""


class Batch(Sequence[Sample]):
    """Samples read at once: a sequence, which is what collate functions expect, without copies."""

    def __init__(self, tensors: Sample, count: int) -> None:
        self.tensors, self._count = tensors, count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> list[Sample]: ...
    def __getitem__(self, index: int | slice) -> Sample | list[Sample]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        item = Item()
        for name, values in self.tensors.items():
            if name.endswith("_offsets") and name.removesuffix("_offsets") in self.tensors:
                continue  # the bounds of another field's values
            if (offsets := self.tensors.get(f"{name}_offsets")) is None:
                item[name] = values[index]
            else:
                start, stop = offsets[index % len(self) :][:2].tolist()
                item[name] = values[start:stop]
        return item


class ReadAhead:
    """Read batches; read several at once if the loader requests them at equal distances.

    A loader without workers, one of several ranks, and each worker of a loader request batches in
    this way. Batches that are then not requested were read for nothing, so the first batch is read
    alone, and reads double from there. It is safe to use from several threads.

    Args:
        read: function that returns the samples at given positions.
        max_samples: largest number of samples to read at once.
    """

    def __init__(self, read: Callable[[np.ndarray], Sample], max_samples: int) -> None:
        self._read, self._max_samples = read, max_samples
        self._lock = threading.Lock()
        self._coming: deque[tuple[bytes, np.ndarray, Sample]] = deque()
        self._last = np.empty(0, np.int64)
        self._count = 1  # batches in the last read

    def take(self, positions: np.ndarray, end: int) -> Sample:
        """Return the samples at these positions; do not read ahead from position ``end`` on."""
        with self._lock:
            if self._coming and self._coming[0][0] == positions.tobytes():
                _, self._last, batch = self._coming.popleft()
                return batch
            step, self._last = _find_step(self._last, positions), positions
            max_batches = min(2 * self._count, self._max_samples // len(positions)) if step else 1
            remaining = (end - 1 - int(positions[-1])) // step + 1 if step else 1
            self._count = count = max(1, min(max_batches, remaining))
        # Read outside the lock, so that other threads need not wait; the queue is then replaced as
        # a whole.
        batch_positions = [positions + step * number for number in range(count)]
        batches = split_chunk(self._read(np.concatenate(batch_positions)), len(positions))
        queue = deque(
            zip((p.tobytes() for p in batch_positions), batch_positions, batches, strict=True)
        )
        _, _, batch = queue.popleft()
        with self._lock:
            self._coming = queue
        return batch


def _find_step(before: np.ndarray, after: np.ndarray) -> int:
    """Return the distance between the positions of one batch and those of the batch before.

    Return 0 if this differs between positions, or if the batches overlap.
    """
    if len(before) != len(after) or not len(after):
        return 0
    steps = after - before
    return int(steps[0]) if before[-1] < after[0] and (steps == steps[0]).all() else 0


class ShardDataset(TorchDataset[Sample]):
    """A split's samples in the order of a training run, from any position on.

    The order is that of our own loop, a function of (the data's fingerprint, seed, position). It
    has no end: epoch follows epoch, each shuffled differently. Its whole state is ``position``, the
    number of samples that all ranks together have trained on. A loader reads ahead, so the loop
    must count: call ``advance`` after each optimizer step. With another number of ranks or
    DataLoader workers, or with another batch size, a training run continues from there with the
    very next sample.

    Batches that follow each other are views of one read of up to 4 MB; keeping one batch keeps the
    memory of the whole read.

    Args:
        folder: a split's shards, such as ``os.environ["SM_CHANNEL_TRAIN"]``; or an S3 prefix.
        seed: seed of the order.
        samples: how many samples a pass of a loader gives: ``max_steps`` × global batch, so that
            the framework sees a single epoch and cuts no batch short. None: each of the split's
            samples once.
        shuffle: uniform and windowed as ``train.loop.shuffle``; None: in the order of the shards,
            as for an evaluation.
        window_samples: as ``train.loop.window_samples``. Each worker process holds two windows.
        transform: function that turns a mapping of field to tensor of n samples, in stored types,
            into the model's inputs.

    Raises:
        DataError: the folder has no dataset, or a damaged one.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        seed: int = 0,
        samples: int | None = None,
        shuffle: Literal["uniform", "windowed"] | None = "uniform",
        window_samples: int = 65536,
        transform: Callable[[Sample], Sample] | None = None,
    ) -> None:
        self.folder, self.seed, self.shuffle = folder, seed, shuffle
        self.position = 0
        """Number of samples that all ranks together have trained on since the training began."""
        self._begin = 0  # the position of item 0
        self._pass: int | None = None
        self._window, self._transform = window_samples, transform
        self._open_split: OpenSplit | None = self._open()
        self._samples = len(self.data) if samples is None else samples

    @property
    def data(self) -> Dataset:
        """The split itself, opened again in each process, so that no worker shares another's
        files.
        """
        return self._get_split().data

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> Sample:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        """Return a batch, read as a whole; PyTorch's loaders call this method if it exists.

        Raises:
            DataError: the indices do not ascend, so they were shuffled or wrapped around; or a
                shard is missing or damaged.
        """
        positions = np.asarray(indices, np.int64) + self._begin
        tensors = self._get_split().read_ahead.take(positions, self._begin + len(self))
        return Batch(self._transform(tensors) if self._transform else tensors, len(indices))

    def advance(self, samples: int) -> None:
        """Record that all ranks together have trained on ``samples`` more samples."""
        self.position += samples

    def state_dict(self) -> dict[str, int]:
        """Return the position, for the loop's checkpoint."""
        return {"position": self.position}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continue from this state, so that item 0 is the sample at ``position``; call it before
        iterating.
        """
        self.position = self._begin = int(state["position"])
        self._pass = None

    def set_epoch(self, epoch: int) -> None:
        """Begin a pass at the training's position; Accelerate calls this before each pass.

        Raises:
            DataError: ``advance`` was not called in the previous pass, so its samples would be
                repeated.
        """
        is_next_pass = self._pass not in (None, epoch)
        # Without shuffling, as in an evaluation, every pass is meant to give the same samples.
        if is_next_pass and self.position == self._begin and self.shuffle:
            raise DataError(
                f"{self.folder}: pass {epoch} would repeat the samples of the previous one; call "
                "advance(global batch) after each optimizer step"
            )
        self._begin, self._pass = self.position, epoch

    def loader(
        self, batch_size: int, *, rank: int = 0, world: int = 1, **options: Any
    ) -> "ShardLoader":
        """Return a stateful DataLoader over the dataset that draws none of torch's random numbers.

        Args:
            batch_size: samples per batch of one rank.
            rank, world: set only if nothing else distributes the samples to the ranks; Accelerate's
                ``prepare`` and Lightning's Trainer do.
            options: arguments of DataLoader (num_workers, pin_memory, …).
        """
        # Samples that the ranks cannot share evenly are left out: each rank must get equally many
        # batches.
        sampler = range(rank, len(self) - len(self) % world, world) if world > 1 else None
        defaults: dict[str, Any] = {
            "drop_last": True,
            "collate_fn": collate,
            # Otherwise DataLoader would draw the seed of its workers from torch's global generator.
            "generator": torch.Generator(),
        }
        return ShardLoader(self, batch_size, sampler=sampler, **{**defaults, **options})

    def _get_split(self) -> "OpenSplit":
        if self._open_split is None or self._open_split.process != os.getpid():
            self._open_split = self._open()
        return self._open_split

    def _open(self) -> "OpenSplit":
        data = Dataset(self.folder, in_memory=self.shuffle == "windowed")
        order: Order | None = None
        if self.shuffle == "windowed":
            order = create_windowed_order(
                data.fingerprint, self.seed, data.manifests.samples, self._window
            )
        elif self.shuffle == "uniform":
            order = create_uniform_order(data.fingerprint, self.seed, len(data))
        return OpenSplit(data, order)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without open files, for spawned worker processes."""
        return self.__dict__ | {"_open_split": None}


class OpenSplit:
    """The files and the read-ahead state that one process has open of a split."""

    def __init__(self, data: Dataset, order: Order | None) -> None:
        self.process, self.data = os.getpid(), data
        self._order = order
        chunk = max(1, CHUNK * len(data) // data.bytes)  # samples
        self.read_ahead = ReadAhead(self._read, chunk)

    def _read(self, positions: np.ndarray) -> Sample:
        """Return the samples at these positions; raise DataError if they do not ascend."""
        if self._order is None:
            arrays = self.data.read(positions)
        else:
            if (np.diff(positions) <= 0).any():
                raise DataError(
                    f"{self.data.folder}: asked for the samples {positions.tolist()[:8]}…, which "
                    "do not ascend: they are in a random order already, so the sampler must not "
                    "shuffle (Trainer: train_sampling_strategy='sequential'; DataLoader: "
                    "shuffle=False), and the last batch must not be filled up (drop_last=True)"
                )
            if self.data.in_memory:
                self.data.prefetch_shards(self._order.find_next_shards(int(positions[0])))
            arrays = self.data.read(self._order.indices_at(positions))
        return {name: torch.from_numpy(array) for name, array in arrays.items()}


class ShardLoader(DataLoader[Sample]):
    """A DataLoader whose state is that of its dataset; Lightning saves and restores it."""

    dataset: ShardDataset

    def state_dict(self) -> dict[str, int]:
        return self.dataset.state_dict()

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self.dataset.load_state_dict(state)


def collate(samples: Sequence[Sample]) -> Sample:
    """Return a batch as it was read; samples that were not read together are collated by
    PyTorch.
    """
    if isinstance(samples, Batch):
        return samples.tensors
    return default_collate([dict(sample) for sample in samples])


def _collate_items(samples: Sequence[Sample], *, collate_fn_map: Any) -> Sample:
    """Call ``collate``; the signature is that of PyTorch's collate functions."""
    return collate(samples)


# A DataLoader as it comes is four times as fast by this (benchmarks.shards, against litdata).
default_collate_fn_map[Item] = _collate_items
