"""Context parallel: ranks with the same weights share each sequence of a sample."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from training import dropout
from training.strategies.ranks import Ranks
from training.workloads import Workload
from trainyard.common.errors import TrainingError


def context_mesh(ranks: Ranks, contexts: int, tensor: int) -> DeviceMesh:
    """The ranks that share this rank's sequences: every ``tensor``-th of neighbours; all ask."""
    every = torch.arange(ranks.world).view(-1, contexts, tensor).transpose(1, 2)
    mine, _ = dist.new_subgroups_by_enumeration(every.flatten(0, 1).tolist())
    return DeviceMesh.from_group(mine, ranks.device.type, mesh_dim_names=("context",))


def share_sequences(workload: Workload, model: nn.Module, mesh: DeviceMesh) -> None:
    """Let this rank of ``mesh`` ("context") compute its part of each sequence.

    Raises:
        TrainingError: the workload does not say how its sequences are shared.
    """
    missing = [name for name in ("part", "context_parallel") if not hasattr(workload, name)]
    if missing:
        raise TrainingError(
            f"context_parallel {mesh.size()}: the workload has no {' and no '.join(missing)}, "
            "which say how a sequence is shared; set context_parallel to 1, or write them as "
            "training.workloads.Workload describes them"
        )
    positions = workload.context_parallel(model, mesh)
    for module in model.modules():
        if isinstance(module, dropout.Dropout):
            module.positions = positions
