"""What one operator of torch has to do: what kind of work, how many operations, how many bytes."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

from training.simulation import arguments
from training.simulation.calls import EachCall

Kind = Literal["product", "attention", "optimizer", "collective", "free", "other"]

ATTENTION = ("scaled_dot_product", "flash_attention", "efficient_attention", "flex_attention")
BATCHED = ("aten::bmm", "aten::baddbmm")
"""Products in which no operand is a weight, in practice: attention that is written out."""

MATRICES = ("aten::mm", "aten::addmm")
LOOKED_UP = "aten::embedding"
MADE = ("aten::empty", "aten::new_empty", "aten::lift_fresh", "aten::_unsafe_view", "prim::")
"""Operators, or their beginnings, that touch no element; views are known besides."""

APART = ("free", "collective")
"""Kinds of calls that cannot be made alone, or need not."""

Flops = Callable[..., int]


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of an operator.

    Attributes:
        dtype: of its result, ``float32``; empty where it has none.
        flops: of products and attention, as torch's FlopCounterMode counts them: two for a
            multiplication and an addition, none left out for being causal.
        bytes: read and written; 0 of a view.
        made: bytes of the results that memory is taken for: none of what is done in place.
        sizes: rows, inner width and columns of a product of two matrices; else empty.
        given: the arguments, as ``arguments.told`` has them; empty of what computes nothing.
    """

    name: str
    kind: Kind
    dtype: str
    flops: int
    bytes: int
    sizes: tuple[int, ...] = ()
    made: int = 0
    given: str = ""


class Calls(EachCall):
    """Inside, counts the calls of operators, those on DTensors as what they do on this rank.

    Attributes:
        found: call → how often.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[Operation] = Counter()

    def clear(self) -> None:
        """Begin anew."""
        self.found.clear()

    def called(self, operator: Any, args: tuple, kwargs: Mapping[str, Any], made: Any) -> None:
        if not operator.name().startswith("prim::"):  # asked by a tensor without contents alone
            one = seen(operator, args, kwargs, made)
            given = "" if one.kind in APART else arguments.told(args, kwargs)
            self.found[replace(one, given=given)] += 1


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
    new = 0 if operator._schema.is_mutable else sum(map(_size, results))
    return Operation(name, kind, dtype, flops, moved, _sizes(name, args), new)


def _sizes(name: str, args: Sequence[Any]) -> tuple[int, ...]:
    if name not in MATRICES:
        return ()
    left, right = (one.shape for one in args[-2:])
    return (left[0], left[1], right[1])


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
