"""FSDP2, tensor and pipeline parallelism, and their combinations on one device mesh.

    pipeline × replicate × shard × tensor = world size

Ranks that share a matrix product are neighbours, so that they sit in one node. The data-parallel
ranks are those of ``replicate`` × ``shard``: ``fsdp`` shards over ``shard_degree`` of them (all:
FSDP; some: hybrid), ``ddp`` over one, which replicates.
"""

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from training import optimizers, ties
from training.config import TrainConfig
from training.strategies.pipeline import Pipeline
from training.strategies.ranks import Ranks
from training.strategies.single import Batch, Single, adapt_blocks, on_cpu
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
            self._shard()
        ties.check(model, self.names)
        self.pipeline = Pipeline(self, self.mesh) if self.stages > 1 else None
        self.optimizer = optimizers.build(config, model)

    def _shard(self) -> None:
        hybrid = self.mesh["replicate"].size() > 1
        mesh = self.mesh["replicate", "shard"] if hybrid else self.mesh["shard"]
        for block in self.workload.blocks(self.model):
            fully_shard(block, mesh=mesh)
        fully_shard(self.model, mesh=mesh)

    @contextmanager
    def accumulating(self) -> AbstractContextManager:
        if self.data_world == 1:
            yield
            return
        self.model.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self.model.set_requires_gradient_sync(True)

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
        parameters = self.model.named_parameters()
        gradients = {n: gradient_of(p) for n, p in parameters if p.requires_grad}
        if self.pipeline is not None:
            self.pipeline.add_up_shared(gradients)
        # Frozen and unused weights have none, as with one process.
        gradients = {n: gradient for n, gradient in gradients.items() if gradient is not None}
        counted = gradients
        if self.pipeline is not None:
            counted = {n: g for n, g in gradients.items() if n not in self.pipeline.not_counted}
        # In float64: a stage without gradients does not know their type.
        squares = norm(list(counted.values()), self.ranks.device).square().double()
        if self.pipeline is not None:
            dist.all_reduce(squares, group=self.mesh["pipeline"].get_group())
        total = float(squares.sqrt())
        shrink = min(1.0, self.config.grad_clip / (total + 1e-6))  # as torch's clip_grad_norm_
        if gradients:
            torch._foreach_mul_([local(gradient) for gradient in gradients.values()], shrink)
        return total

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


def full(tensor: Tensor) -> Tensor:
    """The whole of what may be sharded; every rank takes part."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def gradient_of(parameter: nn.Parameter) -> Tensor | None:
    """The gradient, laid out as the parameter is: autograd leaves that of a DTensor as it came."""
    gradient = parameter.grad
    if isinstance(gradient, DTensor) and gradient.placements != parameter.placements:
        gradient = parameter.grad = gradient.redistribute(placements=parameter.placements)
    return gradient


def local(tensor: Tensor) -> Tensor:
    """This rank's part."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def norm(gradients: Sequence[Tensor], device: torch.device) -> Tensor:
    """The L2 norm over all ranks of whole and sharded tensors, 0-dim; 0 when there are none.

    A part counts on every rank that has another one; what is replicated counts once.
    """
    alike: dict[tuple, list[Tensor]] = {}
    for gradient in gradients:
        layout = (getattr(gradient, "device_mesh", None), getattr(gradient, "placements", ()))
        alike.setdefault(layout, []).append(local(gradient))
    squares = []
    for (mesh, placements), parts in alike.items():
        square = nn.utils.get_total_norm(parts).square()
        for dimension, placement in enumerate(placements):
            if not placement.is_replicate():
                dist.all_reduce(square, group=mesh.get_group(dimension))
        squares.append(square)
    return torch.stack(squares).sum().sqrt() if squares else torch.zeros((), device=device)
