"""The loop that people write: a memory map, one row at a time, stacked (nanoGPT's get_batch)."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.shards.contenders import BATCH, WIDTH, raw


class Contender(raw.Contender):
    """The raw file, read as https://github.com/karpathy/nanoGPT train.py does: int64 rows."""

    def batches(self, folder: Path, shuffled: bool) -> "Batches":
        return Batches(folder / "samples.bin", shuffled)


class Batches:
    """Each row is widened to int64 and becomes a tensor; 32 of them are stacked."""

    def __init__(self, path: Path, shuffled: bool) -> None:
        self._map = np.memmap(path, np.uint16, "r").reshape(-1, WIDTH)
        self._shuffled, self._epoch = shuffled, 0

    def __iter__(self) -> Iterator[Tensor]:
        samples, self._epoch = self._map, self._epoch + 1
        order = np.arange(len(samples))
        if self._shuffled:
            order = np.random.default_rng(self._epoch).permutation(len(samples))
        for start in range(0, len(samples) - BATCH + 1, BATCH):
            rows = (samples[i].astype(np.int64) for i in order[start : start + BATCH])
            yield torch.stack([torch.from_numpy(row) for row in rows])
