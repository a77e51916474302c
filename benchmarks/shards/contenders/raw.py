"""The limit: one file, one memory map, one copy of 32 rows for each batch."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.shards.contenders import BATCH, WIDTH

PIECE = 2048
"""Samples in one call of write: 8 MB."""


class Contender:
    """Contender with nothing between the map and the tensor; it writes one file, front to back."""

    def write(self, samples: np.ndarray, folder: Path) -> None:
        with (folder / "samples.bin").open("wb") as file:
            for start in range(0, len(samples), PIECE):
                file.write(samples[start : start + PIECE])
            file.flush()
            os.fsync(file.fileno())

    def batches(self, folder: Path, shuffled: bool) -> "Batches":
        return Batches(folder / "samples.bin", shuffled)


class Batches:
    """Batches of 32 rows: a slice in order, or ``numpy.memmap[indices]``, which copies."""

    def __init__(self, path: Path, shuffled: bool) -> None:
        self._map = np.memmap(path, np.uint16, "r").reshape(-1, WIDTH)
        self._shuffled, self._epoch = shuffled, 0

    def __iter__(self) -> Iterator[Tensor]:
        samples, self._epoch = self._map, self._epoch + 1
        starts = range(0, len(samples) - BATCH + 1, BATCH)
        if not self._shuffled:
            for start in starts:
                yield torch.from_numpy(np.array(samples[start : start + BATCH]))
            return
        order = np.random.default_rng(self._epoch).permutation(len(samples))
        for start in starts:
            yield torch.from_numpy(samples[order[start : start + BATCH]])
