"""The global norm of gradients that lie in parts on many ranks, and clipping by it."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from training.initial.parts import local
from training.strategies.in_place import scale
from training.strategies.pipeline import Pipeline


def clip(
    model: nn.Module, longest: float, device: torch.device, pipeline: Pipeline | None
) -> Tensor:
    """The gradient's L2 norm over all ranks; the gradient is then scaled down to ``longest``.

    float64, 0-dim; the host reads nothing.
    """
    gradients = {n: gradient_of(p) for n, p in model.named_parameters() if p.requires_grad}
    if pipeline is not None:
        pipeline.add_up_shared(gradients)
    # Frozen and unused weights have none, as with one process.
    gradients = {n: gradient for n, gradient in gradients.items() if gradient is not None}
    counted = gradients
    if pipeline is not None:
        counted = {n: g for n, g in gradients.items() if n not in pipeline.not_counted}
    # In float64: a stage without gradients does not know their type.
    squares = norm(list(counted.values()), device).square().double()
    if pipeline is not None:
        dist.all_reduce(squares, group=pipeline.group)
    total = squares.sqrt()
    shrink = (longest / (total + 1e-6)).clamp(max=1.0)  # as torch's clip_grad_norm_
    scale([*gradients.values()], shrink)
    return total


def gradient_of(parameter: nn.Parameter) -> Tensor | None:
    """The gradient, laid out as the parameter is: autograd leaves that of a DTensor as it came."""
    gradient = parameter.grad
    if isinstance(gradient, DTensor) and gradient.placements != parameter.placements:
        gradient = parameter.grad = gradient.redistribute(placements=parameter.placements)
    return gradient


def norm(gradients: Sequence[Tensor], device: torch.device) -> Tensor:
    """The L2 norm over all ranks of whole and sharded tensors, 0-dim; 0 when there are none.

    A part counts on every rank that has another one; what is replicated counts once.
    """
    alike: dict[tuple, list[Tensor]] = {}
    for gradient in gradients:
        layout = (getattr(gradient, "device_mesh", None), getattr(gradient, "placements", ()))
        alike.setdefault(layout, []).append(local(gradient))
    squares = []
    for (mesh, placements), parts in alike.items():
        square = nn.utils.get_total_norm(parts).square()
        for dimension, placement in enumerate(placements):
            if not placement.is_replicate():
                dist.all_reduce(square, group=mesh.get_group(dimension))
        squares.append(square)
    return (
        torch.stack(squares).sum().sqrt().to(device) if squares else torch.zeros((), device=device)
    )
