"""What CUDA's kernels keep for the backward pass, where the CPU's keep something else.

A simulation runs on CPU tensors, because torch without CUDA has no backward pass of CUDA tensors.
Attention (flash on both), matrix products and the fused optimizer keep the same.
"""

from collections.abc import Iterator, Sequence
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
def cuda_kernels() -> Iterator[None]:
    """Inside, operations keep what they keep on a CUDA device."""
    on_cpu = F.rms_norm
    F.rms_norm = _rms_norm
    try:
        yield
    finally:
        F.rms_norm = on_cpu


def _rms_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    return FusedRmsNorm.apply(x, shape, weight)
