"""A sound workload in one module: each number of a list is told from its place and neighbours."""

import numpy as np

from training.data.manifest import Field
from training.workloads import Column, column_packing
from training.workloads.simple import Simple

PLACES, NUMBERS = 6, 12


class Packing(column_packing.Packing):
    """A sample is the length of a list, then its numbers, then zeros."""

    columns = {"numbers": Column("text"), "colour": Column("category")}
    fields = {
        "numbers": Field(dtype="int32", shape=(PLACES + 1,)),
        "weight": Field(dtype="float32"),
    }

    def pack(self, records):
        rows = np.zeros((len(records), PLACES + 1), np.int32)
        for row, text in zip(rows, records.column("numbers").to_pylist(), strict=True):
            numbers = [int(word) for word in text.split()]
            row[: len(numbers) + 1] = [len(numbers), *numbers]
        return {"numbers": rows, "weight": (rows[:, 0] > 2).astype(np.float32) + 1}


class Workload(Simple):
    better = {"loss": "lower", "accuracy": "higher"}
    fitted_baselines = ("constant",)

    def model(self):
        from .network import Network

        return Network(NUMBERS)

    def prepare(self, sample, seed):
        drawn = 1 if seed is None else np.random.default_rng(seed).uniform(0.5, 1.5)
        return {**sample, "weight": np.float32(sample["weight"] * drawn)}

    def units(self, batch):
        return self.counted(batch).sum()

    def inputs(self, batch):
        return (batch["numbers"][:, 1:].long(),)

    def loss(self, outputs, batch):
        return self.nats(outputs, batch).sum()

    def measure(self, outputs, batch):
        counted, targets = self.counted(batch), batch["numbers"][:, 1:].long()
        hits = (outputs.argmax(-1) == targets) & counted
        units = counted.sum(1)
        return {"loss": (self.nats(outputs, batch).sum(1), units), "accuracy": (hits.sum(1), units)}

    def counted(self, batch):
        import torch

        lengths = batch["numbers"][:, 0]
        return torch.arange(PLACES, device=lengths.device) < lengths[:, None]

    def nats(self, outputs, batch):
        from torch.nn import functional as F

        targets = batch["numbers"][:, 1:].long()
        nats = F.cross_entropy(outputs.transpose(1, 2), targets, reduction="none")
        return nats * self.counted(batch)
