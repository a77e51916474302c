"""AdamW and LAMB over whole or sharded weights, learning-rate schedules, averaged weights."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn

from training.config import TrainConfig

SCHEDULES: Mapping[str, Callable[[float], float]] = {
    "cosine": lambda progress: (1 + math.cos(math.pi * progress)) / 2,
    "wsd": lambda progress: 1 - progress,
}
"""Mapping of schedule to the share of the way from the floor to the peak that remains at a
progress of 0 … 1.
"""


def compute_learning_rate(config: TrainConfig, step: int) -> float:
    """Return the learning rate of optimizer step ``step`` (from 0).

    It rises linearly to the peak during the warm-up. Then it follows half a cosine (Loshchilov &
    Hutter 2017, SGDR, equation 5, without restarts), or is constant and then decays linearly (WSD),
    to ``min_learning_rate_ratio``, which the last step always has: a warm-up ends before it.
    """
    peak = config.learning_rate
    if config.reference_batch:
        peak *= config.global_batch / config.reference_batch
    warmup = min(config.warmup_steps, config.max_steps - 1)
    if step < warmup:
        return peak * ((step + 1) / warmup)
    decay = config.max_steps - warmup
    # Exact: 0.07 × 100 steps are 7, but as binary floats slightly more.
    if config.schedule == "wsd":
        decay = min(decay, math.ceil(Fraction(str(config.decay_share)) * config.max_steps))
    begin = config.max_steps - decay
    progress = min(1.0, max(0, step - begin) / (decay - 1)) if decay > 1 else float(step >= begin)
    remaining_share = SCHEDULES[config.schedule](progress)
    floor = config.min_learning_rate_ratio
    return peak * (floor + (1 - floor) * remaining_share)


def list_decayed_weights(model: nn.Module) -> set[str]:
    """Return the names of the weights with weight decay: those of two or more dimensions, so no
    norms and biases.
    """
    return {name for name, parameter in model.named_parameters() if parameter.dim() >= 2}


def build_optimizer(
    config: TrainConfig, model: nn.Module, decay: set[str] | None = None
) -> torch.optim.Optimizer:
    """Return the configured optimizer.

    Frozen weights (``requires_grad=False``) are left out. A parameter group contains weights of one
    device mesh only, because DTensors of different meshes, or DTensors and whole tensors, do not
    mix in one fused operation.

    Args:
        decay: names of the weights with weight decay; by default ``list_decayed_weights``.
    """
    decay = list_decayed_weights(model) if decay is None else decay
    groups: dict[object, dict] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        group = groups.setdefault(
            (name in decay, getattr(parameter, "device_mesh", None)),
            {"params": [], "weight_decay": config.weight_decay if name in decay else 0.0},
        )
        group["params"].append(parameter)
    kind, options = OPTIMIZERS[config.optimizer]
    betas = (config.beta1, config.beta2)
    # A pipeline stage may have frozen weights only, and an optimizer needs at least one group.
    param_groups = list(groups.values()) or [{"params": []}]
    return kind(param_groups, lr=config.learning_rate, betas=betas, **options)


def take_step(optimizer: torch.optim.Optimizer, finite: Tensor) -> None:
    """Take an optimizer step, which the device skips if ``finite`` is false.

    torch's GradScaler tells a fused optimizer to skip by ``found_inf``: if it is 1, weights,
    moments and the count of steps stay as they are, and the host need not know.

    Args:
        finite: boolean, 0-dim, on the device; the host waits for it if the weights are on the host.
    """
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    # With cpu_offload the weights are on the host, and the step runs there.
    device = weights[0].device if weights else finite.device
    optimizer.found_inf = (~finite).float().to(device)  # type: ignore[attr-defined]  # not in stubs
    try:
        optimizer.step()
    finally:
        del optimizer.found_inf  # type: ignore[attr-defined]


class Lamb(torch.optim.Optimizer):
    """Adam's step, scaled per layer by ‖weights‖ / ‖step‖ (You et al. 2020, algorithm 2).

    It is written here because norms must be of the whole tensor even if it is sharded, which the
    libraries' implementations get wrong. As in the paper's experiments φ is the identity, and the
    ratio is 1 if a norm is 0. The count of steps is on the weights' device, as a fused AdamW's is,
    because only the device knows whether a step is skipped (``take_step``).
    """

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # nothing calls it with a closure
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)

    def _update(self, parameter: Tensor, gradient: Tensor, group: dict) -> None:
        """Update one weight and its moments; nothing changes if ``found_inf`` is 1."""
        state, (beta1, beta2) = self.state[parameter], group["betas"]
        if not state:
            state["step"] = torch.zeros((), device=parameter.device)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        active = torch.ones((), dtype=torch.float64, device=parameter.device)
        if (found_inf := getattr(self, "found_inf", None)) is not None:
            # NaN times 0 is NaN, so the gradient itself has to become 0 in a skipped step.
            active, gradient = 1 - found_inf.double(), gradient.masked_fill(found_inf > 0, 0)
        state["step"] += active
        share = (active * (1 - beta1)).to(parameter.dtype)  # weight of the new value in the average
        first = state["exp_avg"].lerp_(gradient, share)
        decay = (1 - active * (1 - beta2)).to(parameter.dtype)
        second = state["exp_avg_sq"].mul_(decay).addcmul_(gradient, gradient, value=1 - beta2)
        # If the first step is skipped, the corrections would divide by 0.
        number = state["step"].double().clamp(min=1)
        denominator = (second / (1 - beta2**number).to(parameter.dtype)).sqrt_().add_(1e-6)
        step = (first / (1 - beta1**number).to(parameter.dtype)).div_(denominator)
        step = step.add_(parameter, alpha=group["weight_decay"])
        weight_norm, step_norm = _compute_norm(parameter), _compute_norm(step)
        ratio = torch.where((weight_norm > 0) & (step_norm > 0), weight_norm / step_norm, 1.0)
        parameter.sub_(step.mul_((active * group["lr"] * ratio).to(parameter.dtype)))


OPTIMIZERS: Mapping[str, tuple[Callable[..., torch.optim.Optimizer], Mapping[str, Any]]] = {
    "adamw": (torch.optim.AdamW, {"fused": True}),
    "lamb": (Lamb, {}),
}
"""Mapping of optimizer to (class, further arguments besides rate, betas and groups)."""


def _compute_norm(tensor: Tensor) -> Tensor:
    """Return the L2 norm, float64, 0-dim; of a DTensor, over all of its shards."""
    length = torch.linalg.vector_norm(tensor)
    return (length.full_tensor() if hasattr(length, "full_tensor") else length).double()


def iter_moments(optimizer: torch.optim.Optimizer) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
    """Yield (parameter, mapping of name to tensor) of the optimizer's state, creating it if
    missing.

    State is missing if a parameter has had no gradient yet in this process. A step at rate 0 with
    gradients of 0 creates it without changing weights; gradients are removed afterwards.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if lacking := [p for p in parameters if not optimizer.state.get(p)]:
        rates = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = 0.0
        optimizer.zero_grad()
        for parameter in lacking:
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        optimizer.zero_grad()
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        # The step at rate 0 was counted, so reset the count.
        for parameter in lacking:
            for tensor in optimizer.state[parameter].values():
                tensor.zero_()
    for parameter in parameters:
        yield parameter, optimizer.state[parameter]


