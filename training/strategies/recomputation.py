"""Selective recomputation: what is dear to compute and small to keep is kept (Korthikanti et al.
2022, section 5); the rest of a block is computed anew in the backward pass.

The choice is torchtitan's (``torchtitan/distributed/activation_checkpoint.py``): attention, what
was reduced over ranks, and every second matrix product.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from trainyard.common.errors import TrainingError

PRODUCTS = ("aten.mm.default", "aten.addmm.default", "aten._scaled_mm.default")
"""Matrix products, of which every second one is kept, beginning with the first."""

KEPT = (
    "aten.max.default",  # what float8 scales by: one number
    "aten._scaled_dot_product_cudnn_attention.default",
    "aten._scaled_dot_product_efficient_attention.default",
    "aten._scaled_dot_product_flash_attention.default",
    "aten._scaled_dot_product_flash_attention_for_cpu.default",
    "aten._scaled_dot_product_fused_attention_overrideable.default",
    "higher_order.flex_attention",
    "_c10d_functional.all_reduce.default",
    "_c10d_functional.reduce_scatter_tensor.default",
)
"""Operators whose results are kept; a torch that lacks one does not call it."""


def contexts() -> tuple[AbstractContextManager, AbstractContextManager]:
    """What a block's first pass is made in, and its second.

    Raises:
        TrainingError: torch is older than 2.4.
    """
    try:
        from torch.utils.checkpoint import create_selective_checkpoint_contexts
    except ImportError:
        raise TrainingError(
            f"activation_checkpointing selective needs torch 2.4, this is {torch.__version__}; set "
            "it to full"
        ) from None
    return create_selective_checkpoint_contexts(_policy())


def _policy() -> Callable[..., Any]:
    """Of one pass of one block, and of its second: both count the products alike."""
    from torch.utils.checkpoint import CheckpointPolicy

    products, kept = _operators(PRODUCTS), _operators(KEPT)
    counts = {False: 0, True: 0}

    def policy(context: Any, operator: Any, *inputs: Any, **named: Any) -> CheckpointPolicy:
        keep = operator in kept
        if operator in products:
            counts[context.is_recompute] += 1
            keep = counts[context.is_recompute] % 2 == 1
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return policy


def _operators(names: tuple[str, ...]) -> set[Any]:
    """torch's own of these names."""
    found = set()
    for name in names:
        operator: Any = torch.ops
        for part in name.split("."):
            operator = getattr(operator, part, None)
        found.add(operator)
    return found - {None}


class Both:
    """Two contexts at once; may be entered more than once."""

    def __init__(self, outer: AbstractContextManager, inner: AbstractContextManager) -> None:
        self._outer, self._inner = outer, inner

    def __enter__(self) -> None:
        self._outer.__enter__()
        self._inner.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._inner.__exit__(*error)
        self._outer.__exit__(*error)
