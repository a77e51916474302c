"""Scores of samples, computed from a workload's measurements of each sample."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from training.data.dataset import Dataset, Share
from training.data.loader import Preparation
from training.data.manifest import Samples
from training.data.shard_writer import hash_samples
from training.scores import Block
from training.workloads import Workload

CPU = torch.device("cpu")
Measurements = Mapping[str, Tensor | tuple[Tensor, Tensor]]


class Measuring(Workload, Protocol):
    """A workload that measures each sample; see ``training.workloads.simple.Simple``."""

    group: str | None
    at_once: int

    def measure(self, outputs: Tensor, batch: Mapping[str, Tensor]) -> Measurements: ...


@torch.inference_mode()
def score_samples(
    workload: Measuring,
    model: nn.Module,
    test: Dataset,
    slices: Sequence[str] = (),
    share: Share | None = None,
) -> Iterator[Block]:
    """Yield blocks of scores (``training.scores``), in the order of the split.

    Args:
        slices: names of columns to add, each with the name of the sample's input.
        share: score only this share of the samples.
    """
    batches = Batches(workload, next(model.parameters()).device)
    for samples, identity in iter_rows(workload, test, slices, share):
        batch = batches.make_batch(samples)
        outputs = model(*workload.inputs(batch)).float()
        yield identity | build_columns(workload.measure(outputs, batch))


def build_columns(measurements: Measurements) -> dict[str, np.ndarray]:
    """Return ``<metric>.sum`` and ``<metric>.weight``, float64 (n,); the weight is 1 if none is
    given.
    """
    arrays = {}
    for name, value in measurements.items():
        total, weight = value if isinstance(value, tuple) else (value, torch.ones_like(value))
        arrays[f"{name}.sum"] = total.double().cpu().numpy()
        arrays[f"{name}.weight"] = weight.double().cpu().numpy()
    return arrays


def iter_rows(
    workload: Measuring, dataset: Dataset, slices: Sequence[str] = (), share: Share | None = None
) -> Iterator[tuple[Samples, dict[str, np.ndarray]]]:
    """Yield (samples, columns ``example`` and ``group`` of these samples).

    If the workload has no group field, each sample is a group of its own.

    Args:
        slices: names of columns to add, each with the name of the sample's input.
    """
    for passage in dataset.stream(workload.at_once, share):
        hashes = hash_samples(passage.samples, dataset.fields)
        row_numbers = np.arange(passage.start, passage.start + len(hashes))
        group = passage.samples[workload.group] if workload.group else row_numbers
        slice_columns = {f"slice.{name}": dataset.get_folders(passage.sources) for name in slices}
        yield passage.samples, {"example": hashes, "group": group} | slice_columns


def compute_losses(
    workload: Workload, outputs: Tensor, batch: Mapping[str, Tensor]
) -> Measurements:
    """Return the loss of each sample computed alone, and its units."""
    ones = [select_sample(batch, index) for index in range(len(outputs))]
    total = [workload.loss(outputs[i : i + 1], sample) for i, sample in enumerate(ones)]
    return {"loss": (torch.stack(total), torch.stack([workload.units(sample) for sample in ones]))}


def select_sample(batch: Mapping[str, Tensor], index: int) -> dict[str, Tensor]:
    """Return sample ``index`` as a separate batch."""
    sample = {}
    for name, tensor in batch.items():
        if (offsets := batch.get(f"{name}_offsets")) is not None:
            start, stop = offsets[index : index + 2].tolist()
            sample[name] = tensor[start:stop]
            sample[f"{name}_offsets"] = offsets[index : index + 2] - start
        elif name not in sample:
            sample[name] = tensor[index : index + 1]
    return sample


def count_batch_samples(batch: Mapping[str, Tensor]) -> Tensor:
    """Return the number of samples in a batch, 0-dim."""
    name, first = next(iter(batch.items()))
    offsets = batch.get(f"{name}_offsets")
    size = len(first) if offsets is None else len(offsets) - 1
    return torch.tensor(size, device=first.device)


class Batches:
    """Turn stored samples into batches for a workload's evaluation, on a device."""

    def __init__(self, workload: Workload, device: torch.device = CPU) -> None:
        self._preparation, self._device = Preparation.from_workload(workload), device

    def make_batch(self, samples: Samples) -> dict[str, Tensor]:
        """Return the prepared samples as a batch on the device."""
        # An arrow column that is used as it is stored is read-only, of which torch would warn.
        writable = {name: np.require(array, requirements="W") for name, array in samples.items()}
        batch = self._preparation.make_batch(writable)
        return {name: tensor.to(self._device) for name, tensor in batch.items()}