class Average:
    """An exponential moving average of the weights (Polyak & Juditsky 1992; Izmailov et al. 2018).

    The decay rises to the requested one: in step n (from 1) it is min(decay, n / (9 + n)), as in
    TensorFlow's ``ExponentialMovingAverage`` with ``num_updates``, and in timm and diffusers. So
    the average covers at most the last tenth of the steps so far: whatever the decay, 10^-5 of the
    initial weights is left after ten steps.

    Frozen weights are not averaged. The average is sharded like the weights: each rank averages
    what it holds.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._decay = decay
        trainable = {n: p for n, p in model.named_parameters() if p.requires_grad}
        self._weights = trainable
        self.tensors = {n: p.detach().clone() for n, p in trainable.items()}

    @torch.no_grad()
    def update(self, step: int, finite: Tensor) -> None:
        """Update the average after step ``step`` (from 0): average ← d × average + (1 − d) ×
        weights.

        Args:
            finite: boolean, 0-dim, on the weights' device; if false, nothing changes.
        """
        decay = min(self._decay, (1 + step) / (10 + step))
        share = finite.double() * (1 - decay)
        for name, parameter in self._weights.items():
            self.tensors[name].lerp_(parameter, share.to(parameter.device, parameter.dtype))

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange the weights and their average; a second call exchanges them back."""
        for name, parameter in self._weights.items():
            backup = parameter.detach().clone()
            parameter.copy_(self.tensors[name])
            self.tensors[name].copy_(backup)
