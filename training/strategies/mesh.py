"""FSDP2, tensor, context and pipeline parallelism, and their combinations on a device mesh.

    pipeline × replicate × shard × context × tensor = world size

Ranks that share a matrix product are neighbours, so that they are in one node; next are those that
share a sequence. The data-parallel ranks are those of ``replicate`` × ``shard``: ``fsdp`` shards
over ``shard_degree`` of them (all: FSDP; some: hybrid), ``ddp`` over one, which means replication.

Context ranks hold the same weights and compute gradients of parts of the same samples: for the
weights they are like data-parallel ranks. So the mesh for the weights has them in ``shard`` (fsdp)
or ``replicate`` (ddp), and there is a separate mesh for sharing sequences.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor

from training import dropout, optimizers
from training.config import TrainConfig
from training.microbatches import StageMicroBatches
from training.strategies import tensor_parallel
from training.strategies.block_wrapping import adapt_blocks
from training.strategies.fsdp_sharding import (
    average_gradients,
    defer_gradient_sync,
    follows_weights,
    gather_full_tensor,
    gather_in_stored_dtype,
    list_scalar_weights,
    shard_model,
)
from training.strategies.pipeline_parallel import Pipeline, copy_modules_sharing_tensors
from training.strategies.precision import scale_tensors
from training.strategies.ranks import Ranks
from training.strategies.single import Batch, Strategy, check_tied_weights, retie_names
from training.weights.initial.initial_values import to_local_tensor
from training.workloads import Workload
from trainyard.common.errors import TrainingError

if TYPE_CHECKING:
    from training.strategies.float8 import Scales


def clip_gradients(
    model: nn.Module, max_norm: float, device: torch.device, pipeline: Pipeline | None
) -> Tensor:
    """Return the gradient's L2 norm over all ranks, and scale the gradient down to at most
    ``max_norm``.

    The norm is float64, 0-dim; the host does not wait for the device. Collective: call it on every
    rank.
    """
    trainable = {n: p for n, p in model.named_parameters() if p.requires_grad}
    all_gradients = {n: align_gradient(p) for n, p in trainable.items()}
    if pipeline is not None:
        pipeline.sum_shared_gradients(all_gradients)
    # Frozen and unused weights have no gradient, as with one process.
    gradients = {n: gradient for n, gradient in all_gradients.items() if gradient is not None}
    others = pipeline.not_counted if pipeline is not None else ()
    counted_gradients = [(p, gradients.get(n)) for n, p in trainable.items() if n not in others]
    squares = compute_gradient_norm(counted_gradients, device).square()
    if pipeline is not None:
        dist.all_reduce(squares, group=pipeline.group)
    total = squares.sqrt()
    shrink = (max_norm / (total + 1e-6)).clamp(max=1.0)  # as in torch's clip_grad_norm_
    scale_tensors([*gradients.values()], shrink)
    return total


def align_gradient(parameter: nn.Parameter) -> Tensor | None:
    """Redistribute the gradient to its parameter's placements if they differ, and return it."""
    gradient = parameter.grad
    if (
        isinstance(gradient, DTensor)
        and isinstance(parameter, DTensor)
        and gradient.placements != parameter.placements
    ):
        gradient = parameter.grad = gradient.redistribute(placements=parameter.placements)
    return gradient


def compute_gradient_norm(
    pairs: Sequence[tuple[nn.Parameter, Tensor | None]], device: torch.device
) -> Tensor:
    """Return the L2 norm over all ranks of whole and sharded gradients, float64, 0-dim.

    Each distinct part counts once, and so does a replicated tensor. Collective: call it on every
    rank.

    Args:
        pairs: each parameter and its gradient, laid out like it; None if it has none here. The
            parameters determine which sums the ranks compute, because they are the same on all
            ranks that share them.
    """
    parts_by_layout: dict[tuple, list[Tensor]] = {}
    for parameter, gradient in pairs:
        layout = (getattr(parameter, "device_mesh", None), getattr(parameter, "placements", ()))
        parts = parts_by_layout.setdefault(layout, [])
        if gradient is not None:
            parts.append(to_local_tensor(gradient))
    # In float64, because a rank without gradients does not know their type.
    total = torch.zeros((), dtype=torch.float64, device=device)
    for (mesh, placements), parts in parts_by_layout.items():
        square = nn.utils.get_total_norm(parts).to(device, torch.float64).square()
        for dimension, placement in enumerate(placements):
            if not placement.is_replicate():
                dist.all_reduce(square, group=mesh.get_group(dimension))
        total += square
    return total.sqrt()


def create_context_mesh(ranks: Ranks, contexts: int, tensor: int) -> DeviceMesh:
    """Return the mesh of the ranks that share this rank's sequences: every ``tensor``-th rank.

    Collective: call it on every rank.
    """
    groups = torch.arange(ranks.world).view(-1, contexts, tensor).transpose(1, 2)
    group, _ = dist.new_subgroups_by_enumeration(groups.flatten(0, 1).tolist())
    return DeviceMesh.from_group(group, ranks.device.type, mesh_dim_names=("context",))


