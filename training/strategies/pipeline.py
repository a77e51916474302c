"""Pipeline parallel: the stages work on different micro-batches at the same time.

The schedule is torch's 1F1B (Narayanan et al. 2019, PipeDream): as soon as a micro-batch is through
the last stage, its backward pass begins, so a stage keeps the activations of at most ``stages``
micro-batches.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from training.strategies.single import Batch

if TYPE_CHECKING:
    from training.strategies.mesh import Mesh


class Pipeline:
    """Runs this rank's stage.

    Attributes:
        not_counted: this stage's names of parameters that an earlier one holds, too, and counts.
    """

    def __init__(self, mesh: "Mesh") -> None:
        self._mesh = mesh
        self._schedules: dict[object, object] = {}
        self._batches: Sequence[Batch] = ()
        self._scale = 1.0
        self._group = mesh.mesh["pipeline"].get_group()
        self._shared, self.not_counted = self._find_shared()

    def backward(self, batches: Sequence[Batch], scale: float) -> Tensor:
        """Gradients of ``scale`` × the sum of the losses; returns that sum where it is known."""
        schedule = self._schedule(Schedule1F1B, batches, scale_grads=False)
        self._batches, self._scale = batches, scale
        total = torch.zeros((), dtype=torch.float64, device=self._mesh.ranks.device)
        losses: list[Tensor] = []
        with self._mesh.autocast():
            schedule.step(*self._inputs(batches), target=self._numbers(batches), losses=losses)
        for loss in losses:
            total += loss.detach() / scale
        return total

    def validate(self, batch: Batch) -> Tensor:
        """The sum of the losses where it is known, 0 elsewhere."""
        schedule = self._schedule(ScheduleGPipe, [batch])
        self._batches, self._scale = [batch], 1.0
        losses: list[Tensor] = []
        schedule.eval(*self._inputs([batch]), target=self._numbers([batch]), losses=losses)
        return losses[0] if losses else torch.zeros((), device=self._mesh.ranks.device)

    def add_up_shared(self, gradients: dict[str, Tensor | None]) -> None:
        """A parameter that several stages hold is one: each gets the sum of their gradients."""
        parameters = dict(self._mesh.model.named_parameters())
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
        inputs = self._mesh.workload.inputs(batches[0])
        key = (kind, len(batches), *(tuple(tensor.shape) for tensor in inputs))
        if key not in self._schedules:
            stage = Stage(self._mesh, self._group)
            self._schedules[key] = kind(stage, len(batches), loss_fn=self._loss, **options)
        return self._schedules[key]

    def _inputs(self, batches: Sequence[Batch]) -> list[Tensor]:
        """All micro-batches' inputs as one, for the first stage."""
        if self._mesh.stage > 0:
            return []
        inputs = [self._mesh.workload.inputs(batch) for batch in batches]
        return [torch.cat(tensors) for tensors in zip(*inputs, strict=True)]

    def _numbers(self, batches: Sequence[Batch]) -> Tensor | None:
        """The last stage's targets: a micro-batch's number, by which ``_loss`` finds it."""
        last = self._mesh.stage == self._mesh.stages - 1
        return torch.arange(len(batches)) if last else None

    def _loss(self, outputs: Tensor, number: Tensor) -> Tensor:
        batch = self._batches[int(number)]
        return self._mesh.score(outputs, batch) * self._scale

    def _find_shared(self) -> tuple[dict[str, dist.ProcessGroup], set[str]]:
        """Groups of the stages that hold a parameter together; every rank makes every group."""
        mesh = self._mesh
        mine = {mesh.saved_name(name): name for name, _ in mesh.model.named_parameters()}
        every: list[list[str]] = [[] for _ in range(mesh.stages)]
        dist.all_gather_object(every, [*mine], group=self._group)
        holders: dict[str, list[int]] = {}
        for stage, names in enumerate(every):
            for name in names:
                holders.setdefault(name, []).append(stage)
        shared = {name: stages for name, stages in holders.items() if len(stages) > 1}
        groups = {}
        for name, stages in sorted(shared.items()):
            for pipeline in mesh.mesh.mesh.flatten(1).T.tolist():
                group = dist.new_group([pipeline[stage] for stage in stages])
                if mesh.ranks.rank in pipeline and name in mine:
                    groups[mine[name]] = group
        counted_before = {name for name, stages in shared.items() if stages[0] != mesh.stage}
        return groups, {mine[name] for name in counted_before if name in mine}


class Stage(PipelineStage):
    """A stage that tells its micro-batches apart; torch learns shapes by calls of the model, too,
    which draw and count nothing."""

    def __init__(self, mesh: "Mesh", group: dist.ProcessGroup) -> None:
        super().__init__(mesh.model, mesh.stage, mesh.stages, mesh.ranks.device, group=group)
        self._micro = mesh.micro

    def forward_one_chunk(self, fwd_chunk_id: int, *given: Any, **named: Any) -> Any:
        if torch.is_grad_enabled():
            self._micro.begin(fwd_chunk_id)
        return super().forward_one_chunk(fwd_chunk_id, *given, **named)
