"""Pipeline parallel: the stages work on different micro-batches at the same time.

The schedules are torch's (``training.strategy_table`` lists them). 1F1B (Narayanan et al. 2019,
PipeDream): a micro-batch's backward pass begins as soon as it has passed the last stage, so a stage
keeps the activations of at most ``stages`` micro-batches. The interleaved schedules have several
stages on a rank.

In torch the stages describe to each other what they send by pickles. Here they do so by numbers
(``describe_tensors``), in one additional pass before the first step and in validation, so that no
rank unpickles data from the network.
"""

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, get_schedule_class
from torch.distributed.tensor import DTensor

from training.microbatches import StageMicroBatches
from training.strategies.fsdp_sharding import reshard_weights
from training.strategies.single import Batch, Strategy
from training.weights.initial.build_model import find_recorder
from trainyard.common.errors import TrainingError

HEADER = 64
"""Length of the description of a stage's output, in numbers."""

TYPES = (
    *(torch.float32, torch.float64, torch.bfloat16, torch.float16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
)


def describe_tensors(tensors: Sequence[Tensor], *, requires_grad: bool) -> list[int]:
    """Describe a stage's output by HEADER numbers: whether gradients flow back, types and shapes.

    Raises:
        TrainingError: the output cannot be sent, or its description is too long.
    """
    numbers = [int(requires_grad)]
    for tensor in tensors:
        if not isinstance(tensor, Tensor) or tensor.dtype not in TYPES:
            raise TrainingError(
                f"a pipeline stage returns {getattr(tensor, 'dtype', type(tensor).__name__)}: make "
                f"those of Workload.stage return tensors of {', '.join(map(str, TYPES))}"
            )
        numbers += [1 + TYPES.index(tensor.dtype), tensor.dim(), *tensor.shape]
    if len(numbers) > HEADER:
        raise TrainingError(
            f"a pipeline stage returns {len(tensors)} tensors, whose shapes take {len(numbers)} "
            f"numbers; at most {HEADER} fit: make those of Workload.stage return fewer"
        )
    return numbers + [0] * (HEADER - len(numbers))


def make_meta_tensors(numbers: Sequence[int]) -> tuple[Tensor, ...]:
    """Return tensors on meta whose description (``describe_tensors``) is ``numbers``."""
    requires_grad, remainder, tensors = bool(numbers[0]), list(numbers[1:]), []
    while remainder and remainder[0]:
        kind, dimensions, *remainder = remainder
        shape, remainder = remainder[:dimensions], remainder[dimensions:]
        tensor = torch.empty(shape, dtype=TYPES[kind - 1], device="meta")
        tensors.append(tensor.requires_grad_(requires_grad and tensor.is_floating_point()))
    return tuple(tensors)


def make_sendable(output: Any) -> Any:
    """Return a stage's output in a form that can be sent: contiguous local tensors.

    Raises:
        TrainingError: the output is spread over tensor-parallel ranks.
    """
    if isinstance(output, (tuple, list)):
        return tuple(make_sendable(element) for element in output)
    if isinstance(output, DTensor):
        raise TrainingError(
            f"a pipeline stage returns a DTensor ({output.placements}): in "
            "Workload.tensor_parallel, end the stage with use_local_output=True, so that each rank "
            "sends what it has"
        )
    return output.contiguous() if isinstance(output, Tensor) else output


Boundary = Sequence[Tensor]
"""Tensors that one stage passes to the next."""


class Pipeline:
    """Run this rank's stages of a strategy's model.

    Attributes:
        parts: mapping of stage to its part of the model, for this rank's stages.
        group: the ranks that have the stages of one copy of the model.
        not_counted: names of this rank's parameters that an earlier stage also has, and counts.
    """

    def __init__(
        self,
        strategy: Strategy,
        mesh: DeviceMesh,
        parts: Mapping[int, nn.Module],
        owners: Sequence[int],
        stage_names: Sequence[Collection[str]],
    ) -> None:
        """Set up the pipeline. Collective: call it on every rank.

        Args:
            mesh: all ranks, with a dimension ``pipeline``.
            parts: mapping of stage to its part of the model, for this rank's stages.
            owners: index in the pipeline of the rank that has each stage.
            stage_names: the saved names of each stage's parameters.
        """
        self._strategy, self._mesh, self.parts = strategy, mesh, parts
        config = strategy.config
        self._kind = get_schedule_class(config.pipeline_schedule.replace("_", ""))
        self._owners, self._count = owners, len(owners)
        self._rank = mesh.get_local_rank("pipeline")
        self.group = mesh["pipeline"].get_group()
        self._schedule: Any = None
        self._shape = ""  # shape of the inputs that the schedule was created for
        self._batches: Sequence[Batch] = ()
        self._scale = self._total = torch.zeros((), dtype=torch.float64, device=self.device)
        # The micro-batch that passes through a stage of this rank, or did so last.
        self._running = 0
        self._find_shared_parameters(stage_names)

    def backward(self, batches: Sequence[Batch], scale: Tensor) -> Tensor:
        """Compute gradients of ``scale`` × the sum of the losses.

        Return that sum on ranks with the last stage, and 0 on the others.
        """
        self._batches, self._scale = batches, scale
        self._total = torch.zeros((), dtype=torch.float64, device=self.device)
        with self._strategy.autocast():
            schedule = self._get_schedule(batches)
            # torch splits the targets for the last stage; their content does not matter.
            targets = torch.zeros(len(batches))
            inputs: list[Tensor] = []
            if 0 in self.parts:  # the first stage gets the inputs of all micro-batches, joined
                inputs_list = [self._strategy.prepare_inputs(batch) for batch in batches]
                inputs = [torch.cat(tensors) for tensors in zip(*inputs_list, strict=True)]
            kwargs_list = [self._strategy.model_kwargs(batch) for batch in batches]
            kwargs = {  # every stage gets these
                name: torch.cat([batch_kwargs[name] for batch_kwargs in kwargs_list])
                for name in kwargs_list[0]
            }
            schedule.step(*inputs, target=targets, **kwargs)
        return self._total

    @torch.no_grad()
    def validate(self, batch: Batch) -> Tensor:
        """Return the sum of the losses on ranks with the last stage, and 0 on the others."""
        outputs, _ = self._pass_through(batch)
        if outputs is None:
            return torch.zeros((), device=self.device)
        return self._strategy.score(outputs, batch)

    def sum_shared_gradients(self, gradients: dict[str, Tensor | None]) -> None:
        """Give each stage that has a shared parameter the sum of all stages' gradients.

        Args:
            gradients: gradient of each parameter by name, or None; shared ones are replaced.
        """
        parameters = dict(self._strategy.model.named_parameters())
        for names, group in self._shared_groups:
            own_parameters = [parameters[name] for name in names]
            if not own_parameters[0].requires_grad:
                continue
            own_gradients = [
                gradient for name in names if (gradient := gradients[name]) is not None
            ]
            # A rank whose stages do not use the weight adds zeros to what the others have.
            total = own_gradients[0] if own_gradients else torch.zeros_like(own_parameters[0])
            for other in own_gradients[1:]:
                total += other
            if group is not None:
                dist.all_reduce(getattr(total, "_local_tensor", total), group=group)
            # Each stage needs its own tensor, because gradients are scaled in place, one by one.
            for name, parameter in zip(names, own_parameters, strict=True):
                gradients[name] = parameter.grad = total if name == names[0] else total.clone()

    def iter_copies(self) -> Iterator[tuple[str, str]]:
        """Yield (name, the same parameter's name in the last of this rank's stages that has it)."""
        for names, _ in self._shared_groups:
            yield from ((name, names[-1]) for name in names[:-1])

    def _find_shared_parameters(self, stage_names: Sequence[Collection[str]]) -> None:
        """Find the parameters that several stages have, and create a process group for each."""
        strategy = self._strategy
        own_names: dict[str, list[str]] = {}
        for name, _ in strategy.model.named_parameters():
            own_names.setdefault(strategy.find_saved_name(name), []).append(name)
        stages: dict[str, list[int]] = {}
        for stage, names in enumerate(stage_names):
            for name in names:
                stages.setdefault(name, []).append(stage)
        self._shared_groups: list[tuple[list[str], dist.ProcessGroup | None]] = []
        self.not_counted: set[str] = set()
        for name in sorted(name for name, stage_list in stages.items() if len(stage_list) > 1):
            pipeline_indices = sorted({self._owners[stage] for stage in stages[name]})
            group = self._create_group(pipeline_indices) if len(pipeline_indices) > 1 else None
            if name in own_names:
                self._shared_groups.append((own_names[name], group))
                first = self._owners[stages[name][0]] == self._rank
                self.not_counted |= {*(own_names[name][1:] if first else own_names[name])}

    def _create_group(self, pipeline_indices: Sequence[int]) -> dist.ProcessGroup | None:
        """Create the group of the ranks at ``pipeline_indices`` of each pipeline; return this
        rank's group, or None if it is in none.
        """
        own_group = None
        # torch requires every rank to create every group, including those that it is not in.
        for pipeline in self._mesh.mesh.flatten(1).T.tolist():
            group = dist.new_group([pipeline[index] for index in pipeline_indices])
            if self._strategy.ranks.rank in [pipeline[index] for index in pipeline_indices]:
                own_group = group
        return own_group

    def _get_schedule(self, batches: Sequence[Batch]) -> Any:
        """Return the schedule, created in the first step.

        One additional pass then finds the shapes of what the stages send. Every rank makes it in
        its first step, whatever its samples are, because ranks that shard a stage make it together.

        Raises:
            TrainingError: the inputs have other shapes than in the first step.
        """
        shapes = {self._format_shapes(batch) for batch in batches}
        if self._schedule is None:
            on_gpu = [self.device] if self.device.type == "cuda" else []
            # This pass does not exist with one process, so it must not change what dropout draws.
            with torch.no_grad(), torch.random.fork_rng(on_gpu):
                _, boundaries = self._pass_through(batches[0])
            reshard_weights(self._strategy.model)
            stages = [Stage(self, stage, self._count, *boundaries[stage]) for stage in self.parts]
            several = issubclass(self._kind, PipelineScheduleMulti)
            own_stages = stages if several else stages[0]
            options = {"loss_fn": self._compute_loss, "scale_grads": False}
            self._schedule = self._kind(own_stages, len(batches), **options)
            self._shape = self._format_shapes(batches[0])
        if other := sorted(shapes - {self._shape}):
            raise TrainingError(
                f"pipeline_parallel {self.group.size()}: a micro-batch has inputs {other[0]}, the "
                f"first one had {self._shape}, and stages can send only one shape: make "
                "Workload.inputs return one shape for all samples, or set pipeline_parallel to 1"
            )
        return self._schedule

    def _format_shapes(self, batch: Batch) -> str:
        """Return the types and shapes of a batch's inputs as text."""
        inputs = self._strategy.prepare_inputs(batch)
        return ", ".join(f"{str(tensor.dtype)[6:]} {tuple(tensor.shape)}" for tensor in inputs)

    @property
    def device(self) -> torch.device:
        return self._strategy.ranks.device

    def begin(self, number: int, stage: int) -> None:
        """Prepare for the forward pass of a micro-batch through a stage."""
        self._running = number
        if isinstance(self._strategy.micro, StageMicroBatches):
            self._strategy.micro.begin(number, stage)
        else:
            self._strategy.micro.begin(number)

    def _compute_loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the loss of the micro-batch that has just left the last stage; torch calls
        this.
        """
        loss = self._strategy.score(outputs, self._batches[self._running])
        self._total += loss.detach()
        return loss * self._scale.to(loss.dtype)

    # Data between stages.

    def _pass_through(
        self, batch: Batch
    ) -> tuple[Tensor | None, dict[int, tuple[Boundary, Boundary]]]:
        """Pass a micro-batch of any size through all stages; each stage sends its output with a
        description.

        Returns:
            The last output, or None on ranks without the last stage; and a mapping of each of this
            rank's stages to its input and output, on meta.
        """
        tensors, requires_grad = self._strategy.prepare_inputs(batch), False
        model_kwargs = self._strategy.model_kwargs(batch)
        boundaries: dict[int, tuple[Boundary, Boundary]] = {}
        for stage, part in self.parts.items():
            stage_inputs: Sequence[Tensor] = tensors
            if stage > 0 and stage - 1 not in self.parts:
                header = self._receive(stage, [torch.empty(HEADER, dtype=torch.int64)])[0].tolist()
                stage_inputs = self._receive(stage, make_meta_tensors(header))
                requires_grad = bool(header[0])
            outputs = part(*stage_inputs, **model_kwargs)
            outputs = make_sendable(outputs) if stage + 1 < self._count else outputs
            tensors = outputs if isinstance(outputs, tuple) else (outputs,)
            before = make_meta_tensors(describe_tensors(stage_inputs, requires_grad=requires_grad))
            requires_grad = requires_grad or any(
                parameter.requires_grad for parameter in part.parameters()
            )
            numbers = describe_tensors(tensors, requires_grad=requires_grad)
            boundaries[stage] = before, make_meta_tensors(numbers)
            if stage + 1 < self._count and stage + 1 not in self.parts:
                for tensor in [torch.tensor(numbers, device=self.device), *tensors]:
                    dist.send(tensor, self._find_global_rank(stage + 1), self.group)
        return tensors[0] if self._count - 1 in self.parts else None, boundaries

    def _receive(self, stage: int, metas: Boundary) -> Boundary:
        """Receive the previous stage's output, whose types and shapes are those of ``metas``."""
        tensors = [torch.empty(meta.shape, dtype=meta.dtype, device=self.device) for meta in metas]
        for tensor in tensors:
            dist.recv(tensor, self._find_global_rank(stage - 1), self.group)
        return tensors

    def _find_global_rank(self, stage: int) -> int:
        """Return the global rank that has a stage of this rank's pipeline."""
        return dist.get_global_rank(self.group, self._owners[stage])


class Stage(PipelineStage):
    """torch's stage, which announces its micro-batches, and drops outputs that are never read."""

    def __init__(
        self, pipeline: Pipeline, stage: int, count: int, inputs: Boundary, outputs: Boundary
    ) -> None:
        self._pipeline = pipeline
        super().__init__(
            pipeline.parts[stage],
            stage,
            count,
            pipeline.device,
            # Both are given, so torch need not request them from the other stages.
            input_args=tuple(inputs),
            output_args=tuple(outputs),
            group=pipeline.group,
        )

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        """Run the forward pass of one micro-batch; called by the schedule."""
        self._pipeline.begin(fwd_chunk_id, self.stage_index)
        output = super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)
        if self.output_chunks:  # logits of all micro-batches; torch before 2.9 always keeps them
            self.output_chunks[-1] = torch.zeros(1)
        return output

    def forward_maybe_with_nosync(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module; make its output sendable unless this is the last stage."""
        output = super().forward_maybe_with_nosync(*args, **kwargs)
        return output if self.is_last else make_sendable(output)


def copy_modules_sharing_tensors(model: nn.Module, taken_ids: Collection[int]) -> nn.Module:
    """Return a copy of the model's modules that shares its tensors, except those in ``taken_ids``.

    Tensors in ``taken_ids`` are copied: a weight in two stages of one rank is two tensors, as on
    two ranks, because each stage is sharded separately.
    """
    tensors = [
        tensor for tensor in (*model.parameters(), *model.buffers()) if id(tensor) not in taken_ids
    ]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in (*tensors, find_recorder(model))})