def share_sequences(workload: Workload, model: nn.Module, mesh: DeviceMesh) -> None:
    """Make this rank of ``mesh`` ("context") compute its part of each sequence.

    Raises:
        TrainingError: the workload does not define how its sequences are shared.
    """
    missing = [name for name in ("part", "context_parallel") if not hasattr(workload, name)]
    if missing:
        raise TrainingError(
            f"context_parallel {mesh.size()}: the workload has no {' and no '.join(missing)}, "
            "which define how a sequence is shared; set context_parallel to 1, or implement them "
            "as training.workloads.Workload describes"
        )
    positions = workload.context_parallel(model, mesh)
    for module in model.modules():
        if isinstance(module, dropout.Dropout):
            module.positions = positions


class Mesh(Strategy):
    """Strategy that cuts the model into stages, splits by tensor, shards, then allocates memory.

    During the first three of these steps the model is on meta, so they must not read a weight's
    value.

    Attributes:
        places: index in the pipeline of the rank that has each stage.
        stages: numbers of this rank's stages.
    """

    def __init__(self, config: TrainConfig, workload: Workload, ranks: Ranks) -> None:
        super().__init__(config, workload, ranks)
        self.data_world, self.contexts = (
            config.count_data_parallel_ranks(ranks.world),
            config.context_parallel,
        )
        data = self.gradient_world
        shards = (config.shard_degree * self.contexts or data) if config.strategy == "fsdp" else 1
        shape = (config.pipeline_parallel, data // shards, shards, config.tensor_parallel)
        names = ("pipeline", "replicate", "shard", "tensor")
        self.mesh = init_device_mesh(ranks.device.type, shape, mesh_dim_names=names)
        coordinate = self.mesh.get_coordinate()
        assert coordinate is not None  # every rank is in the mesh
        pipeline_index, replica, part, slice_ = coordinate
        self.data_rank, self.context = divmod(replica * shards + part, self.contexts)
        if self.contexts > 1:
            self.context_mesh = create_context_mesh(ranks, self.contexts, config.tensor_parallel)
        self.pipeline_indices = [stage % config.pipeline_parallel for stage in range(config.stages)]
        self.stages = [
            stage
            for stage, stage_place in enumerate(self.pipeline_indices)
            if stage_place == pipeline_index
        ]
        # Only one of the ranks that share a model counts its loss, and it must have the last stage.
        self.scores = slice_ == 0 and config.stages - 1 in self.stages

    def prepare(self, model: nn.Module) -> None:
        self.record_model(model)
        parts = {
            stage: self._prepare_part(part, stage)
            for stage, part in self._cut_into_stages(model).items()
        }
        # Each stage and each part of the sequences draws different random numbers.
        stage_offset = self.config.stages * self.context
        micros = {n: self.create_micro_batches(part, n + stage_offset) for n, part in parts.items()}
        self.parts = [*parts.values()]
        is_single = len(parts) == 1
        self.model = self.forward = self.parts[0] if is_single else nn.ModuleList(self.parts)
        self.micro = micros[self.stages[0]] if is_single else StageMicroBatches(micros)
        self.scales = self._create_scales()
        self.pipeline = None
        if self.config.stages > 1:
            trainable = {self.names[name] for name, _ in model.named_parameters()}
            held_names = [names & trainable for names in self.stage_names]
            self.pipeline = Pipeline(self, self.mesh, parts, self.pipeline_indices, held_names)
        self.initial = None
        trainable = [
            parameter for parameter in list_scalar_weights(self.model) if parameter.requires_grad
        ]
        self.whole_weights = trainable if self.gradient_world > 1 else []
        self.optimizer = optimizers.build_optimizer(self.config, self.model)

    def _cut_into_stages(self, model: nn.Module) -> dict[int, nn.Module]:
        """Return a mapping of stage to the model's part, for this rank's stages.

        Record in ``stage_names`` the saved names that each stage has.
        """
        count, taken_ids, parts = self.config.stages, set[int](), dict[int, nn.Module]()
        if count == 1:
            self.stage_names = [{*self.names.values()}]
            return {0: model}
        self.stage_names = []
        for stage in range(count):
            part = self.workload.stage(copy_modules_sharing_tensors(model, taken_ids), stage, count)
            self.stage_names.append({self.names.get(n, n) for n in part.state_dict()})
            if stage in self.stages:
                parts[stage] = part
                taken_ids |= {id(tensor) for tensor in (*part.parameters(), *part.buffers())}
        return parts

    def _prepare_part(self, model: nn.Module, stage: int) -> nn.Module:
        """Return the model, or one stage of it, split, sharded and materialized for this rank."""
        config, workload = self.config, self.workload
        model = self.to_stored_dtype_and_device(model)
        if config.tensor_parallel > 1:
            tensor_parallel.split_model(
                model, workload, self.mesh["tensor"], config.sequence_parallel
            )
            retie_names(model, self.names)
        if self.contexts > 1:
            share_sequences(workload, model, self.context_mesh)
        # Before sharding, because FSDP2's hooks have to be outside of recomputed and compiled
        # blocks.
        adapt_blocks(workload.blocks(model), config)
        if self.gradient_world > 1:
            shard_model(model, workload.blocks(model), self.mesh, config, workload)
        check_tied_weights(model, self.names)
        return self.materialize(model)

    def _create_scales(self) -> "Scales | None":
        """Return the scales for casting weights to float8 before they are gathered, or None if
        they are not cast.
        """
        if not self.config.float8_all_gather or self.gradient_world == 1:
            return None
        from training.strategies.float8 import Scales

        return Scales(self.model, [self.mesh["shard"], self.mesh["tensor"]])

    def begin(self, step: int) -> None:
        super().begin(step)
        if self.scales is not None:
            self.scales.update()

    def find_saved_name(self, name: str) -> str:
        # With several stages the model is a list of parts, whose index precedes the name.
        several = len(self.parts) > 1
        return super().find_saved_name(name.partition(".")[2] if several else name)

    def apply_loaded_state(self, *averages: Mapping[str, Tensor]) -> None:
        """Copy loaded values to the other stages of this rank that have the same parameter."""
        if self.pipeline is None:
            return
        parameters = dict(self.model.named_parameters())
        state = dict(optimizers.iter_moments(self.optimizer))
        for name, source_name in self.pipeline.iter_copies():
            parameters[name].detach().copy_(parameters[source_name].detach())
            for kind, moment in state.get(parameters[name], {}).items():
                moment.copy_(state[parameters[source_name]][kind])
            for average in averages:
                if name in average:
                    average[name].copy_(average[source_name])

    def defer_gradient_sync(self) -> AbstractContextManager:
        return (
            defer_gradient_sync(self.model, self.config)
            if self.gradient_world > 1
            else nullcontext()
        )

    @property
    def gradient_world(self) -> int:
        return self.data_world * self.contexts

    def take_local_slice(self, batch: Batch) -> Batch:
        """Return the batch, or this rank's part of each sequence."""
        batch = super().take_local_slice(batch)
        if self.contexts == 1:
            return batch
        return self.workload.part(batch, self.context, self.contexts)

    def backward(self, batches: Sequence[Batch], units: Tensor) -> Tensor:
        with tensor_parallel.allow_sharded_logits(self.workload):
            if self.pipeline is None:
                return super().backward(batches, units)
            return self.pipeline.backward(batches, self.compute_loss_factor(units))

    def score(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Return the loss of outputs that may be sharded over tensor-parallel ranks."""
        loss = partial(super().score, batch=batch)
        return tensor_parallel.compute_loss(self.workload, loss, outputs)

    def autocast(self) -> AbstractContextManager:
        """Context with autocast, or without it if the model follows the type of its weights."""
        is_gathered = self.gradient_world > 1 and follows_weights(self.config, self.workload)
        return nullcontext() if is_gathered else super().autocast()

    def validate(self, batch: Batch) -> Tensor:
        with (
            tensor_parallel.allow_sharded_logits(self.workload),
            gather_in_stored_dtype(self.model),
        ):
            pipeline = self.pipeline
            return super().validate(batch) if pipeline is None else pipeline.validate(batch)

    def clip(self) -> Tensor:
        average_gradients(self.whole_weights, self.list_data_groups())
        self.unscale_gradients()
        return clip_gradients(self.model, self.config.grad_clip, self.ranks.device, self.pipeline)

    def list_data_groups(self) -> Sequence[dist.ProcessGroup]:
        parts = [self.mesh[name] for name in ("replicate", "shard")]
        return [part.get_group() for part in parts if part.size() > 1]

    def list_holders(self, name: str) -> Sequence[int]:
        """Return the ranks of the first stage that has the tensor."""
        stage = next(n for n, names in enumerate(self.stage_names) if name in names)
        return self.mesh.mesh[self.pipeline_indices[stage]].flatten().tolist()

    def gather(self, name: str, tensor: Tensor | None, keepers: Collection[int]) -> Tensor | None:
        holders, rank = self.list_holders(name), self.ranks.rank
        others = [keeper for keeper in keepers if keeper not in holders]
        result = None
        if rank in holders:
            assert tensor is not None
            full_tensor = gather_full_tensor(tensor.detach())
            if rank in keepers or (others and rank == holders[0]):
                result = full_tensor.cpu().contiguous()
            # Free it, so that it does not occupy the device while it is sent.
            del full_tensor
        if result is not None and rank == holders[0]:
            for other in others:
                dist.send(result, other)
        elif rank in others:
            result = torch.empty_like(self.make_meta_tensor(name), device="cpu")
            dist.recv(result, holders[0])
        return result if rank in keepers else None
