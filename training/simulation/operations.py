"""What one operator of torch has to do: what kind of work, how many operations, how many bytes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

Kind = Literal["product", "attention", "optimizer", "collective", "free", "other"]

ATTENTION = ("scaled_dot_product", "flash_attention", "efficient_attention", "flex_attention")
BATCHED = ("aten::bmm", "aten::baddbmm")
"""Products in which no operand is a weight, in practice: attention that is written out."""

LOOKED_UP = "aten::embedding"
MADE = ("aten::empty", "aten::new_empty", "aten::lift_fresh", "aten::_unsafe_view", "prim::")
"""Operators, or their beginnings, that touch no element; views are known besides."""

Flops = Callable[..., int]


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of an operator.

    Attributes:
        dtype: of its result, ``float32``; empty where it has none.
        flops: of products and attention, as torch's FlopCounterMode counts them: two for a
            multiplication and an addition, none left out for being causal.
        bytes: read and written; 0 of a view.
    """

    name: str
    kind: Kind
    dtype: str
    flops: int
    bytes: int


def seen(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], made: Any) -> Operation:
    """A call, from its arguments and its result."""
    name = operator.name()
    flops = _flops(operator, args, kwargs, made)
    kind = _kind(operator, name, flops)
    results = [one for one in tree_leaves(made) if isinstance(one, Tensor)]
    dtype = str(results[0].dtype).removeprefix("torch.") if results else ""
    if kind == "free":
        return Operation(name, kind, dtype, 0, 0)
    read = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
    if name == LOOKED_UP:
        read = results  # the rows that are asked for, not the table
    moved = sum(map(_size, (*read, *results)))
    return Operation(name, kind, dtype, flops, moved)


def _kind(operator: Any, name: str, flops: int) -> Kind:
    if name.startswith(("_c10d_functional::", "c10d::", "c10d_functional::")):
        return "collective"
    if "_fused_adam" in name:
        return "optimizer"
    if any(part in name for part in (*ATTENTION, *BATCHED)):
        return "attention"
    if flops:
        return "product"
    if getattr(operator, "is_view", False) or name.startswith(MADE):
        return "free"
    return "other"


def _flops(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], made: Any) -> int:
    packet = getattr(operator, "overloadpacket", None)
    if packet in flop_registry:
        return int(flop_registry[packet](*args, **kwargs, out_val=made))
    name = operator.name()
    if "_flash_attention_for_cpu" in name:  # not among those that torch counts
        shapes = [one.shape for one in args if isinstance(one, Tensor)]
        if name.endswith("_backward"):
            return int(sdpa_backward_flop_count(*shapes[:4]))
        return int(sdpa_flop_count(*shapes[:3]))
    return 0


def _size(tensor: Tensor) -> int:
    """Bytes of its elements; of an expanded one those that are there."""
    try:
        there = tensor.untyped_storage().nbytes()
    except (NotImplementedError, RuntimeError):  # none of its own, as a functional wrapper's
        there = tensor.numel() * tensor.element_size()
    return min(tensor.numel() * tensor.element_size(), there)
