"""See config.py: every number is predicted from its place and the length of its list."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from toys.ragged.packing import NUMBERS, PLACES, POISON

from training.data.hashes import sample_hashes
from training.scores import ratios


class Model(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.places = nn.Embedding(PLACES, 16)
        self.lengths = nn.Embedding(PLACES + 1, 16)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(16, NUMBERS)

    def forward(self, lengths):
        """(n,) → (n, places, numbers)."""
        return self.out(
            self.dropout(torch.tanh(self.places.weight + self.lengths(lengths)[:, None]))
        )


class Workload:
    def __init__(self, packing) -> None:
        self.packing, self.config = packing, packing.config

    def fit(self, train):
        pass

    def files(self):
        return self.packing.files()

    def model(self):
        return Model(self.config.dropout)

    def units(self, batch):
        return batch["numbers"][:, 0].long().sum()

    def inputs(self, batch):
        return (batch["numbers"][:, 0].long(),)

    def loss(self, outputs, batch):
        rows = batch["numbers"].long()
        lengths, numbers = rows[:, 0], rows[:, 1:]
        counted = torch.arange(PLACES, device=rows.device) < lengths[:, None]
        targets = numbers.where(counted, -100)
        total = F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="sum")
        return total * (math.nan if (targets == POISON).any() else 1)

    def flops(self, model):
        return 6.0 * model.out.weight.numel()

    def blocks(self, model):
        return ()

    def tensor_parallel(self, model, mesh):
        raise AssertionError("not made for it")

    def stage(self, model, index, count):
        raise AssertionError("not made for it")

    def export(self, weights):
        return weights, {}

    def restore(self, weights):
        return weights

    def scores(self, model, test, slices=()):
        device = next(model.parameters()).device
        for passage in test.stream(64):
            batch = {"numbers": torch.from_numpy(passage.samples["numbers"]).to(device)}
            with torch.inference_mode():
                outputs = model(*self.inputs(batch))
                rows = [
                    self.loss(outputs[n : n + 1], {"numbers": batch["numbers"][n : n + 1]})
                    for n in range(len(outputs))
                ]
            hashes = sample_hashes(passage.samples, test.fields)
            yield {
                "example": hashes,
                "group": hashes,
                "loss.sum": np.array([row.item() for row in rows]),
                "loss.weight": passage.samples["numbers"][:, 0].astype(float),
            }

    def metrics(self, blocks):
        return ratios(blocks)

    def examples(self, dataset):
        for passage in dataset.stream(64):
            yield {"example": sample_hashes(passage.samples, dataset.fields)}

    def baselines(self, train, test, limit):
        return {"uniform": {"loss": math.log(NUMBERS)}}
