"""What is done to each of a model's blocks: recomputation of activations, torch.compile."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from training.config import TrainConfig
from training.microbatches import Again


def adapt_blocks(blocks: Sequence[nn.Module], config: TrainConfig) -> None:
    """Recompute activations and compile, block by block; names of parameters stay."""
    for block in blocks:
        if config.activation_checkpointing:
            recompute(block)
        if config.compile and config.tensor_parallel > 1:
            compile_what_arrived(block)
        elif config.compile:
            block.compile()


def recompute(block: nn.Module) -> None:
    """Let ``block`` keep its inputs only, and compute the rest anew in the backward pass."""
    from torch.utils.checkpoint import checkpoint

    forward, again = block.forward, Again(block)

    def recomputed(*inputs: Any, **named: Any) -> Any:
        if torch.compiler.is_compiling():  # the second pass is a part of the graph, then
            return checkpoint(forward, *inputs, use_reentrant=False, **named)
        options = {"use_reentrant": False, "context_fn": again.contexts}
        return checkpoint(forward, *inputs, **options, **named)

    block.forward = recomputed


def compile_what_arrived(block: nn.Module) -> None:
    """Compile ``block`` for inputs that come out of a collective, which may be under way still.

    torch 2.13 loses the way back from compiled code through such a tensor: the collective's
    backward pass gets its gradient as a plain tensor, and has no use for that.
    """
    from torch.distributed._functional_collectives import AsyncCollectiveTensor

    forward = torch.compile(block.forward)

    def arrived(*inputs: Any, **named: Any) -> Any:
        whole = [i.clone() if isinstance(i, AsyncCollectiveTensor) else i for i in inputs]
        return forward(*whole, **named)

    block.forward = arrived
