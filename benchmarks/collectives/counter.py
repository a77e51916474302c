"""Counts every collective of torch.distributed while it is on, whoever calls it.

FSDP2, DDP's C++ reducer, DTensor and our own code all go through torch's dispatcher, as operators
of ``c10d`` or ``_c10d_functional``; torch's CommDebugMode sees the same ones, and no bytes.
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from training.traffic import Kind, Traffic

# Operator → (kind, which of its tensors is the whole one: the first or the last).
OPERATORS: Mapping[str, tuple[Kind, int]] = {
    "c10d::allreduce_": ("all_reduce", 0),
    "c10d::_allgather_base_": ("all_gather", 0),
    "c10d::_reduce_scatter_base_": ("reduce_scatter", -1),
    "c10d::broadcast_": ("broadcast", 0),
    "c10d::send": ("send", 0),
    "_c10d_functional::all_reduce": ("all_reduce", 0),
    "_c10d_functional::all_reduce_": ("all_reduce", 0),
    "_c10d_functional::all_gather_into_tensor": ("all_gather", 0),
    "_c10d_functional::reduce_scatter_tensor": ("reduce_scatter", 0),
    "_c10d_functional::all_to_all_single": ("all_to_all", 0),
}
IGNORED = {
    "c10d::recv_",
    "_c10d_functional::wait_tensor",
    "_c10d_functional::_wrap_tensor_autograd",
}


class Counting(TorchDispatchMode):
    """While it is on, ``found`` grows: (axis, kind, type) → messages and bytes of whole tensors.

    Args:
        axes: a group's own name → the axis that it lies along.
        other: the axis of any other group.
    """

    def __init__(self, axes: Mapping[str, str], other: str) -> None:
        super().__init__()
        self._axes, self._other, self.found = axes, other, Traffic()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # it says what it sends by operators of its own
        name = getattr(func, "_schema", None) and func._schema.name
        result = func(*args, **(kwargs or {}))
        if name in OPERATORS:
            self._count(name, args)
        elif name and name.startswith(("c10d::", "_c10d_functional::")) and name not in IGNORED:
            raise NotImplementedError(f"{name}: is counted by no line of {__name__}.OPERATORS")
        return result

    def _count(self, name: str, args: tuple) -> None:
        kind, place = OPERATORS[name]
        tensors = [leaf for leaf in tree_leaves(args) if isinstance(leaf, Tensor)]
        group, whole = _group(args), tensors[place]
        size = whole.numel() * whole.itemsize
        if name == "_c10d_functional::all_gather_into_tensor":  # is given its input alone
            size *= group.size()
        if group.size() > 1:
            axis = self._axes.get(group.group_name, self._other)
            self.found.add(axis, kind, str(whole.dtype).removeprefix("torch."), size)


def _group(args: tuple) -> dist.ProcessGroup:
    for one in reversed(args):
        if isinstance(one, str) and one not in ("sum", "avg", "max", "min"):
            return torch._C._distributed_c10d._resolve_process_group(one)
        if isinstance(one, torch.ScriptObject):
            try:
                return dist.ProcessGroup.unbox(one)
            except RuntimeError:  # a reduction's kind
                continue
    raise ValueError(f"no process group among {args}")
