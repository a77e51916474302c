"""FSDP2: weights, gradients and optimizer state sharded over ranks (Zhao et al. 2023).

A unit is a module whose weights FSDP2 gathers together. With ``precision: bfloat16`` or ``float16``
the weights and the optimizer state stay float32, sharded; a rank gathers weights in ``param_dtype``
and reduces gradients in ``reduce_dtype``. The types of the computation are then:

- A model whose workload sets ``follows_weights`` runs without autocast, in that type from its
  embedding to its logits, as torchtitan's Llama does. Its other inputs (rotary angles) and its
  buffers keep their types; the loss is computed from float32 logits, as with every strategy.
- In any other model autocast decides operation by operation, as with one process. torch's own norms
  keep float32 weights, in a separate unit for each block: BatchNorm accepts no others, and a norm's
  weight near 1 changes less in a step than bfloat16 can resolve.

Validation gathers float32, without autocast: its losses are those of the weights as stored.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import DTensor

from training.config import TrainConfig
from training.workloads import Workload
from trainyard.common.errors import TrainingError

NORMS = (
    nn.LayerNorm,
    nn.RMSNorm,
    nn.GroupNorm,
    nn.modules.batchnorm._NormBase,  # BatchNorm and InstanceNorm
)

GATHERED_ATTRIBUTES = (
    *("param_dtype", "all_gather_outputs", "_unsharded_param"),
    "_unsharded_inner_tensors",
)
"""Attributes in which torch's FSDPParam keeps a gathered weight and its type."""
EXTENSION = ("fsdp_pre_all_gather", "fsdp_post_all_gather")
"""Methods that FSDP2 calls on a weight's part to gather it in another form (float8)."""


def shard_model(
    model: nn.Module,
    blocks: Sequence[nn.Module],
    mesh: DeviceMesh,
    config: TrainConfig,
    workload: Workload | None = None,
) -> None:
    """Shard each block, then the rest, over the mesh's ``shard`` dimension, replicated over
    ``replicate``.

    An embedding of ``Workload.embeddings`` is a unit, too. The model may be on meta. Weights
    without dimensions, which torch cannot shard, stay whole (``average_gradients``).

    Raises:
        TrainingError: a unit's trained weights are of several types.
    """
    hybrid = mesh["replicate"].size() > 1
    offload = CPUOffloadPolicy(pin_memory=mesh.device_type == "cuda")
    common: dict[str, Any] = {
        "mesh": mesh["replicate", "shard"] if hybrid else mesh["shard"],
        "offload_policy": offload if config.cpu_offload else OffloadPolicy(),
        "ignored_params": {*list_scalar_weights(model)},
    }
    follows = follows_weights(config, workload)
    policy = _choose_mixed_precision(config)
    units = [*list_embeddings(model, workload), *blocks]
    for number, unit in enumerate(units, 1):
        reshard = _choose_resharding(config, last=number == len(units))
        # Shard the norms first, because the unit would otherwise include those that are in no unit.
        if policy.param_dtype and not follows:
            _shard_norms(unit, common | {"reshard_after_forward": reshard})
        _check_types(unit)
        fully_shard(unit, mp_policy=policy, reshard_after_forward=reshard, **common)
    if policy.param_dtype and not follows:
        _shard_norms(model, common | {"reshard_after_forward": False})
    _check_types(model)
    fully_shard(model, mp_policy=policy, **common)
    for unit in list_embeddings(model, workload):
        assert isinstance(unit, FSDPModule)  # fully_shard changed its class
        unit.set_unshard_in_backward(False)  # the backward pass of a lookup does not need the table
    _schedule_prefetch([model, *units], config)


def list_scalar_weights(model: nn.Module) -> list[nn.Parameter]:
    """Return the weights without dimensions; each rank has them whole."""
    return [parameter for parameter in model.parameters() if not parameter.dim()]


def average_gradients(weights: Sequence[nn.Parameter], groups: Sequence[dist.ProcessGroup]) -> None:
    """Set the gradients of whole weights to the mean over the ranks, or to None if no rank has one.

    The host does not wait for the device, because which rank has a gradient is exchanged on the
    host. Collective: call it on every rank.
    """
    if not weights:
        return
    gradients = [weight.new_zeros(()) if weight.grad is None else weight.grad for weight in weights]
    total = torch.stack([gradient.double() for gradient in gradients])
    has_gradient = torch.tensor([w.grad is not None for w in weights], dtype=torch.int32)
    count = 1
    for group in groups:
        count *= group.size()
        dist.all_reduce(total, group=group)
        dist.all_reduce(has_gradient, group=group)
    means = (total / count).unbind()
    for weight, mean, ranks in zip(weights, means, has_gradient.tolist(), strict=True):
        weight.grad = mean.to(weight.dtype) if ranks else None


def _check_types(unit: nn.Module) -> None:
    """Check what FSDP2 asserts at the first step: a unit's weights that are not frozen have one
    type.

    Raises:
        TrainingError: there are several types; the message names a weight of each.
    """
    names = {id(parameter): name for name, parameter in unit.named_parameters()}
    types: dict[torch.dtype, str] = {}
    for module in (unit, *_iter_free_modules(unit)):
        for parameter in module.parameters(recurse=False):
            if parameter.requires_grad and parameter.dim():
                types.setdefault(parameter.dtype, names[id(parameter)])
    if len(types) > 1:
        message = " and ".join(f"{name} is {str(kind)[6:]}" for kind, name in types.items())
        raise TrainingError(
            f"{message}: weights that are sharded together must have one type; keep all in float32 "
            "in Workload.model (precision: float64 makes them wider), or set strategy to ddp"
        )


