"""Pipeline parallel: the stages work on different micro-batches at the same time.

The schedule is torch's 1F1B (Narayanan et al. 2019, PipeDream): as soon as a micro-batch is through
the last stage, its backward pass begins, so a stage keeps the activations of at most ``stages``
micro-batches.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from training.strategies.single import Batch, Single


class Pipeline:
    """Runs this rank's stage of a strategy's model.

    Attributes:
        stage, stages: which stage it is, and of how many.
        group: the ranks that hold the stages of one copy of the model.
        not_counted: this stage's names of parameters that an earlier one holds, too, and counts.
    """

    def __init__(self, strategy: Single, mesh: DeviceMesh) -> None:
        """``mesh``: all ranks, with a dimension ``pipeline``."""
        self._strategy, self._mesh = strategy, mesh
        self.stage, self.stages = mesh.get_local_rank("pipeline"), mesh["pipeline"].size()
        self._schedules: dict[object, object] = {}
        self._batches: Sequence[Batch] = ()
        self._scale = torch.ones((), dtype=torch.float64, device=strategy.ranks.device)
        self.group = mesh["pipeline"].get_group()
        self._shared, self.not_counted = self._find_shared()

    def backward(self, batches: Sequence[Batch], scale: Tensor) -> Tensor:
        """Gradients of ``scale`` × the sum of the losses; returns that sum where it is known."""
        schedule = self._schedule(Schedule1F1B, batches, scale_grads=False)
        self._batches, self._scale = batches, scale
        total = torch.zeros((), dtype=torch.float64, device=self._strategy.ranks.device)
        losses: list[Tensor] = []
        with self._strategy.autocast():
            schedule.step(
                *self._inputs(batches),
                target=self._numbers(batches),
                losses=losses,
                **self._beside(batches),
            )
        for loss in losses:
            total += loss.detach() / scale.to(loss.dtype)
        return total

    def validate(self, batch: Batch) -> Tensor:
        """The sum of the losses where it is known, 0 elsewhere."""
        schedule = self._schedule(ScheduleGPipe, [batch])
        self._batches, self._scale = [batch], torch.ones_like(self._scale)
        losses: list[Tensor] = []
        schedule.eval(
            *self._inputs([batch]),
            target=self._numbers([batch]),
            losses=losses,
            **self._beside([batch]),
        )
        return losses[0] if losses else torch.zeros((), device=self._strategy.ranks.device)

    def add_up_shared(self, gradients: dict[str, Tensor | None]) -> None:
        """A parameter that several stages hold is one: each gets the sum of their gradients."""
        parameters = dict(self._strategy.model.named_parameters())
        for name, group in self._shared.items():
            parameter = parameters[name]
            if not parameter.requires_grad:
                continue
            if gradients[name] is None:  # used by other stages only
                gradients[name] = parameter.grad = torch.zeros_like(parameter)
            gradient = gradients[name]
            dist.all_reduce(getattr(gradient, "_local_tensor", gradient), group=group)

    def _schedule(self, kind: type, batches: Sequence[Batch], **options: object) -> object:
        """Made once for each shape of a micro-batch, which its stage learns at the first call."""
        inputs = self._strategy.workload.inputs(batches[0])
        key = (kind, len(batches), *(tuple(tensor.shape) for tensor in inputs))
        if key not in self._schedules:
            stage = Stage(self._strategy, self.stage, self.stages, self.group)
            self._schedules[key] = kind(stage, len(batches), loss_fn=self._loss, **options)
        return self._schedules[key]

    def _inputs(self, batches: Sequence[Batch]) -> list[Tensor]:
        """All micro-batches' inputs as one, for the first stage."""
        if self.stage > 0:
            return []
        inputs = [self._strategy.workload.inputs(batch) for batch in batches]
        return [torch.cat(tensors) for tensors in zip(*inputs, strict=True)]

    def _beside(self, batches: Sequence[Batch]) -> dict[str, Tensor]:
        """What all micro-batches' stages take by name, as one."""
        beside = [self._strategy.beside(batch) for batch in batches]
        return {name: torch.cat([one[name] for one in beside]) for name in beside[0]}

    def _numbers(self, batches: Sequence[Batch]) -> Tensor | None:
        """The last stage's targets: a micro-batch's number, by which ``_loss`` finds it."""
        last = self.stage == self.stages - 1
        return torch.arange(len(batches)) if last else None

    def _loss(self, outputs: Tensor, number: Tensor) -> Tensor:
        batch = self._batches[int(number)]
        loss = self._strategy.score(outputs, batch)
        return loss * self._scale.to(loss.dtype)

    def _find_shared(self) -> tuple[dict[str, dist.ProcessGroup], set[str]]:
        """Groups of the stages that hold a parameter together; every rank makes every group."""
        strategy = self._strategy
        mine = {strategy.saved_name(name): name for name, _ in strategy.model.named_parameters()}
        every: list[list[str]] = [[] for _ in range(self.stages)]
        dist.all_gather_object(every, [*mine], group=self.group)
        holders: dict[str, list[int]] = {}
        for stage, names in enumerate(every):
            for name in names:
                holders.setdefault(name, []).append(stage)
        shared = {name: stages for name, stages in holders.items() if len(stages) > 1}
        groups = {}
        for name, stages in sorted(shared.items()):
            for pipeline in self._mesh.mesh.flatten(1).T.tolist():
                group = dist.new_group([pipeline[stage] for stage in stages])
                if strategy.ranks.rank in pipeline and name in mine:
                    groups[mine[name]] = group
        counted_before = {name for name, stages in shared.items() if stages[0] != self.stage}
        return groups, {mine[name] for name in counted_before if name in mine}


class Stage(PipelineStage):
    """A stage that tells its micro-batches apart; torch learns shapes by calls of the model, too,
    which draw and count nothing."""

    def __init__(self, strategy: Single, stage: int, stages: int, group: dist.ProcessGroup) -> None:
        super().__init__(strategy.model, stage, stages, strategy.ranks.device, group=group)
        self._micro = strategy.micro

    def forward_one_chunk(self, fwd_chunk_id: int, *given: Any, **named: Any) -> Any:
        if torch.is_grad_enabled():
            self._micro.begin(fwd_chunk_id)
        return super().forward_one_chunk(fwd_chunk_id, *given, **named)
