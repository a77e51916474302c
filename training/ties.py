"""Weights that a model has under several names (``head.weight = embedding.weight``).

They are one weight: saved once, under the first of the names that the whole model has for it.
"""

from collections.abc import Mapping

from torch import nn

from trainyard.common.errors import TrainingError


def first_names(model: nn.Module) -> dict[str, str]:
    """Every name in the model's state → the first name of the same tensor."""
    first: dict[int, str] = {}
    state = model.state_dict(keep_vars=True)
    return {name: first.setdefault(id(tensor), name) for name, tensor in state.items()}


def tie_again(model: nn.Module, names: Mapping[str, str]) -> None:
    """After weights were split under each of their names: those that lie alike become one again."""
    for first, name in _untied(model, names):
        found = dict(model.named_parameters(remove_duplicate=False))
        if _layout(found[first]) == _layout(found[name]):
            module, _, last = name.rpartition(".")
            setattr(model.get_submodule(module), last, found[first])


def check(model: nn.Module, names: Mapping[str, str]) -> None:
    """What is one weight in the whole model has to be one after it was split or sharded.

    Raises:
        TrainingError: it is two, which would be trained apart.
    """
    for first, name in _untied(model, names):
        raise TrainingError(
            f"{first} and {name} are one weight, but two after the strategy has split the model, "
            "and would be trained apart: let Workload.tensor_parallel split both alike, let "
            "Workload.blocks have both in one block or in none, or set strategy to ddp"
        )


def _untied(model: nn.Module, names: Mapping[str, str]) -> list[tuple[str, str]]:
    """(first name, other name) of what is not one parameter any more."""
    found = dict(model.named_parameters(remove_duplicate=False))
    return [
        (names[name], name)
        for name, parameter in found.items()
        if found.get(names.get(name, name), parameter) is not parameter
    ]


def _layout(parameter: nn.Parameter) -> tuple[object, object]:
    """How a parameter lies over the ranks."""
    return getattr(parameter, "device_mesh", None), getattr(parameter, "placements", None)
