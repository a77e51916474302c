"""Hugging Face datasets: Arrow files, read in slices; resumed as an ``IterableDataset``."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from benchmarks.shards.contenders import BATCH, WIDTH, iter_readers

ROWS = 8192
"""Samples in an Arrow file: 34 MB."""

FEATURES = datasets.Features({"tokens": datasets.List(datasets.Value("uint16"), length=WIDTH)})


class Contender:
    """https://huggingface.co/docs/datasets/use_with_pytorch: format "torch", batches by slices."""

    def write(self, samples: np.ndarray, folder: Path) -> None:
        pieces = range(0, len(samples), ROWS)
        tables = [_make_table(samples[start : start + ROWS]) for start in pieces]
        dataset = datasets.concatenate_datasets([datasets.Dataset(table) for table in tables])
        dataset.save_to_disk(folder, num_shards=len(pieces))

    def batches(self, folder: Path, shuffled: bool) -> "Batches":
        return Batches(folder, shuffled)

    def save(self, folder: Path, points: Sequence[int]) -> Iterator[tuple[Any, Tensor]]:
        dataset = self._open_iterable(folder)
        for following_batch in iter_readers(dataset.iter(BATCH), points):
            yield dataset.state_dict(), following_batch()["tokens"]

    def resume(self, folder: Path, state: Any) -> Tensor:
        dataset = self._open_iterable(folder)
        dataset.load_state_dict(state)
        return next(dataset.iter(BATCH))["tokens"]

    def _open_iterable(self, folder: Path) -> datasets.IterableDataset:
        """Return an IterableDataset, which alone has a state; shards and a buffer are shuffled."""
        dataset = datasets.load_from_disk(str(folder)).with_format("torch")
        shards = len(list(folder.glob("*.arrow")))
        return dataset.to_iterable_dataset(num_shards=shards).shuffle(seed=0, buffer_size=1000)


class Batches:
    """Slices of the dataset in order, or shuffled: ``Dataset.shuffle`` and slices of that."""

    def __init__(self, folder: Path, shuffled: bool) -> None:
        self._dataset = datasets.load_from_disk(str(folder))
        self._shuffled, self._epoch = shuffled, 0

    def __iter__(self) -> Iterator[Tensor]:
        self._epoch += 1
        dataset = self._dataset.with_format("torch", dtype=torch.uint16)
        if self._shuffled:
            dataset = dataset.shuffle(seed=self._epoch)
        return (batch["tokens"] for batch in dataset.iter(BATCH, drop_last_batch=True))


def _make_table(samples: np.ndarray) -> pa.Table:
    values = pa.array(np.asarray(samples).ravel())
    tokens = pa.FixedSizeListArray.from_arrays(values, WIDTH)
    return pa.Table.from_arrays([tokens], schema=FEATURES.arrow_schema)
