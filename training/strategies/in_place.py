"""What is done in place to the parts of tensors that this rank holds."""

from collections.abc import Sequence

import torch
from torch import Tensor

from training.initial.parts import local


def scale(tensors: Sequence[Tensor], by: Tensor) -> None:
    """Multiply in place by a 0-dim tensor, in each one's own type and place (``cpu_offload``)."""
    alike: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for tensor in tensors:
        alike.setdefault((tensor.device, tensor.dtype), []).append(local(tensor))
    for (device, dtype), group in alike.items():
        torch._foreach_mul_(group, by.to(device, dtype))
