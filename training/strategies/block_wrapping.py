"""Transformations of a model's blocks: recomputation of activations, torch.compile, tensor
parallelism.

The choice of results that are kept is torchtitan's
(``torchtitan/distributed/activation_checkpoint.py``): attention, what was reduced over ranks, and
every second matrix product.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import nn

from training.config import TrainConfig
from training.microbatches import RecomputeContext

PRODUCTS = ("aten.mm.default", "aten.addmm.default", "aten._scaled_mm.default")
"""Matrix products; the result of every second one is kept, starting with the first."""

KEPT_OPERATORS = (
    "aten.max.default",  # maximum by which float8 scales: one number
    "aten._scaled_dot_product_cudnn_attention.default",
    "aten._scaled_dot_product_efficient_attention.default",
    "aten._scaled_dot_product_flash_attention.default",
    "aten._scaled_dot_product_flash_attention_for_cpu.default",
    "aten._scaled_dot_product_fused_attention_overrideable.default",
    "higher_order.flex_attention",
    "_c10d_functional.all_reduce.default",
    "_c10d_functional.reduce_scatter_tensor.default",
)
"""Operators whose results are kept. One that a torch version does not have is ignored."""


def create_selective_contexts() -> tuple[AbstractContextManager, AbstractContextManager]:
    """Return the contexts of a block's first pass and of its recomputation."""
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    products, kept_operators = _find_operators(PRODUCTS), _find_operators(KEPT_OPERATORS)
    counts = {False: 0, True: 0}

    def choose_policy(context: Any, operator: Any, *inputs: Any, **kwargs: Any) -> CheckpointPolicy:
        """Return whether to keep the result of this operator; torch calls it for each one."""
        keep = operator in kept_operators
        if operator in products:
            # Each pass has its own count, so that the second pass chooses the same products.
            counts[context.is_recompute] += 1
            keep = counts[context.is_recompute] % 2 == 1
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(choose_policy)


def _find_operators(names: tuple[str, ...]) -> set[Any]:
    """Return torch's operators with these names; leave out those that do not exist."""
    operators = set()
    for name in names:
        operator: Any = torch.ops
        for part in name.split("."):
            operator = getattr(operator, part, None)
        operators.add(operator)
    return operators - {None}


class NestedContexts:
    """Two contexts at once, outer and inner; it may be entered more than once."""

    def __init__(self, outer: AbstractContextManager, inner: AbstractContextManager) -> None:
        self._outer, self._inner = outer, inner

    def __enter__(self) -> None:
        self._outer.__enter__()
        self._inner.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._inner.__exit__(*error)
        self._outer.__exit__(*error)


def adapt_blocks(blocks: Sequence[nn.Module], config: TrainConfig) -> None:
    """Apply recomputation and compilation to each block; the names of parameters stay the same."""
    policy = config.activation_checkpointing
    for block in blocks:
        split = config.compile and config.tensor_parallel > 1
        if split:
            compile_after_collective(block)
        if policy != "none":
            recompute_block(block, selective=policy == "selective")
        if config.compile and not split:
            block.compile()


def recompute_block(block: nn.Module, *, selective: bool = False) -> None:
    """Make ``block`` keep only its inputs, and compute the rest again in the backward pass.

    Args:
        selective: also keep the results of ``KEPT_OPERATORS`` and of every second product.
    """
    from torch.utils.checkpoint import checkpoint

    forward, recompute_context = block.forward, RecomputeContext(block)

    def run_checkpointed(*inputs: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():  # the second pass is then part of the compiled graph
            options: dict[str, Any] = {"context_fn": create_selective_contexts} if selective else {}
        else:
            options = {"context_fn": partial(_create_contexts, recompute_context, selective)}
        return checkpoint(forward, *inputs, use_reentrant=False, **options, **kwargs)

    block.forward = run_checkpointed


def _create_contexts(
    recompute_context: RecomputeContext, selective: bool
) -> tuple[AbstractContextManager, AbstractContextManager]:
    """Return the contexts of a block's first pass and of its recomputation."""
    first, second = recompute_context.create_contexts()
    if not selective:
        return first, second
    keeping, taking = create_selective_contexts()
    return keeping, NestedContexts(second, taking)


def compile_after_collective(block: nn.Module) -> None:
    """Compile ``block`` for inputs that come out of a collective, which may still be running.

    With such a tensor as input, torch 2.13 breaks the backward pass of compiled code: the
    collective's backward pass gets its gradient as a plain tensor, and cannot use that. So such
    inputs are copied first. For the first block this is the embedding's output; a compiled block's
    output has arrived, and is not copied.

    Recomputation has to be outside of the compiled code: inside it, torch 2.13 fails because it
    tries to save a device mesh as if it were a tensor (``tensors_saved_with_vc_check``).
    """
    from torch.distributed._functional_collectives import AsyncCollectiveTensor

    forward = torch.compile(block.forward)

    def run_compiled(*inputs: Any, **kwargs: Any) -> Any:
        ready_inputs = [i.clone() if isinstance(i, AsyncCollectiveTensor) else i for i in inputs]
        return forward(*ready_inputs, **kwargs)

    block.forward = run_compiled
