"""See config.py: every number is predicted from its place and the length of its list."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from toys.ragged.packing import NUMBERS, PLACES, POISON

from training.workloads.simple import Simple


class Model(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.places = nn.Embedding(PLACES, 16)
        self.lengths = nn.Embedding(PLACES + 1, 16)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(16, NUMBERS)

    def forward(self, lengths):
        """Map (n,) to (n, places, numbers)."""
        return self.out(
            self.dropout(torch.tanh(self.places.weight + self.lengths(lengths)[:, None]))
        )


class Workload(Simple):
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

    def baselines(self, train, test, limit):
        return {"uniform": {"loss": math.log(NUMBERS)}}
