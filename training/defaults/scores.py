"""Scores of samples, from what a workload measures on each."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from training.data.dataset import Dataset
from training.data.hashes import sample_hashes
from training.data.manifest import Field, Samples
from training.scores import Block
from training.workloads import Workload

Measured = Mapping[str, Tensor | tuple[Tensor, Tensor]]


class Measuring(Workload, Protocol):
    """See ``training.workloads.simple.Simple``."""

    group: str | None
    at_once: int

    def measure(self, outputs: Tensor, batch: Mapping[str, Tensor]) -> Measured: ...


@torch.inference_mode()
def scores(
    workload: Measuring, model: nn.Module, test: Dataset, slices: Sequence[str] = ()
) -> Iterator[Block]:
    """Blocks of samples (``training.scores``), in the order of the split."""
    device = next(model.parameters()).device
    for samples, identity in rows(workload, test, slices):
        batch = on_device(samples, device)
        outputs = model(*workload.inputs(batch)).float()
        yield identity | columns(workload.measure(outputs, batch))


def columns(measured: Measured) -> Block:
    """``<metric>.sum`` and ``<metric>.weight``, float64 (n,); 1 where no weight is given."""
    found = {}
    for name, value in measured.items():
        total, weight = value if isinstance(value, tuple) else (value, torch.ones_like(value))
        found[f"{name}.sum"] = total.double().cpu().numpy()
        found[f"{name}.weight"] = weight.double().cpu().numpy()
    return found


def rows(
    workload: Measuring, dataset: Dataset, slices: Sequence[str] = ()
) -> Iterator[tuple[Samples, Block]]:
    """(samples, their ``example`` and ``group``); without groups a sample is one of its own.

    ``slices``: what the input is called that a sample comes from, if it is asked for.
    """
    count = 0
    for passage in dataset.stream(workload.at_once):
        hashes = sample_hashes(passage.samples, dataset.fields)
        alone = np.arange(count, count + len(hashes))
        count += len(hashes)
        group = passage.samples[workload.group] if workload.group else alone
        found = {f"slice.{name}": dataset.folders(passage.sources) for name in slices}
        yield passage.samples, {"example": hashes, "group": group} | found


def losses(workload: Workload, outputs: Tensor, batch: Mapping[str, Tensor]) -> Measured:
    """The loss of each sample by itself, and its units."""
    ones = [one(batch, workload.packing.fields, index) for index in range(len(outputs))]
    total = [workload.loss(outputs[i : i + 1], each) for i, each in enumerate(ones)]
    return {"loss": (torch.stack(total), torch.stack([workload.units(each) for each in ones]))}


def one(batch: Mapping[str, Tensor], fields: Mapping[str, Field], index: int) -> dict[str, Tensor]:
    """Sample ``index`` as a batch of its own."""
    found = {}
    for name, field in fields.items():
        if field.shape is not None:
            found[name] = batch[name][index : index + 1]
            continue
        offsets = batch[f"{name}_offsets"][index : index + 2]
        found[name] = batch[name][offsets[0] : offsets[1]]
        found[f"{name}_offsets"] = offsets - offsets[0]
    return found


def count(batch: Mapping[str, Tensor], fields: Mapping[str, Field]) -> Tensor:
    """Samples in a batch, 0-dim."""
    name, field = next(iter(fields.items()))
    variable = field.shape is None
    known = batch[f"{name}_offsets"] if variable else batch[name]
    return torch.tensor(len(known) - variable, device=known.device)


def on_device(samples: Samples, device: torch.device) -> dict[str, Tensor]:
    """Stored samples as a batch."""
    # A column that arrow holds as it is stored cannot be written to, and torch warns of that.
    owned = {name: np.require(array, requirements="W") for name, array in samples.items()}
    return {name: torch.from_numpy(array).to(device) for name, array in owned.items()}
