"""Weights as they are handed on: each tensor once, by the name that ``export`` gives it."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from training.initial.build import changing
from training.workloads import Workload

TIES = "tied_weights"
"""In config.json: further names of weights → the name that model.safetensors has them under."""


def untied(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """(the tensors, each once; further name → name of the same tensor among them).

    Each is written once, and config.json names the others. (Not the file's own metadata: its
    order, and so the bytes, would differ each time.) They may be on meta.
    """
    whole: dict[str, Tensor] = {}
    ties: dict[str, str] = {}
    first: dict[tuple, str] = {}
    for name, tensor in tensors.items():
        memory = tensor.untyped_storage()._cdata, tensor.storage_offset()  # meta has no address
        key = (memory, tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() and first.setdefault(key, name) != name:
            ties[name] = first[key]
            continue
        whole[name] = tensor
    return whole, ties


def retied(weights: Mapping[str, Tensor], description: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weights of a model.safetensors under all their names; ``description``: its config.json.

    Raises:
        KeyError: one is missing.
    """
    ties = {name: weights[first] for name, first in description.get(TIES, {}).items()}
    return {**weights, **ties}


def fill(model: nn.Module, workload: Workload, weights: Mapping[str, Tensor]) -> None:
    """Write exported weights, under all their names, into ``model``, which may be on meta.

    Raises:
        RuntimeError, KeyError: they are not this model's.
    """
    with changing(model):
        model.load_state_dict(workload.restore(weights))
