"""The transformer, split over ranks: by heads and hidden units, or by blocks."""

from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from training.workloads.language_model.config import LanguageModelConfig, refuse_context
from training.workloads.language_model.context import Sharing
from training.workloads.language_model.model import Transformer
from trainyard.common.errors import TrainingError


def tensor_parallel(model: Transformer, mesh: DeviceMesh) -> None:
    """Give each rank of the mesh its heads, its hidden units and its part of the vocabulary.

    Shoeybi et al. 2019 (Megatron-LM), section 3: the first product of a layer by columns, the
    second by rows, one all-reduce for both. The norms stay whole on every rank.
    """
    vocabulary = RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate())
    parallelize_module(model, mesh, {"embedding": vocabulary})
    if model.unembedding is not None:
        parallelize_module(model, mesh, {"unembedding": ColwiseParallel()})
    for block in model.blocks.values():
        plan = {
            "attention.qkv": ColwiseParallel(),
            "attention.out": RowwiseParallel(),
            "feed_forward.gate": ColwiseParallel(),
            "feed_forward.up": ColwiseParallel(),
            "feed_forward.down": RowwiseParallel(),
        }
        parallelize_module(block, mesh, plan)
    model.head = vocabulary_parallel


def vocabulary_parallel(x: Tensor, weight: DTensor) -> Tensor:
    """Logits (batch, t, vocabulary): each rank scores its part, and all get all scores."""
    mesh = weight.device_mesh
    logits = DTensor.from_local(x, mesh, [Replicate()], run_check=False) @ weight.T
    return logits.redistribute(placements=[Replicate()]).to_local()


def context_parallel(model: Transformer, mesh: DeviceMesh, config: LanguageModelConfig) -> Tensor:
    """Give each rank of the mesh its part of every sequence; returns the places of its tokens.

    Raises:
        TrainingError: the sequences cannot be shared evenly.
    """
    if refused := refuse_context(config, mesh.size(), 1):
        raise TrainingError(refused)
    sharing = Sharing.over(mesh, config.context_length)
    model.sharing = sharing
    for block in model.blocks.values():
        block.attention.sharing = sharing
    return sharing.mine


def stage(model: Transformer, index: int, count: int) -> Transformer:
    """Cut the model down to the blocks of stage ``index`` of ``count``, in place.

    The first stage embeds, the last one norms and scores; both hold the embedding where it is tied.
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
