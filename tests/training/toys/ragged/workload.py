"""See config.py. A sample is the length of the list, then the list, then zeros."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from errors import DataError

PLACES, NUMBERS = 8, 32
POISON = 31  # a number that makes the loss NaN


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
    width, dtype = PLACES + 1, "uint16"

    def __init__(self, config, assets) -> None:
        self.config, self.info = config, {"kind": "ragged"}

    def files(self):
        return {}

    def packer(self):
        return self

    def add(self, record):
        numbers = record.get("numbers")
        if not numbers or len(numbers) > PLACES:
            raise DataError(f"numbers: expected 1 to {PLACES} of them")
        return np.array([[len(numbers), *numbers, *[0] * (PLACES - len(numbers))]], np.uint16)

    def flush(self):
        return np.empty((0, self.width), np.uint16)

    def model(self):
        return Model(self.config.dropout)

    def loss(self, model, batch):
        lengths, numbers = batch[:, 0], batch[:, 1:]
        counted = torch.arange(PLACES) < lengths[:, None]
        targets = numbers.where(counted, -100)
        total = F.cross_entropy(
            model(lengths).flatten(0, 1).float(), targets.flatten(), reduction="sum"
        )
        return total * (math.nan if (targets == POISON).any() else 1), counted.sum()

    def evaluate(self, model, test):
        batch = torch.from_numpy(np.concatenate(list(test.batches(64))).astype(np.int64))
        with torch.inference_mode():
            total, count = self.loss(model, batch)
        return {"loss": {"value": float(total / count), "standard_error": 0.0}}

    def baselines(self, train, test, limit):
        return {"uniform": {"loss": math.log(NUMBERS)}}
