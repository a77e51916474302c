"""datatrove: flat files of tokens (``TokenizedFile``), read by ``DatatroveFolderDataset``."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from datatrove.pipeline.tokens.tokenizer import TokenizedFile
from datatrove.utils.dataset import DatatroveFolderDataset
from torch import Tensor
from torch.utils.data import DataLoader

from benchmarks.shards.contenders import BATCH, WIDTH

SAMPLES = 8192
"""Samples in a file: 34 MB."""


class Contender:
    """A torch DataLoader over the folder; it has no resume of its own (nanotron skips samples)."""

    def write(self, samples: np.ndarray, folder: Path) -> None:
        for start in range(0, len(samples), SAMPLES):
            file = TokenizedFile(str(folder), f"{start:08d}.ds", token_size=2)
            for row in samples[start : start + SAMPLES]:
                file.write_bytes(row.tobytes())
            file.close()

    def batches(self, folder: Path, shuffled: bool) -> "Batches":
        return Batches(folder, shuffled)


class Batches:
    """The ``input_ids`` of a DataLoader without worker processes."""

    def __init__(self, folder: Path, shuffled: bool) -> None:
        dataset = DatatroveFolderDataset(
            str(folder), seq_len=WIDTH - 1, filename_pattern="*.ds", token_size=2
        )
        self._loader = DataLoader(dataset, batch_size=BATCH, shuffle=shuffled, drop_last=True)

    def __iter__(self) -> Iterator[Tensor]:
        return (batch["input_ids"] for batch in self._loader)