def follows_weights(config: TrainConfig, workload: Workload | None) -> bool:
    """Return whether the model computes in the type of its gathered weights, without autocast."""
    return bool(_choose_mixed_precision(config).param_dtype) and getattr(
        workload, "follows_weights", False
    )


def list_embeddings(model: nn.Module, workload: Workload | None) -> Sequence[nn.Module]:
    """Return this rank's embedding tables that are used only for lookups."""
    method = getattr(workload, "embeddings", None)
    return [] if method is None else method(model)


def _choose_mixed_precision(config: TrainConfig) -> MixedPrecisionPolicy:
    """Return FSDP2's types for gathering and reducing, according to the settings."""
    if config.strategy != "fsdp" or not config.half_precision:
        return MixedPrecisionPolicy()
    gather_dtype, reduce_dtype = (
        getattr(torch, n) for n in (config.gather_dtype, config.reduce_dtype)
    )
    return MixedPrecisionPolicy(
        param_dtype=None if gather_dtype == torch.float32 else gather_dtype,
        reduce_dtype=reduce_dtype,
        cast_forward_inputs=False,
    )


def _choose_resharding(config: TrainConfig, *, last: bool) -> bool | int:
    """Return ``reshard_after_forward`` of a unit.

    Args:
        last: whether the unit is the last, whose backward pass follows its forward pass directly.
    """
    match config.reshard_after_forward:
        case "always":
            return True
        case "never":
            return False
        case "default":
            return not last and config.pipeline_parallel == 1
        case ranks:
            return ranks


def _shard_norms(module: nn.Module, options: dict[str, Any]) -> None:
    """Shard the norms inside ``module`` that are in no unit yet, as one unit that computes in
    float32.
    """
    inside: list[nn.Module] = [m for m in _iter_free_modules(module) if isinstance(m, NORMS)]
    if norms := [m for m in inside if [*m.parameters(recurse=False)]]:
        fully_shard(norms, **options)


def _iter_free_modules(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules inside ``module`` that are in no unit yet."""
    for child in module.children():
        if not isinstance(child, FSDPModule):
            yield child
            yield from _iter_free_modules(child)


def _schedule_prefetch(modules: Sequence[nn.Module], config: TrainConfig) -> None:
    """Make each unit request the weights of the units that compute after it, before they need
    them.
    """
    # All of them are FSDP modules; this narrows the type.
    units = [module for module in modules if isinstance(module, FSDPModule)]
    for number, unit in enumerate(units):
        if prefetch_count := config.forward_prefetch:
            unit.set_modules_to_forward_prefetch([*units[number + 1 : number + 1 + prefetch_count]])
        if behind := config.backward_prefetch:
            before = units[max(0, number - behind) : number]
            unit.set_modules_to_backward_prefetch([*reversed(before)])


@contextmanager
def defer_gradient_sync(model: nn.Module, config: TrainConfig) -> Iterator[None]:
    """Context for all backward passes but the last: they do not sum gradients over all ranks."""
    is_sharded = config.strategy == "fsdp" and config.gradient_accumulation == "sharded"
    # With ``sharded``, gradients are summed over ``shard`` in each pass, and over ``replicate`` in
    # the last.
    switch = "set_requires_all_reduce" if is_sharded else "set_requires_gradient_sync"
    getattr(model, switch)(False)
    try:
        yield
    finally:
        getattr(model, switch)(True)


@contextmanager
def gather_in_stored_dtype(model: nn.Module) -> Iterator[None]:
    """Context in which weights are gathered in their stored type; at the end none is gathered.

    A forward pass without a backward one leaves some weights gathered. torch's units have one type,
    so it is changed in the units themselves, which is not a public interface of torch (the same in
    2.6 to 2.13).
    """
    cast = [
        p
        for p in iter_sharded_parameters(model)
        if getattr(p, "param_dtype", None) is not None
        or hasattr(p._sharded_local_tensor, EXTENSION[0])
    ]
    saved_attributes = [_pop_attributes(p, GATHERED_ATTRIBUTES) for p in cast]
    extensions = [_pop_attributes(p._sharded_local_tensor, EXTENSION) for p in cast]
    for parameter in cast:
        parameter.param_dtype = None
        parameter.all_gather_outputs, parameter._unsharded_inner_tensors = [], []
    try:
        yield
    finally:
        # The next training step must not find weights that were gathered in their stored type.
        reshard_weights(model)
        for parameter, before, extension in zip(cast, saved_attributes, extensions, strict=True):
            vars(parameter).pop("_unsharded_param", None)
            vars(parameter).update(before)
            vars(parameter._sharded_local_tensor).update(extension)


def _pop_attributes(target: Any, names: Sequence[str]) -> dict[str, Any]:
    """Remove the attributes ``names`` from ``target``, and return those that existed."""
    return {name: vars(target).pop(name) for name in names if name in vars(target)}


def iter_sharded_parameters(model: nn.Module) -> Iterator[Any]:
    """Yield FSDP2's object for each parameter that it has sharded."""
    for unit in model.modules():
        if not isinstance(unit, FSDPModule):
            continue
        state = unit._get_fsdp_state()
        groups = getattr(state, "_fsdp_param_groups", None)
        for group in [state._fsdp_param_group] if groups is None else groups:
            yield from group.fsdp_params if group is not None else ()


def reshard_weights(model: nn.Module) -> None:
    """Free weights that a forward pass without a backward one has left gathered."""
    for unit in model.modules():
        if isinstance(unit, FSDPModule):
            unit.reshard()


def gather_full_tensor(tensor: Tensor) -> Tensor:
    """Return a tensor, which may be sharded, as a whole. Collective: call it on every rank."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
