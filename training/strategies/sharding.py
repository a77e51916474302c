"""FSDP2: weights, gradients and optimizer state sharded over ranks (Zhao et al. 2023)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from training.config import TrainConfig


def shard(
    model: nn.Module, blocks: Sequence[nn.Module], mesh: DeviceMesh, config: TrainConfig
) -> None:
    """Shard each block, then the rest, over the mesh's ``shard``, replicated over ``replicate``."""
    hybrid = mesh["replicate"].size() > 1
    part = mesh["replicate", "shard"] if hybrid else mesh["shard"]
    for block in blocks:
        fully_shard(block, mesh=part)
    fully_shard(model, mesh=part)


@contextmanager
def accumulating(model: nn.Module) -> Iterator[None]:
    """Around backward passes whose gradients need not be shared yet."""
    model.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        model.set_requires_gradient_sync(True)


def full(tensor: Tensor) -> Tensor:
    """The whole of what may be sharded; every rank takes part."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
