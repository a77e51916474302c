"""One process; and what every strategy does until it says otherwise."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from training import optimizers
from training.clock import Clock
from training.config import TrainConfig
from training.strategies.ranks import Ranks
from training.workloads import Workload

Batch = Mapping[str, Tensor]


class Single:
    """How a training step is shared by the ranks.

    Attributes:
        model: the model's weights as this rank has them, under the model's own names.
        optimizer: over these weights.
        data_rank, data_world: which part of the global batch this rank takes: ranks that share a
            model (tensor, pipeline) take the same samples.
        scores: whether this rank's losses count; one rank of those that take the same samples.
        clock: where the time of a step goes.
    """

    data_rank, data_world, scores = 0, 1, True
    model: nn.Module
    optimizer: torch.optim.Optimizer

    def __init__(self, config: TrainConfig, workload: Workload, ranks: Ranks) -> None:
        self.config, self.workload, self.ranks = config, workload, ranks
        self.clock = Clock(ranks.device)

    @staticmethod
    def backend() -> str | None:
        """The process group's backend, registered; None for gloo, and nccl where there are GPUs."""
        return None

    def prepare(self, model: nn.Module) -> None:
        """Take the fresh model, the same on every rank, and make it ready to be trained."""
        self.model = self.placed(model)
        adapt_blocks(self.workload.blocks(self.model), self.config)
        self.forward = self.wrap(self.model)
        self.optimizer = optimizers.build(self.config, self.model)

    def placed(self, model: nn.Module) -> nn.Module:
        """On this rank's device, in the type that weights are kept in."""
        wide = self.config.precision == "float64"
        return model.to(self.ranks.device, torch.float64 if wide else None)

    def wrap(self, model: nn.Module) -> nn.Module:
        """What is called in the place of the model."""
        return model

    def rehearse(self, batch: Batch) -> None:
        """Before the first step after a resume: come to the state of a run that was not resumed."""

    def backward(self, batches: Sequence[Batch], units: float) -> Tensor:
        """Gradients of the mean loss over the ``units`` of the global batch.

        Returns the sum of the losses of this rank's micro-batches, float64, 0-dim.
        """
        total = torch.zeros((), dtype=torch.float64, device=self.ranks.device)
        for number, batch in enumerate(batches, 1):
            with nullcontext() if number == len(batches) else self.accumulating():
                loss = self.loss(self.forward, batch)
                # Ranks average their gradients: times their number it is the sum again.
                scaled = loss * (self.data_world / units)
                if number == len(batches):
                    scaled.register_hook(self._note_waiting)
                scaled.backward()
                if number == len(batches):
                    self.clock.mark("communication")
            total += loss.detach()
        return total

    def _note_waiting(self, gradient: Tensor) -> None:
        """At the beginning of a backward pass: mark when this rank has computed its gradients.

        Autograd calls back in the order of the requests when a pass is through. DDP and FSDP2 ask
        for theirs, in which they wait for the other ranks, later in the pass.
        """
        engine = torch.autograd.Variable._execution_engine
        engine.queue_callback(lambda: self.clock.mark("forward_backward"))

    def accumulating(self) -> AbstractContextManager:
        """Around backward passes whose gradients need not be shared yet."""
        return nullcontext()

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The sum of the losses of a micro-batch."""
        with self.autocast():
            return self.score(model(*self.workload.inputs(batch)), batch)

    def score(self, outputs: Tensor, batch: Batch) -> Tensor:
        """The loss of outputs, never in less than float32."""
        wide = torch.promote_types(outputs.dtype, torch.float32)
        return self.workload.loss(outputs.to(wide), batch)

    def autocast(self) -> AbstractContextManager:
        """The precision of the matrix products."""
        enabled = self.config.precision == "bfloat16"
        return torch.autocast(self.ranks.device.type, torch.bfloat16, enabled=enabled)

    def validate(self, batch: Batch) -> Tensor:
        """The sum of the losses of a batch in full precision, without gradients."""
        return self.workload.loss(self.model(*self.workload.inputs(batch)), batch)

    def clip(self) -> float:
        """The global L2 norm of the gradient, which is then scaled down to ``grad_clip``."""
        parameters = list(self.model.parameters())
        return float(nn.utils.clip_grad_norm_(parameters, self.config.grad_clip))

    def update(self, rate: float) -> None:
        """The optimizer's step at a learning rate; gradients are gone afterwards."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad()

    def sum(self, values: Tensor) -> Tensor:
        """Elementwise sum over the data-parallel ranks, on every rank."""
        return self.ranks.sum(values if self.scores else torch.zeros_like(values))

    def state(self) -> dict[str, Tensor]:
        """Name → tensor of all that training goes on from, as this rank holds it.

        The names do not depend on the strategy; loading writes into the tensors.
        """
        names = {parameter: name for name, parameter in self.model.named_parameters()}
        state = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        for parameter, moments in optimizers.moments(self.optimizer):
            for kind, tensor in moments.items():
                state[f"optimizer.{names[parameter]}.{kind}"] = tensor
        return state

    def loaded(self) -> None:
        """After ``state``'s tensors were written into."""

    def weights(self) -> dict[str, Tensor]:
        """The whole model's state on the CPU; on rank 0, the others get none of it."""
        return {name: tensor.detach().cpu() for name, tensor in self.model.state_dict().items()}


def adapt_blocks(blocks: Sequence[nn.Module], config: TrainConfig) -> None:
    """Recompute activations and compile, block by block; names of parameters stay."""
    for block in blocks:
        if config.activation_checkpointing:
            recompute(block)
        if config.compile:
            block.compile()


def recompute(block: nn.Module) -> None:
    """Let ``block`` keep its inputs only, and compute the rest anew in the backward pass."""
    from torch.utils.checkpoint import checkpoint

    forward = block.forward

    def recomputed(*inputs: Tensor) -> Tensor:
        return checkpoint(forward, *inputs, use_reentrant=False)

    block.forward = recomputed
