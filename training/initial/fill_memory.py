"""Allocates memory for a model on meta, and fills in its initial values."""

import weakref
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from training.initial.initial_values import Value, local_part
from trainyard.common.errors import TrainingError

Values = Mapping[str, Value]
"""Name of a parameter or buffer (each of its names) → its initial value."""


@torch.no_grad()
def fill(
    model: nn.Module, values: Values, device: torch.device, weights: torch.device | None = None
) -> None:
    """Allocate memory on ``device`` for every tensor on meta, and write its part of its value.

    ``weights``: device of the parameters, if different (``cpu_offload``).

    Raises:
        TrainingError: a tensor on meta has a name that the whole model lacks.
    """
    waiting = {name: tensor for name, tensor in named_tensors(model).items() if tensor.is_meta}
    places = {id(tensor): name for name, tensor in reversed(waiting.items())}
    for name in places.values():
        if name not in values:
            raise TrainingError(
                f"{name} of the split model is not a weight or buffer of the whole one, so nothing "
                "is known of its value: let Workload.stage and Workload.tensor_parallel keep names"
            )

    def allocate_tensor(tensor: Tensor) -> Tensor:
        target_device = weights if weights and isinstance(tensor, nn.Parameter) else device
        return torch.empty_like(tensor, device=target_device) if tensor.is_meta else tensor

    replace(model, allocate_tensor)
    now = named_tensors(model)
    for name in places.values():
        tensor = now[name]
        values[name].write(local_part(tensor), getattr(tensor, "_local_tensor", tensor))


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers under all their names, including those that are not saved."""
    parameters = model.named_parameters(remove_duplicate=False)
    return {**dict(parameters), **dict(model.named_buffers(remove_duplicate=False))}


def replace(model: nn.Module, convert: Callable[[Tensor], Tensor]) -> None:
    """Replace every parameter and buffer by ``allocate_tensor`` of it; tied ones only once.

    A parameter stays the same object, since modules may also keep it in attributes.
    """
    replacements: dict[int, Tensor] = {}
    originals: list[Tensor] = []  # so that no new object reuses the id of a freed one
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                originals.append(parameter)
                if id(parameter) not in replacements:
                    replacements[id(parameter)] = _swap_content(parameter, convert(parameter))
                if replacements[id(parameter)] is not parameter:
                    setattr(module, name, replacements[id(parameter)])
        for name, buffer in module._buffers.items():
            if buffer is not None:
                originals.append(buffer)
                if id(buffer) not in replacements:
                    replacements[id(buffer)] = convert(buffer)
                module._buffers[name] = replacements[id(buffer)]
    model._apply(lambda tensor: tensor)  # makes FSDP2 look up its parameters again


def _swap_content(parameter: Tensor, content: Tensor) -> Tensor:
    """Return the parameter with other content; a new object if it cannot be the same one."""
    if content is parameter:
        return parameter
    new = nn.Parameter(content, requires_grad=parameter.requires_grad)
    new.__class__ = parameter.__class__  # type: ignore[assignment]  # a Parameter's, or DTensor's
    new.__dict__.update(parameter.__dict__)
    if weakref.getweakrefs(parameter):  # nn.LSTM holds such references, which setattr renews
        return new
    torch.utils.swap_tensors(parameter, new)
    return parameter
