"""Trainyard: shards of .npy, read by ``Loader``."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from benchmarks.shards.contenders import BATCH, WIDTH, iter_readers
from training.data.dataset import Dataset
from training.data.loader import Loader
from training.data.manifest import Field, Manifest, Source, write_manifest
from training.data.sample_order import Order, create_uniform_order
from training.data.shard_writer import ShardWriter

FIELDS = {"tokens": Field(dtype="uint16", shape=(WIDTH,))}
SHARD_BYTES = 64_000_000
PIECE = 2048
"""Samples in one call of add: 8 MB."""


class Contender:
    """Contender that reads as the training loop does."""

    def write(self, samples: np.ndarray, folder: Path) -> None:
        writer = ShardWriter(folder, "0" * 16, FIELDS, SHARD_BYTES)
        for start in range(0, len(samples), PIECE):
            writer.add({"tokens": samples[start : start + PIECE]})
        source = Source(name="corpus.bin", records=len(samples), samples=len(samples))
        manifest = Manifest(
            split="train", fields=FIELDS, workload={}, sources=[source], shards=writer.close()
        )
        write_manifest(manifest, folder / "manifest-algo-1.json")

    def batches(self, folder: Path, shuffled: bool) -> "Batches":
        return Batches(folder, shuffled)

    def save(self, folder: Path, points: Sequence[int]) -> Iterator[tuple[Any, Tensor]]:
        with _make_loader(Dataset(folder), shuffled=True) as loader:
            for following_batch in iter_readers(loader, points):
                yield loader.position, following_batch()["tokens"]

    def resume(self, folder: Path, state: Any) -> Tensor:
        return next(_make_loader(Dataset(folder), shuffled=True, position=state))["tokens"]


class Batches:
    """The ``tokens`` of an endless loader: it goes from epoch to epoch by itself."""

    def __init__(self, folder: Path, shuffled: bool) -> None:
        self._dataset, self._shuffled = Dataset(folder), shuffled

    def __iter__(self) -> Iterator[Tensor]:
        with _make_loader(self._dataset, self._shuffled) as loader:
            for batch in loader:
                yield batch["tokens"]


def _make_loader(dataset: Dataset, shuffled: bool, position: int = 0) -> Loader:
    order = Order(len(dataset), lambda epoch: lambda positions: positions)
    if shuffled:
        order = create_uniform_order(dataset.fingerprint, 0, len(dataset))
    return Loader(dataset, order, global_batch=BATCH, micro_batch=BATCH, position=position)
