"""Dynamic loss scaling, for gradients that float16 would round to zero (Micikevicius et al. 2018).

A loss is multiplied before its backward pass and the gradient divided after it, both by a power of
two, which rounds nothing. The factor is as torch.amp.GradScaler has it: 2¹⁶ at first; halved, and
the step left out, where the gradient is not finite; doubled after 2,000 steps in a row that count.
GradScaler itself has the host read on the way (``step``, ``state_dict``) and looks at what one rank
holds. Here all stays on the device, and a step is judged by the gradient's norm over all ranks, so
that each of them leaves out the same steps.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from training.initial.initial_values import local


def scale(tensors: Sequence[Tensor], by: Tensor) -> None:
    """Multiply in place by a 0-dim tensor, in each one's own type and place (``cpu_offload``)."""
    alike: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for tensor in tensors:
        alike.setdefault((tensor.device, tensor.dtype), []).append(local(tensor))
    for (device, dtype), group in alike.items():
        torch._foreach_mul_(group, by.to(device, dtype))


INITIAL, GROWTH, BACKOFF, INTERVAL = 2.0**16, 2.0, 0.5, 2000
"""The defaults of torch.amp.GradScaler."""

LEAST = 1.0
"""A gradient that is not finite at this scale is so by itself: the training ends. It is the least
of Megatron-LM (``--min-loss-scale``) and DeepSpeed (``min_loss_scale``), too."""

TOLD = 3
"""Numbers that ``LossScale.told`` gives."""


class LossScale:
    """The factor of the next step, the same on every rank.

    Attributes:
        scale: float32, 0-dim, on the device.
    """

    def __init__(self, device: torch.device) -> None:
        self.scale = torch.full((), INITIAL, dtype=torch.float32, device=device)
        self._good = torch.zeros((), dtype=torch.int32, device=device)
        self._skipped = torch.zeros((), dtype=torch.int64, device=device)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint holds of it; loading writes into them."""
        return {"scale": self.scale, "good_steps": self._good, "skipped_steps": self._skipped}

    def unscale(self, parameters: Iterable[nn.Parameter], averaged: int) -> None:
        """Divide the gradients, in place, which are the average of so many ranks'."""
        gradients = [one.grad for one in parameters if one.grad is not None]
        scale(gradients, averaged / self.scale)

    def overflowed(self, norm: Tensor) -> Tensor:
        """Whether a gradient of this norm can have become so by the scaling; boolean, 0-dim."""
        return ~norm.isfinite().to(self.scale.device) & (self.scale > LEAST)

    def told(self, overflow: Tensor) -> Tensor:
        """(3,) float64: the step's scale, whether it is left out, and how many were, with it."""
        row = self.scale, overflow, self._skipped + overflow
        return torch.stack([one.double() for one in row])

    def update(self, overflow: Tensor) -> None:
        """After a step; ``overflow`` says whether it was left out."""
        self._skipped += overflow
        torch._amp_update_scale_(
            self.scale, self._good, overflow.float(), GROWTH, BACKOFF, INTERVAL
        )
        self.scale.clamp_(min=LEAST)
