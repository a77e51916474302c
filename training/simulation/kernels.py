"""What CUDA's kernels keep for the backward pass, where the CPU's keep something else.

A simulation runs on CPU tensors, because torch without CUDA has no backward pass of CUDA tensors.
Attention (flash on both), matrix products and the fused optimizer keep the same.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


class FusedRmsNorm(torch.autograd.Function):
    """CUDA's ``aten::_fused_rms_norm``: keeps its input, its weight and one float32 a row.

    The CPU puts it together from five operations, some in float32, and keeps what each needs.
    """

    @staticmethod
    def forward(context: Any, x: Tensor, shape: Sequence[int], weight: Tensor | None) -> Tensor:
        rows = x.shape[: x.dim() - len(shape)]
        context.save_for_backward(x, weight, torch.empty(rows, dtype=torch.float32))
        return torch.empty_like(x)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, _ = context.saved_tensors
        return torch.empty_like(x), None, None if weight is None else torch.empty_like(weight)


@contextmanager
def cuda_kernels(moved: Callable[[int], None] = lambda size: None) -> Iterator[None]:
    """Inside, operations keep what they keep on a CUDA device.

    Args:
        moved: told the bytes that such an operation reads and writes, since torch does not see it.
    """

    def rms_norm(
        x: Tensor, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
    ) -> Tensor:
        moved(2 * x.numel() * x.element_size())
        return FusedRmsNorm.apply(x, shape, weight)

    on_cpu = F.rms_norm
    F.rms_norm = rms_norm
    try:
        yield
    finally:
        F.rms_norm = on_cpu
