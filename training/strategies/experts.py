"""Expert parallel: data-parallel ranks share the experts of a model, and all else as ever."""

from collections.abc import Sequence

from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from training.config import TrainConfig
from training.workloads import Workload
from trainyard.common.errors import TrainingError


def expert_mesh(config: TrainConfig, device: str, replicas: int, shards: int) -> DeviceMesh:
    """``replicate`` × ``shard`` × ``expert``: the data-parallel ranks, as experts lie on them.

    Neighbours have different experts. Those with the same ones shard them, or replicate them, as
    they do with what is no expert's: over ``shards`` and ``replicas``, of which ``expert`` takes
    its part (torchtitan: ``ParallelDims``).
    """
    count = config.expert_parallel
    shape = (replicas, shards // count) if config.strategy == "fsdp" else (replicas // count, 1)
    names = ("replicate", "shard", "expert")
    return init_device_mesh(device, (*shape, count), mesh_dim_names=names)


def share_experts(workload: Workload, model: nn.Module, mesh: DeviceMesh) -> Sequence[nn.Module]:
    """Let the workload split its experts over the mesh's ``expert``; the modules that were split.

    Raises:
        TrainingError: the workload does not say how.
    """
    count = mesh["expert"].size()
    if not hasattr(workload, "expert_parallel"):
        raise TrainingError(
            f"expert_parallel {count}: the workload has no expert_parallel, which says how its "
            "experts are shared; set expert_parallel to 1, or write it as "
            "training.workloads.Workload describes it"
        )
    return workload.expert_parallel(model, mesh["expert"])
