"""A residual network (He et al. 2016) with group normalisation.

Batch normalisation makes what the model computes for an image depend on the others of its
micro-batch, so on how ranks share a batch. With groups (Wu & He 2018) it depends on the image
alone, and the curve is the same whatever the strategy.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.workloads.image.config import ImageConfig

GROUP = 16  # channels that are normalised together (Wu & He 2018, table 3)


class Norm(nn.GroupNorm):
    """Group normalisation that can be trained where all that is before it is frozen.

    torch 2.13 ends with a segmentation fault there: on a CPU, in the backward pass, if channels
    come last in the input and it needs no gradient, in any type.
    """

    def forward(self, input: Tensor) -> Tensor:
        """(n, channels, h, w) → the same."""
        faults = torch.is_grad_enabled() and not input.requires_grad and input.device.type == "cpu"
        return super().forward(input.contiguous() if faults else input)


class Residual(nn.Module):
    """Two convolutions beside a shortcut: (n, inside, h, w) → (n, outside, h/stride, w/stride)."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False)
        self.first_norm = Norm(outside // GROUP, outside)
        self.second = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.second_norm = Norm(outside // GROUP, outside)
        same = inside == outside and stride == 1
        self.shortcut = None if same else nn.Conv2d(inside, outside, 1, stride, bias=False)
        nn.init.zeros_(self.second_norm.weight)  # at first it is its shortcut (Goyal et al. 2017)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.first_norm(self.first(x)))
        y = self.second_norm(self.second(y))
        return F.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class ResNet(nn.Module):
    """pixels (n, size, size, channels) uint8 → logits (n, classes).

    Channels come last in memory all the way through, as the pixels do and as GPUs' convolutions
    want them.
    """

    def __init__(self, config: ImageConfig, classes: int) -> None:
        super().__init__()
        large = config.stem == "large"
        self.stem = nn.Conv2d(
            config.channels, config.width, 7 if large else 3, 2 if large else 1,
            padding=3 if large else 1, bias=False,
        )  # fmt: skip
        self.stem_norm = Norm(config.width // GROUP, config.width)
        self.shrink = nn.MaxPool2d(3, 2, 1) if large else nn.Identity()
        blocks, inside = [], config.width
        for stage, depth in enumerate(config.depths):
            outside = config.width << stage
            for block in range(depth):
                stride = 2 if stage and not block else 1
                blocks.append(Residual(inside, outside, stride))
                inside = outside
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(inside, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        nn.init.normal_(self.head.weight, std=0.01)  # Goyal et al. 2017

    def forward(self, pixels: Tensor) -> Tensor:
        x = pixels.permute(0, 3, 1, 2).to(self.head.weight.dtype) / 127.5 - 1
        x = self.shrink(F.relu(self.stem_norm(self.stem(x))))
        for block in self.blocks:
            x = block(x)
        return self.head(torch.mean(x, dim=(2, 3)))
