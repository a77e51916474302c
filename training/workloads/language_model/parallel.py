"""Split the transformer over ranks: by heads and hidden units, or by blocks."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.distributed.tensor.placement_types import Placement

from training.workloads.language_model.config import (
    LanguageModelConfig,
    explain_impossible_context,
    explain_uneven_split,
)
from training.workloads.language_model.context_parallel import Sharing
from training.workloads.language_model.model import Block, Transformer
from trainyard.common.errors import TrainingError


def apply_tensor_parallel(model: Transformer, mesh: DeviceMesh) -> None:
    """Give each rank of the mesh its heads, its hidden units and its part of the vocabulary.

    As in Shoeybi et al. 2019 (Megatron-LM), section 3: a layer's first matrix is split by columns,
    the second by rows, with one all-reduce for both. The stream and its norms are complete on every
    rank. The logits stay on the rank that computes them.
    """
    _split_model(model, mesh, Replicate())


def apply_sequence_parallel(model: Transformer, mesh: DeviceMesh) -> None:
    """Split like ``apply_tensor_parallel``, but keep only the rank's positions of the residual
    stream between layers.

    As in Korthikanti et al. 2022, section 4.2.2: a layer begins with an all-gather and ends with a
    reduce-scatter. Together they move as much data as the all-reduce.

    Raises:
        TrainingError: the ranks cannot share the positions evenly.
    """
    if len(model.cos) % mesh.size():
        raise TrainingError(explain_uneven_split(len(model.cos), mesh.size()))
    model.parts = mesh.size()
    _split_model(model, mesh, Shard(1))


def _split_model(model: Transformer, mesh: DeviceMesh, stream: Placement) -> None:
    """Split the model; ``stream``: placement on the mesh of (batch, t, dim) between layers."""
    replicate = Replicate()
    if hasattr(model, "embedding"):
        vocabulary = RowwiseParallel(input_layouts=replicate, output_layouts=stream)
        parallelize_module(model, mesh, {"embedding": vocabulary})
    if model.unembedding is not None:
        parallelize_module(model, mesh, {"unembedding": ColwiseParallel()})
    if model.last and stream != replicate:
        parallelize_module(model, mesh, {"norm": SequenceParallel()})
    for block in model.blocks.values():
        assert isinstance(block, Block)
        _split_block(block, mesh, stream)
    model.head = make_parallel_head(stream)


def _split_block(block: Block, mesh: DeviceMesh, stream: Placement) -> None:
    """Split one block; ``stream`` as in ``_split_model``."""
    plan: dict[str, ParallelStyle] = {
        "attention.qkv": ColwiseParallel(input_layouts=stream),
        "attention.out": RowwiseParallel(output_layouts=stream),
        # Gathered once for both matrices, whose gradients are summed before they are reduced.
        "feed_forward": PrepareModuleInput(input_layouts=stream, desired_input_layouts=Replicate()),
        "feed_forward.gate": ColwiseParallel(),
        "feed_forward.up": ColwiseParallel(),
        "feed_forward.down": RowwiseParallel(output_layouts=stream),
    }
    if stream != Replicate():
        plan |= {"attention_norm": SequenceParallel(), "feed_forward_norm": SequenceParallel()}
    if isinstance(block.attention.q_norm, nn.RMSNorm):  # (batch, heads, t, width), by heads
        heads = SequenceParallel(sequence_dim=1, use_local_output=True)
        plan |= {"attention.q_norm": heads, "attention.k_norm": heads}
    # Cast before the all-gather, so that less data is moved.
    for gathering in (block.attention.qkv, block.feed_forward):
        gathering.register_forward_pre_hook(_cast_input)
    parallelize_module(block, mesh, plan)


def cast_to_autocast(x: Tensor) -> Tensor:
    """Convert to autocast's type, so that tensors and gradients are sent between ranks in it."""
    device = x.device.type
    return x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x


def _cast_input(module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
    """Forward pre-hook that casts a module's input to autocast's type."""
    return (cast_to_autocast(inputs[0]),)


def make_parallel_head(stream: Placement) -> Callable[[Tensor, DTensor], Tensor]:
    """Return a head whose logits (batch, t, vocabulary) stay sharded over the vocabulary.

    ``stream`` is the placement of the head's input.
    """

    def compute_logits(x: Tensor, weight: DTensor) -> Tensor:
        mesh = weight.device_mesh
        if not isinstance(x, DTensor):
            x = DTensor.from_local(x, mesh, [stream], run_check=False)
        narrow = cast_to_autocast(x)
        assert isinstance(narrow, DTensor)  # because x is one
        return narrow.redistribute(placements=[Replicate()]) @ weight.T

    return compute_logits


def apply_context_parallel(
    model: Transformer, mesh: DeviceMesh, config: LanguageModelConfig
) -> Tensor:
    """Give each rank of the mesh its part of every sequence; return its tokens' positions.

    Raises:
        TrainingError: the ranks cannot share the sequences evenly.
    """
    if refusal := explain_impossible_context(config, mesh.size(), model.parts):
        raise TrainingError(refusal)
    sharing = Sharing.from_mesh(mesh, config.context_length)
    model.sharing = sharing
    for block in model.blocks.values():
        assert isinstance(block, Block)
        block.attention.sharing = sharing
    return sharing.own_places


def keep_stage(model: Transformer, index: int, count: int) -> Transformer:
    """Remove all blocks but those of stage ``index`` of ``count``, in place; return the model.

    Only the first stage has the embedding, and only the last one the norm and the unembedding. If
    these are tied, both stages have the embedding.
    """
    model.first, model.last = index == 0, index == count - 1
    names = list(model.blocks)
    for name in {*names} - {
        *names[len(names) * index // count : len(names) * (index + 1) // count]
    }:
        del model.blocks[name]
    if not (model.first or (model.last and model.unembedding is None)):
        del model.embedding
    if not model.last:
        del model.norm
        model.unembedding = None
    return model
