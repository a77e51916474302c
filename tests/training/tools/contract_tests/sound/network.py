"""The network of the sound workload."""

import torch
from torch import nn

from training.dropout import Dropout


class Network(nn.Module):
    """(n, places) → (n, places, numbers)."""

    def __init__(self, numbers):
        super().__init__()
        self.embedding = nn.Embedding(numbers, 16)
        self.layers = nn.ModuleList([nn.Linear(16, 16), nn.Linear(16, 16)])
        self.scale = nn.Parameter(torch.ones(16))
        self.register_buffer("seen", torch.zeros(()))
        self.dropout = Dropout(0.1)
        self.head = nn.Linear(16, numbers)

    def forward(self, numbers):
        x = self.embedding(numbers)
        x = x + x.mean(1, keepdim=True)
        for layer in self.layers:
            x = torch.tanh(layer(x))
        x = self.dropout(x * self.scale)
        return self.head(x) * (1 + 1e-3 * self.seen)
