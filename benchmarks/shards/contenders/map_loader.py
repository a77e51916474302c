"""The common way to write it oneself: a memory map, sample by sample, in torch's DataLoader."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from benchmarks.shards.contenders import BATCH, WIDTH, raw


class Contender(raw.Contender):
    def batches(self, folder: Path, shuffled: bool) -> DataLoader:
        return DataLoader(Samples(folder / "samples.bin"), BATCH, shuffle=shuffled, drop_last=True)


class Samples(Dataset):
    """Dataset of the rows of a memory map, each of which is copied."""

    def __init__(self, path: Path) -> None:
        self._map = np.memmap(path, np.uint16, "r").reshape(-1, WIDTH)

    def __len__(self) -> int:
        return len(self._map)

    def __getitem__(self, index: int) -> Tensor:
        return torch.from_numpy(np.array(self._map[index]))
