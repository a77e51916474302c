"""Dynamic loss scaling, for gradients that float16 would round to zero (Micikevicius et al. 2018).

A loss is multiplied before its backward pass and the gradient divided after it, both by a power of
two, which rounds nothing. The factor follows torch.amp.GradScaler: 2¹⁶ at first; halved, and
the step left out, if the gradient is not finite; doubled after 2,000 successful steps in a row.
GradScaler itself makes the host read values (``step``, ``state_dict``) and sees only what one rank
holds. Here everything stays on the device, and a step is judged by the gradient's norm over all
ranks, so that each of them leaves out the same steps.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from training.weights.initial.initial_values import local


def scale(tensors: Sequence[Tensor], by: Tensor) -> None:
    """Multiply in place by a 0-dim tensor, in each one's type and device (``cpu_offload``)."""
    groups: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault((tensor.device, tensor.dtype), []).append(local(tensor))
    for (device, dtype), group in groups.items():
        torch._foreach_mul_(group, by.to(device, dtype))


INITIAL, GROWTH, BACKOFF, INTERVAL = 2.0**16, 2.0, 0.5, 2000
"""Defaults of torch.amp.GradScaler."""

LEAST = 1.0
"""Smallest scale: a gradient that is not finite at this scale is so without scaling, and the
training ends. The same minimum as in Megatron-LM (``--min-loss-scale``) and DeepSpeed
(``min_loss_scale``)."""

REPORT_SIZE = 3
"""Number of values that ``LossScale.report`` returns."""


class LossScale:
    """The loss scale of the next step, the same on every rank.

    Attributes:
        scale: float32, 0-dim, on the device.
    """

    def __init__(self, device: torch.device) -> None:
        self.scale = torch.full((), INITIAL, dtype=torch.float32, device=device)
        self._good = torch.zeros((), dtype=torch.int32, device=device)
        self._skipped_steps = torch.zeros((), dtype=torch.int64, device=device)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Tensors that a checkpoint holds; loading writes into them."""
        return {"scale": self.scale, "good_steps": self._good, "skipped_steps": self._skipped_steps}

    def unscale(self, parameters: Iterable[nn.Parameter], rank_count: int) -> None:
        """Divide the gradients by the scale, in place; ``rank_count``: number of ranks averaged
        over.
        """
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        scale(gradients, rank_count / self.scale)

    def has_overflow(self, norm: Tensor) -> Tensor:
        """Return whether a gradient of this norm may have overflowed by scaling; boolean, 0-dim."""
        return ~norm.isfinite().to(self.scale.device) & (self.scale > LEAST)

    def report(self, overflow: Tensor) -> Tensor:
        """Return (3,) float64: the step's scale, whether it is left out, and the number left
        out.
        """
        row = self.scale, overflow, self._skipped_steps + overflow
        return torch.stack([value.double() for value in row])

    def update(self, overflow: Tensor) -> None:
        """Update the scale after a step; ``overflow`` says whether it was left out."""
        self._skipped_steps += overflow
        torch._amp_update_scale_(
            self.scale, self._good, overflow.float(), GROWTH, BACKOFF, INTERVAL
        )
        self.scale.clamp_(min=LEAST)
