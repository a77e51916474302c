"""The network: embedded bytes, a convolution over them, the maximum of each filter."""

from torch import nn


class Network(nn.Module):
    """Maps bytes (n, length) int64, padded with 0, to logits (n,)."""

    def __init__(self, width=32):
        super().__init__()
        self.embedding = nn.Embedding(256, width, padding_idx=0)
        self.convolution = nn.Conv1d(width, 64, kernel_size=5, padding=2)
        self.out = nn.Linear(64, 1)

    def forward(self, letters):
        filters = self.convolution(self.embedding(letters).transpose(1, 2)).relu()
        return self.out(filters.amax(dim=2))[:, 0]
