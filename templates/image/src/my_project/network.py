"""The network: two convolutions, and a linear layer for the ten digits."""

from torch import nn


class Network(nn.Module):
    """Maps pixels (n, 1, 8, 8) float32 from 0 to 1 to logits (n, 10)."""

    def __init__(self, width=16):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, padding=1, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(2 * width * 16, 10),
        )

    def forward(self, pixels):
        return self.layers(pixels)
