"""What is done to each of a model's blocks: recomputation of activations, torch.compile."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import nn

from training.config import TrainConfig
from training.microbatches import Again
from training.strategies import recomputation


def adapt_blocks(blocks: Sequence[nn.Module], config: TrainConfig) -> None:
    """Recompute activations and compile, block by block; names of parameters stay."""
    policy = config.activation_checkpointing
    for block in blocks:
        split = config.compile and config.tensor_parallel > 1
        if split:
            compile_what_arrived(block)
        if policy != "none":
            recompute(block, selective=policy == "selective")
        if config.compile and not split:
            block.compile()


def recompute(block: nn.Module, *, selective: bool = False) -> None:
    """Let ``block`` keep its inputs, if ``selective`` what ``recomputation`` says besides, and
    compute the rest anew in the backward pass."""
    from torch.utils.checkpoint import checkpoint

    forward, again = block.forward, Again(block)

    def recomputed(*inputs: Any, **named: Any) -> Any:
        if torch.compiler.is_compiling():  # the second pass is a part of the graph, then
            options = {"context_fn": recomputation.contexts} if selective else {}
        else:
            options = {"context_fn": partial(_contexts, again, selective)}
        return checkpoint(forward, *inputs, use_reentrant=False, **options, **named)

    block.forward = recomputed


def _contexts(again: Again, selective: bool) -> tuple[AbstractContextManager, ...]:
    """What a block's first pass, and what its second one is made in."""
    first, second = again.contexts()
    if not selective:
        return first, second
    keeping, taking = recomputation.contexts()
    return keeping, recomputation.Both(second, taking)


def compile_what_arrived(block: nn.Module) -> None:
    """Compile ``block`` for inputs that come out of a collective, which may be under way still.

    torch 2.13 loses the way back from compiled code through such a tensor: the collective's
    backward pass gets its gradient as a plain tensor, and has no use for that. It is the
    embedding's output, for the first block; what a compiled block gives has arrived, and is not
    copied.

    Recomputation goes around it: inside, torch 2.13 fails at a device mesh that it wants to keep as
    if it were a tensor (``tensors_saved_with_vc_check``).
    """
    from torch.distributed._functional_collectives import AsyncCollectiveTensor

    forward = torch.compile(block.forward)

    def arrived(*inputs: Any, **named: Any) -> Any:
        whole = [i.clone() if isinstance(i, AsyncCollectiveTensor) else i for i in inputs]
        return forward(*whole, **named)

    block.forward = arrived
