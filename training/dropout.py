"""Dropout whose mask depends on the sample, not on the rank that computes it.

torch's own dropout draws numbers in sequence, so an element's number depends on what else is in the
micro-batch. Here it is a hash of (seed, position of the sample in the order of the training, the
module's name, the element's index within the sample): any micro-batch size, number of data-parallel
ranks or pipeline stages, recomputation and ``torch.compile`` give the same mask.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from training.data.bit_mixing import ODD, mix_bits
from trainyard.common.errors import TrainingError

_GOLDEN = -0x61C88647  # 2^32 / golden ratio, as a signed number


class Dropout(nn.Dropout):
    """Zero elements with probability ``p`` in training, and scale the others by 1 / (1 - p).

    The input's first dimension is the sample, (n, …), or a multiple of n. The input has to be
    whole, or a DTensor (n, …), as torch's ``SequenceParallel`` makes it: with plain parts,
    tensor-parallel ranks would drop the same elements in each part. If ranks share each sequence,
    the input is (n, t, …), and ``positions`` contains their t: (t,). A module that is called twice
    in a forward pass drops the same elements twice: use a separate module at each point.

    Outside a training run it draws from torch's random state, like ``nn.Dropout``.
    """

    samples: Tensor

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(p)
        self.register_buffer("samples", torch.zeros(0, 2, dtype=torch.int32), persistent=False)
        self.name_hash = (0, 0)
        self.positions: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Apply the samples' mask; in evaluation or without samples, do as ``nn.Dropout``."""
        if not self.training or self.p in (0, 1) or not len(self.samples):
            return super().forward(x)
        if hasattr(x, "placements"):
            return self._drop_in_part(x)
        width = x.numel() // len(self.samples)
        rows = 1 if self.positions is None else len(self.positions)
        sizes = (rows, width // rows)
        return self._drop_elements(x, sizes, [range(size) for size in sizes])

    def _drop_in_part(self, x: Any) -> Tensor:
        """Apply dropout to a DTensor: each rank drops the elements that it would drop in the
        whole tensor.
        """
        local, sizes = x.to_local(), x.shape[1:]
        ranges = [range(size) for size in x.shape]
        for ranks, placement in enumerate(x.placements):
            if placement.is_partial() or placement.is_shard(0):
                raise TrainingError(
                    "training.dropout.Dropout got a tensor that is distributed over ranks as "
                    f"{placement}: "
                    "each rank needs whole samples, and no partial sums; redistribute it first"
                )
            if placement.is_shard():
                # Split as ``torch.chunk`` does: the last ranks may have fewer elements, or none.
                full_range = ranges[placement.dim]
                size = -(-len(full_range) // x.device_mesh.size(ranks))
                start = full_range.start + size * x.device_mesh.get_local_rank(ranks)
                ranges[placement.dim] = range(
                    min(start, full_range.stop), min(start + size, full_range.stop)
                )
        output = self._drop_elements(local, sizes, ranges[1:])
        layout = {"shape": x.shape, "stride": x.stride(), "run_check": False}
        return type(x).from_local(output, x.device_mesh, x.placements, **layout)

    def _drop_elements(self, x: Tensor, sizes: Sequence[int], ranges: Sequence[range]) -> Tensor:
        """Drop elements of ``x``, which is a part of each sample.

        Args:
            sizes: sizes of a whole sample, by dimension.
            ranges: index range of ``x`` in each of these dimensions.
        """
        element = torch.zeros((), dtype=torch.int32, device=x.device)
        for number, (size, part) in enumerate(zip(sizes, ranges, strict=True)):
            along = torch.arange(part.start, part.stop, dtype=torch.int32, device=x.device)
            if number == 0 and self.positions is not None:
                along = self.positions[part.start : part.stop].int()
            element = element[..., None] * size + along
        element = element.flatten() * _GOLDEN
        first, second = (self.samples[:, n, None] ^ self.name_hash[n] for n in (0, 1))
        random_bits = _mix_words(_mix_words(element + first) ^ second)
        # The bits are signed numbers: a share p of them is below p × 2^32 − 2^31.
        mask = (random_bits >= int(self.p * 2**32) - 2**31).view(x.shape)
        return torch.where(mask, x / (1 - self.p), 0)


def assign_name_hashes(model: nn.Module) -> list[Dropout]:
    """Give each ``Dropout`` module of the model a hash of its name, so that their masks differ;
    return them.
    """
    modules = {name: m for name, m in model.named_modules() if isinstance(m, Dropout)}
    for name, module in modules.items():
        words = np.frombuffer(hashlib.sha256(name.encode()).digest()[:8], "<i4")
        module.name_hash = (int(words[0]), int(words[1]))
    return list(modules.values())


def derive_sample_keys(seed: int, first: int, count: int) -> Tensor:
    """Return the random words from which the masks of ``count`` samples, from position ``first``
    on, are drawn: int32 (count, 2).
    """
    start = np.frombuffer(hashlib.sha256(f"dropout {seed}".encode()).digest()[:8], "<u8")
    positions = np.arange(first, first + count, dtype=np.uint64)
    return torch.from_numpy(mix_bits(positions * ODD + start).view("<i4").reshape(count, 2))


def _mix_words(x: Tensor) -> Tensor:
    """Return a hash of each value, by a bijection of 32 bits in which every bit depends on every
    other.

    This is ``lowbias32`` of Christopher Wellons, "Prospecting for hash functions" (2018).
    """
    x = (x ^ _shift_right(x, 16)) * 0x7FEB352D
    # The factor fits into int32 only as a negative number.
    x = (x ^ _shift_right(x, 15)) * (0x846CA68B - 2**32)
    return x ^ _shift_right(x, 16)


def _shift_right(x: Tensor, by: int) -> Tensor:
    """Shift right by ``by`` bits, filling with zeros; torch's own shift fills with the sign bit."""
    return (x >> by) & (2 ** (32 - by) - 1)
