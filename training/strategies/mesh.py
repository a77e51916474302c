"""FSDP2, tensor and pipeline parallelism, and their combinations on one device mesh.

    pipeline × replicate × shard × tensor = world size

Ranks that share a matrix product are neighbours, so that they sit in one node. The data-parallel
ranks are those of ``replicate`` × ``shard``: ``fsdp`` shards over ``shard_degree`` of them (all:
FSDP; some: hybrid), ``ddp`` over one, which replicates.
"""

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

from training import optimizers, ties
from training.config import TrainConfig
from training.strategies.blocks import adapt_blocks
from training.strategies.gradients import clip
from training.strategies.pipeline import Pipeline
from training.strategies.ranks import Ranks
from training.strategies.sharding import accumulating, full, shard
from training.strategies.single import Batch, Single, on_cpu
from training.workloads import Workload

# Logits that were gathered over tensor-parallel ranks are a view; nothing writes into them.
warnings.filterwarnings("ignore", ".*returned a view tensor")


class Mesh(Single):
    """The model is cut into stages, then split by tensor, then sharded."""

    def __init__(self, config: TrainConfig, workload: Workload, ranks: Ranks) -> None:
        super().__init__(config, workload, ranks)
        data = config.data_parallel(ranks.world)
        shard = (config.shard_degree or data) if config.strategy == "fsdp" else 1
        shape = (config.pipeline_parallel, data // shard, shard, config.tensor_parallel)
        names = ("pipeline", "replicate", "shard", "tensor")
        self.mesh = init_device_mesh(ranks.device.type, shape, mesh_dim_names=names)
        stage, replica, part, slice_ = self.mesh.get_coordinate()
        self.data_rank, self.data_world = replica * shard + part, data
        self.stage, self.stages = stage, config.pipeline_parallel
        self.scores = slice_ == 0 and stage == self.stages - 1
        self.keeps = replica == 0 and part == 0 and slice_ == 0  # one rank of each stage

    def prepare(self, model: nn.Module) -> None:
        config, workload = self.config, self.workload
        self.know(model)
        if self.stages > 1:
            model = workload.stage(model, self.stage, self.stages)
        self.take(self.placed(model), self.stage)
        if config.tensor_parallel > 1:
            workload.tensor_parallel(model, self.mesh["tensor"])
            ties.tie_again(model, self.names)
        adapt_blocks(workload.blocks(model), config)
        if self.data_world > 1:
            shard(model, workload.blocks(model), self.mesh, config)
        ties.check(model, self.names)
        self.pipeline = Pipeline(self, self.mesh) if self.stages > 1 else None
        self.optimizer = optimizers.build(config, model)

    def accumulating(self) -> AbstractContextManager:
        return accumulating(self.model) if self.data_world > 1 else nullcontext()

    def backward(self, batches: Sequence[Batch], units: float) -> Tensor:
        if self.pipeline is None:
            return super().backward(batches, units)
        return self.pipeline.backward(batches, self.data_world / units)

    def validate(self, batch: Batch) -> Tensor:
        loss = super().validate(batch) if self.pipeline is None else self.pipeline.validate(batch)
        if self.data_world > 1:
            self.model.reshard()  # a forward pass without a backward one leaves the root gathered
        return loss

    def clip(self) -> float:
        return clip(self.model, self.config.grad_clip, self.ranks.device, self.pipeline)

    def data_groups(self) -> Sequence[dist.ProcessGroup]:
        parts = [self.mesh[name] for name in ("replicate", "shard")]
        return [part.get_group() for part in parts if part.size() > 1]

    def weights(self) -> dict[str, Tensor]:
        whole = on_cpu(self.model, full, self.keeps)
        if self.stages == 1:
            return whole
        every = [None] * self.ranks.world if self.ranks.rank == 0 else None
        dist.gather_object(whole, every)
        parts = [part.items() for part in every or ()]
        found = {self.saved_name(name): tensor for part in parts for name, tensor in part}
        return {name: found[first] for name, first in self.names.items() if found}
