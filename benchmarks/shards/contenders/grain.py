"""Grain: ArrayRecord files, a ``MapDataset`` with a global shuffle by index."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grain
import numpy as np
import torch
from array_record.python.array_record_module import ArrayRecordWriter
from torch import Tensor

from benchmarks.shards.contenders import BATCH, following

SAMPLES = 8192
"""Samples in a file: 34 MB."""

READ = grain.ReadOptions(num_threads=0)
"""Its documentation recommends 0 threads for data that is already in memory (the page cache)."""


class Contender:
    """https://google-grain.readthedocs.io: source, shuffle, map, batch, iterate.

    ``group_size:1`` is what its data source asks for; uncompressed, since tokens do not compress.
    """

    def write(self, samples: np.ndarray, folder: Path) -> None:
        for start in range(0, len(samples), SAMPLES):
            path = folder / f"{start:08d}.array_record"
            writer = ArrayRecordWriter(str(path), "group_size:1,uncompressed")
            for row in samples[start : start + SAMPLES]:
                writer.write(row.tobytes())
            writer.close()

    def batches(self, folder: Path, shuffled: bool) -> "Batches":
        return Batches(folder, shuffled)

    def save(self, folder: Path, points: Sequence[int]) -> Iterator[tuple[Any, Tensor]]:
        iterator = self._iterator(folder)
        for following_batch in following(iterator, points):
            yield iterator.get_state(), torch.from_numpy(following_batch())

    def resume(self, folder: Path, state: Any) -> Tensor:
        iterator = self._iterator(folder)
        iterator.set_state(state)
        return torch.from_numpy(next(iterator))

    def _iterator(self, folder: Path) -> grain.DatasetIterator:
        return iter(_dataset(folder, shuffled=True).to_iter_dataset(READ))


class Batches:
    """Every epoch is a pass over the dataset with a seed of its own."""

    def __init__(self, folder: Path, shuffled: bool) -> None:
        self._folder, self._shuffled, self._epoch = folder, shuffled, 0

    def __iter__(self) -> Iterator[Tensor]:
        self._epoch += 1
        dataset = _dataset(self._folder, self._shuffled, self._epoch)
        return map(torch.from_numpy, dataset.to_iter_dataset(READ))


def _dataset(folder: Path, shuffled: bool, seed: int = 0) -> grain.MapDataset:
    paths = sorted(map(str, folder.glob("*.array_record")))
    dataset = grain.MapDataset.source(grain.sources.ArrayRecordDataSource(paths))
    if shuffled:
        dataset = dataset.shuffle(seed=seed)
    return dataset.map(_tokens).batch(BATCH, drop_remainder=True)


def _tokens(record: bytes) -> np.ndarray:
    return np.frombuffer(record, np.uint16)
