"""Dropout whose mask belongs to the sample, not to whoever computes it.

torch's own draws one number after the other, so which one an element gets depends on what else is
in the micro-batch. Here it is a hash of (seed, position of the sample in the order of the training,
the module's name, the element's place within the sample): any micro-batch, number of data-parallel
ranks or pipeline stages, recomputation and ``torch.compile`` give the same mask.
"""

import hashlib

import numpy as np
import torch
from torch import Tensor, nn

from training.data.mixing import ODD, mixed

_GOLDEN = -0x61C88647  # 2^32 / golden ratio, as a signed number


class Dropout(nn.Dropout):
    """Zeroes elements with probability ``p`` in training, scales the others by 1 / (1 - p).

    The input's elements are sample by sample: (n, …), or n × something at the front. It has to be
    whole: tensor-parallel ranks that hold parts of it would drop alike in each part. Of ranks that
    share each sequence the input is (n, t, …), and ``positions`` says which t these are: (t,). A
    module that is called twice in a forward pass drops the same elements twice: give each place its
    own.

    Outside of a training it draws from torch's random state, as ``nn.Dropout``.
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(p)
        self.register_buffer("samples", torch.zeros(0, 2, dtype=torch.int32), persistent=False)
        self.place = (0, 0)
        self.positions: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p in (0, 1) or not len(self.samples):
            return super().forward(x)
        return torch.where(self._kept(x), x / (1 - self.p), 0)

    def _kept(self, x: Tensor) -> Tensor:
        """Boolean, of x's shape."""
        width = x.numel() // len(self.samples)
        element = torch.arange(width, dtype=torch.int32, device=x.device)
        if self.positions is not None:
            inner = width // len(self.positions)
            element = (self.positions[:, None].int() * inner + element[:inner]).flatten()
        element = element * _GOLDEN
        first, second = (self.samples[:, n, None] ^ self.place[n] for n in (0, 1))
        drawn = _mixed(_mixed(element + first) ^ second)
        return (drawn >= int(self.p * 2**32) - 2**31).view(x.shape)


def name_places(model: nn.Module) -> list[Dropout]:
    """The model's ``Dropout`` modules, each told by its name from the others."""
    found = {name: m for name, m in model.named_modules() if isinstance(m, Dropout)}
    for name, module in found.items():
        words = np.frombuffer(hashlib.sha256(name.encode()).digest()[:8], "<i4")
        module.place = (int(words[0]), int(words[1]))
    return list(found.values())


def sample_keys(seed: int, first: int, count: int) -> Tensor:
    """Random words of the samples at positions ``first`` … of a training, (count, 2) int32."""
    start = np.frombuffer(hashlib.sha256(f"dropout {seed}".encode()).digest()[:8], "<u8")
    positions = np.arange(first, first + count, dtype=np.uint64)
    return torch.from_numpy(mixed(positions * ODD + start).view("<i4").reshape(count, 2))


def _mixed(x: Tensor) -> Tensor:
    """A bijection of 32 bits in which every bit depends on every other.

    ``lowbias32`` of Christopher Wellons, "Prospecting for hash functions" (2018).
    """
    x = (x ^ _shifted(x, 16)) * 0x7FEB352D
    x = (x ^ _shifted(x, 15)) * (0x846CA68B - 2**32)
    return x ^ _shifted(x, 16)


def _shifted(x: Tensor, by: int) -> Tensor:
    """To the right, zeros coming in: torch's own keeps the sign."""
    return (x >> by) & (2 ** (32 - by) - 1)
