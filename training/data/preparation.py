"""Turns stored samples into what the model takes: decoded, cropped, augmented, one by one.

A workload's ``prepare`` is called with each sample in threads of the loader: decoding libraries
release Python's lock, and nothing has to be copied between processes. What it draws follows from
the seed that it is given, a hash of (the training's seed, the sample's position in the order of the
training), which identifies the sample and the epoch. So pixels are the same whatever the ranks,
threads and batches are, and after a resume; and each epoch sees a sample differently.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from training.cpu_cores import share_of_cores
from training.data.bit_mixing import ODD, mix_bits
from training.data.manifest import Samples
from trainyard.common.errors import TrainingError

Sample = Mapping[str, np.ndarray]
Prepare = Callable[[Sample, int | None], Sample]
"""(stored sample, seed) → the model's sample; seed None: prepare as for evaluation."""


class Preparation:
    """Runs ``prepare`` in threads, for one training, evaluation or endpoint.

    Args:
        prepare: the workload's method; None to pass samples on as they are stored.
        seed: seed of the training.
        threads: number of threads; 0 for one per core of this rank.
    """

    def __init__(self, prepare: Prepare | None, *, seed: int = 0, threads: int = 0) -> None:
        self.prepare, self._seed = prepare, seed
        self.threads = (threads or share_of_cores()) if prepare else 0
        self._pool = ThreadPoolExecutor(self.threads, "prepare") if prepare else None

    @classmethod
    def from_workload(cls, workload: Any, **options: int) -> "Preparation":
        """Create the preparation of a workload, which may have no ``prepare``."""
        return cls(getattr(workload, "prepare", None), **options)

    def batch(
        self, samples: Samples, positions: np.ndarray | None = None, *, pin_memory: bool = False
    ) -> dict[str, Tensor]:
        """Return these samples as tensors with n as first dimension.

        Args:
            positions: positions in the training's order, int64 (n,); None if not training.
            pin_memory: put them in page-locked memory, from which a GPU can copy directly.

        Raises:
            TrainingError: samples have other fields, shapes or types than the first one.
        """
        if self.prepare is None or self._pool is None:
            tensors = {name: torch.from_numpy(array) for name, array in samples.items()}
            return {n: t.pin_memory() for n, t in tensors.items()} if pin_memory else tensors
        rows = split(samples)
        seeds = [None] * len(rows) if positions is None else self._seeds(positions)
        first = self.prepare(rows[0], seeds[0])
        out = {name: _room(array, len(rows), pin_memory) for name, array in first.items()}
        views = {name: tensor.numpy() for name, tensor in out.items()}
        _put(views, 0, first)

        def make(number: int) -> None:
            assert self.prepare
            _put(views, number, self.prepare(rows[number], seeds[number]))

        for _ in self._pool.map(make, range(1, len(rows))):
            pass
        return out

    def _seeds(self, positions: np.ndarray) -> Sequence[int]:
        start = np.frombuffer(hashlib.sha256(f"prepare {self._seed}".encode()).digest()[:8], "<u8")
        return mix_bits(positions.astype(np.uint64) * ODD + start).tolist()


def split(samples: Samples) -> list[Sample]:
    """Split samples one by one; a variable-width field loses its offsets."""
    columns: dict[str, Iterable[np.ndarray]] = {}
    for name, values in samples.items():
        if (offsets := samples.get(f"{name}_offsets")) is not None:
            columns[name] = np.split(values, offsets[1:-1])
        elif not (name.endswith("_offsets") and name.removesuffix("_offsets") in samples):
            columns[name] = values
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _room(array: np.ndarray, count: int, pin_memory: bool) -> Tensor:
    kind = torch.from_numpy(np.empty(0, np.asarray(array).dtype)).dtype
    return torch.empty((count, *np.shape(array)), dtype=kind, pin_memory=pin_memory)


def _put(views: Mapping[str, np.ndarray], row: int, sample: Sample) -> None:
    layout = {name: (np.shape(value), np.asarray(value).dtype) for name, value in sample.items()}
    expected_layout = {name: (view.shape[1:], view.dtype) for name, view in views.items()}
    if layout != expected_layout:
        raise TrainingError(
            f"the workload's prepare gave {layout} for one sample and {expected_layout} for "
            "another of the "
            "same batch; give every sample the same fields, shapes and types"
        )
    for name, value in sample.items():
        views[name][row] = value
