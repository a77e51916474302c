"""A workload on its sample data, as the contract's rules use it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from training.data.dataset import Dataset
from training.data.manifest import Samples
from training.data.shard_writer import count_of, part
from training.defaults.default_scores import Batches
from training.workloads import Workload, WorkloadSpec, load, spec

SEED = 7
SAMPLES = 8
"""Samples in the batch that most rules use."""

Batch = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Trial:
    """A workload under test: its name, its settings, and a folder with its sharded sample data."""

    name: str
    settings: Mapping[str, Any]
    folder: Path
    """Folder with ``train``, ``validation`` and ``test``."""

    raw: Path | None = None
    """Folder of the raw sample data, if known."""

    @cached_property
    def spec(self) -> WorkloadSpec:
        return spec(self.name)

    @cached_property
    def train(self) -> Dataset:
        return Dataset(self.folder / "train")

    @cached_property
    def validation(self) -> Dataset:
        return Dataset(self.folder / "validation")

    @cached_property
    def test(self) -> Dataset:
        return Dataset(self.folder / "test")

    def workload(self) -> Workload:
        """Create a new workload, as the train job does."""
        workload = load(self.name, self.settings, self.folder / "train")
        workload.fit(self.train)
        return workload

    @cached_property
    def shared_workload(self) -> Workload:
        """A workload shared by all rules that do not change it."""
        return self.workload()

    def model(self, workload: Workload | None = None, seed: int = SEED) -> nn.Module:
        """Create a model with fresh weights."""
        torch.manual_seed(seed)
        return (workload or self.shared_workload).model()

    @cached_property
    def samples(self) -> Samples:
        """SAMPLES samples of the training split, spread evenly over it."""
        return self.train.read(np.linspace(0, len(self.train) - 1, SAMPLES).astype(np.int64))

    def batch(self, start: int = 0, stop: int = SAMPLES) -> Batch:
        """Return some of ``samples`` as a separate batch."""
        return self._batches.make_batch(
            copy_samples(part(self.samples, self.train.fields, start, stop))
        )

    @cached_property
    def _batches(self) -> Batches:
        return Batches(self.shared_workload)

    def batches(self, dataset: Dataset, size: int = SAMPLES) -> Iterator[tuple[int, Batch]]:
        """Yield (number of samples, batch) over a whole split."""
        for samples in dataset.batches(size):
            yield count_of(samples, dataset.fields), self._batches.make_batch(samples)


def copy_samples(samples: Samples) -> Samples:
    """Return a copy of the samples that nothing else refers to."""
    return {name: array.copy() for name, array in samples.items()}


def losses(workload: Workload, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return (outputs in float32 or wider, loss), computed as a strategy does."""
    outputs = model(*workload.inputs(batch))
    wide = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
    return wide, workload.loss(wide, batch)


@contextmanager
def mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """Context in which the model trains or evaluates; every module's mode is restored
    afterwards.
    """
    before = {module: module.training for module in model.modules()}
    if not training:
        model.eval()
    yield
    for module, was in before.items():
        module.training = was
