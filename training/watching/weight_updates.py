"""How much the weights change: measured at logged steps only.

It is computed from AdamW's state after a step, so nothing is copied beforehand and the step
itself is unchanged. It stays on the device, and goes to the host with the line's other numbers.
Each rank measures the parts of the weights that it holds; of large ones only some elements.
"""

from collections.abc import Iterator, Sequence
from math import gcd, isfinite
from statistics import median

import torch
from torch import Tensor

from training.optimizers import Lamb
from training.weights.initial.initial_values import local

SAMPLED_ELEMENTS = 2**14
"""Approximate number of sampled elements of a matrix. Root mean squares of so many agree with those
of all to a few hundredths, while a rule's thresholds are powers of ten; all elements took as long
as four of AdamW's steps."""

RUN_LENGTH = 16
"""Sampled elements that are adjacent: a processor's cache line. So they come from a thousand rows;
whole rows would be four of a large vocabulary's embedding, where those of rare words have no
gradient for hundreds of steps."""


@torch.no_grad()
def measure_updates(optimizer: torch.optim.Optimizer, device: torch.device) -> Tensor:
    """Return (1,) float64 on the device: ‖update‖ / ‖weights‖, the median over the weight matrices.

    The update is the last one, without weight decay. NaN if this rank holds no part of
    a matrix that AdamW or LAMB updates.
    """
    ratios = [ratio for group in optimizer.param_groups for ratio in _ratios(optimizer, group)]
    if not ratios:
        return torch.full((1,), torch.nan, dtype=torch.float64, device=device)
    # One by one: with cpu_offload some weights are the host's, and others the device's.
    return torch.stack([ratio.to(device) for ratio in ratios]).nanmedian()[None]


def _ratios(optimizer: torch.optim.Optimizer, group: dict) -> Iterator[Tensor]:
    """Yield the update's ratio of each matrix; NaN if its weights are 0."""
    beta1, beta2 = group.get("betas", (0.0, 0.0))
    for weight in group["params"]:
        state = optimizer.state.get(weight, {})
        if weight.dim() < 2 or "exp_avg_sq" not in state:
            continue
        samples = [_sample(tensor) for tensor in (weight, state["exp_avg"], state["exp_avg_sq"])]
        if not samples[0].numel():
            continue
        number = torch.as_tensor(state["step"], dtype=torch.float64, device=samples[0].device)
        # Before the first step the corrections below would divide by 0.
        number = number.clamp(min=1)
        roots = samples[2].sqrt()
        correction = (1 - beta2**number).sqrt()
        # AdamW adds eps to the corrected root: with both multiplied by the correction it is this.
        small = correction.to(roots.dtype)
        torch.div(samples[1], roots.add_(small * group.get("eps", 1e-6)), out=roots)
        step = torch.linalg.vector_norm(roots).double() * correction / (1 - beta1**number)
        size = torch.linalg.vector_norm(samples[0]).double()
        if isinstance(optimizer, Lamb):  # LAMB scales its step to the weights
            step = torch.where(step > 0, size, step)
        yield torch.where(size > 0, group["lr"] * step / size, torch.nan)


def _sample(tensor: Tensor) -> Tensor:
    """Return evenly spaced pieces of this rank's part; copied only if it is not contiguous."""
    part = local(tensor)
    flat, stride = part.reshape(-1), -(-part.numel() // SAMPLED_ELEMENTS)
    if stride <= 1:
        return flat
    columns = part[0].numel()
    while gcd(stride, columns) > 1:  # otherwise they would be the same columns in each row
        stride += 1
    return flat[: len(flat) // RUN_LENGTH * RUN_LENGTH].view(-1, RUN_LENGTH)[::stride]


def metrics(ratios: Sequence[float]) -> dict[str, float]:
    """Return the line's metric from every rank's measurement; none where no rank has one."""
    finite = [ratio for ratio in ratios if isfinite(ratio)]
    return {"update_ratio": median(finite)} if finite else {}
