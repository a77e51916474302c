"""What an evaluation has of the train split: the shard step's summary of it, or all of it.

The summary (``steps.shard.summary``) holds the split's manifests, but no shard of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from training.data.dataset import Dataset
from training.scores import Block
from training.workloads import Workload

READ = 1 << 20  # names of examples at a time


@dataclass(frozen=True, slots=True)
class TrainSplit:
    """See above."""

    folder: Path
    """Where its manifests are."""
    split: Dataset
    """The split; of a summary its manifests alone, and no sample can be read."""
    sample: Dataset
    """What baselines are fitted on."""
    named: Dataset | None
    """The names of all examples; without a summary the workload is asked for them."""

    @classmethod
    def open(cls, inputs: Path) -> Self:
        """``summary`` among the job's inputs, or else ``train``."""
        folder = inputs / "summary"
        if not folder.is_dir():
            train = Dataset(inputs / "train")
            return cls(inputs / "train", train, train, None)
        named = Dataset(folder / "examples")
        return cls(folder, Dataset(folder), Dataset(folder / "sample"), named)

    def examples(self, workload: Workload) -> Iterator[Block]:
        """``example`` of every example, and ``group`` where the data have groups."""
        return workload.examples(self.split) if self.named is None else self.named.batches(READ)
