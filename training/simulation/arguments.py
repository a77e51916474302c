"""A call's arguments as text, and tensors like them, so that the very call can be made alone."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

NAMED = {
    "dtype": torch.dtype,
    "device": torch.device,
    "layout": torch.layout,
    "memory_format": torch.memory_format,
}
"""What torch has names for: as ``{"dtype": "float32"}``."""

PLACES = 64
"""Indices go from 0 to one less: inside any table that a model has."""

SKIPS = "found_inf"
"""An optimizer's argument: where it is one, the step is left out."""


def told(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """As JSON, a tensor as its type, sizes and strides; empty where one has no description."""
    try:
        return json.dumps([_told(list(args)), _told(dict(kwargs))], separators=(",", ":"))
    except TypeError:  # a process group, a generator
        return ""


def _told(one: Any) -> Any:
    if isinstance(one, Tensor):
        kind = str(one.dtype).removeprefix("torch.")
        return {"tensor": [kind, list(one.shape), list(one.stride())]}
    if isinstance(one, list | tuple):
        return [*map(_told, one)]
    if isinstance(one, dict):
        return {name: _told(value) for name, value in one.items()}
    for name, kind in NAMED.items():
        if isinstance(one, kind):
            return {name: str(one).removeprefix("torch.")}
    return one  # json says what it has no words for


def made(text: str) -> tuple[list[Any], dict[str, Any]]:
    """Arguments like those that ``told`` was given, on the processor.

    Numbers are ones, so that nothing becomes tiny or infinite by being done again and again.
    """
    args, kwargs = json.loads(text)
    given = {name: _made(one) for name, one in kwargs.items()}
    if isinstance(given.get(SKIPS), Tensor):
        given[SKIPS].zero_()
    return [*map(_made, args)], given


def _made(one: Any) -> Any:
    if isinstance(one, list):
        return [*map(_made, one)]
    if not isinstance(one, dict):
        return one
    ((name, value),) = one.items()
    if name == "tensor":
        return _tensor(*value)
    return torch.device("cpu") if name == "device" else getattr(torch, value)


def _tensor(kind: str, sizes: Sequence[int], strides: Sequence[int]) -> Tensor:
    dtype = getattr(torch, kind)
    last = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    there = 0 if 0 in sizes else last + 1
    if dtype.is_floating_point:
        elements = torch.ones(there, dtype=dtype)
    else:
        places = 2 if dtype is torch.bool else PLACES
        elements = (torch.arange(there) % places).to(dtype)
    return elements.as_strided(sizes, strides)
