"""Trainyard in somebody else's loop: ``ShardDataset`` in torch's DataLoader, as it comes."""

from collections.abc import Iterator
from pathlib import Path

from torch import Tensor
from torch.utils.data import DataLoader

from benchmarks.shards.contenders import BATCH, ours
from training.data.torch_dataset import ShardDataset


class Contender(ours.Contender):
    """Contender with our dataset only; sampler, fetcher and collate are torch's."""

    def batches(self, folder: Path, shuffled: bool) -> "Batches":
        return Batches(ShardDataset(folder, shuffle="uniform" if shuffled else None))


class Batches:
    """The ``tokens`` of a DataLoader; each epoch continues the order where the last one ended."""

    def __init__(self, dataset: ShardDataset) -> None:
        self._dataset = dataset
        self._loader = DataLoader(dataset, BATCH, drop_last=True)

    def __iter__(self) -> Iterator[Tensor]:
        for batch in self._loader:
            yield batch["tokens"]
        if self._dataset.shuffle:
            self._dataset.load_state_dict({"position": self._dataset.position + len(self._dataset)})
