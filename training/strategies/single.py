"""One process; and what every strategy does until it says otherwise."""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.distributed as dist
from torch import Tensor, nn

from training import optimizers
from training.config import TrainConfig
from training.initial.build_model import told, values
from training.initial.fill_memory import fill
from training.microbatches import MicroBatches, by_batch
from training.strategies.block_wrapping import adapt_blocks
from training.strategies.loss_scale import LossScale
from training.strategies.ranks import Ranks
from training.watching.clock import Clock
from training.workloads import Workload
from trainyard.common.errors import TrainingError

log = logging.getLogger(__name__)

Batch = Mapping[str, Tensor]


class Single:
    """How a training step is shared by the ranks.

    Attributes:
        model: the model's weights as this rank has them, under the model's own names.
        names: every name in the whole model's state → the one that it is saved under.
        initial: name → what it begins with, of a model on meta, until ``filled``.
        from_base: names of what begins and ends as the base's, so no checkpoint holds it.
        optimizer: over these weights.
        data_rank, data_world: which part of the global batch this rank takes: ranks that share a
            model (tensor, pipeline) or each sequence (context) take the same samples.
        scores: whether this rank's losses and units count; one rank of those that take the same
            parts of the same samples.
        clock: where the time of a step goes.
        loss_scale: with ``precision: float16``.
        emulated: whether the device has no products in float8.
        reads: whether ``update`` has the host read what the device computed, whatever we do; then
            each step's numbers are read at once.
    """

    data_rank, data_world, scores = 0, 1, True
    reads = False
    model: nn.Module
    optimizer: torch.optim.Optimizer

    def __init__(self, config: TrainConfig, workload: Workload, ranks: Ranks) -> None:
        self.config, self.workload, self.ranks = config, workload, ranks
        self.clock = Clock(ranks.device)
        self.loss_scale = LossScale(ranks.device) if config.precision == "float16" else None
        self.emulated = ranks.device.type != "cuda"

    @staticmethod
    def backend() -> str | None:
        """The process group's backend, registered; None for gloo, and nccl where there are GPUs."""
        return None

    def prepare(self, model: nn.Module) -> None:
        """Take the fresh model, the same on every rank, and make it ready to be trained.

        It is on meta (``training.initial``), or real already.
        """
        self.know(model)
        self.take(self.filled(self.placed(model)))
        self.initial = None
        adapt_blocks(self.workload.blocks(self.model), self.config)
        self.forward = self.wrap(self.model)
        self.optimizer = optimizers.build(self.config, self.model)

    def know(self, whole: nn.Module) -> None:
        """Look at the whole model, before it is split.

        Raises:
            TrainingError: all its weights are frozen.
        """
        if not any(parameter.requires_grad for parameter in whole.parameters()):
            raise TrainingError(
                "all weights of the model are frozen (requires_grad=False), so there is nothing to "
                "train: let Workload.model leave those that are to be trained unfrozen"
            )
        self.names, self.initial = first_names(whole), values(whole)
        self._shapes = {name: (t.shape, t.dtype) for name, t in whole.state_dict().items()}
        self.from_base = getattr(whole, "from_base", frozenset())
        self._draws = by_batch(self.workload, whole)

    def take(self, model: nn.Module) -> None:
        """What this rank has of the model, not yet wrapped."""
        self.model = self.forward = model
        self.micro = self.micro_batches(model)

    def micro_batches(self, model: nn.Module, stage: int = 0) -> MicroBatches:
        """Of the model, or of a stage of it."""
        seed, size = self.config.seed, self.config.micro_batch
        return MicroBatches(model, seed, size, stage, draws=self._draws)

    def placed(self, model: nn.Module) -> nn.Module:
        """In the type that weights are kept in; on this rank's device, unless it is on meta."""
        if self.config.precision == "float64":
            model = model.to(torch.float64)
        if self.config.float8 != "none":
            from training.strategies import float8

            blocks, device = self.workload.blocks(model), self.ranks.device
            float8.convert(blocks, self.config, device, emulated=self.emulated)
        return model if self.initial is not None else model.to(self.ranks.device)

    def filled(self, model: nn.Module) -> nn.Module:
        """What of the model was on meta gets memory, and this rank's part of its initial values.

        Whatever is done to a model before reads no weight.
        """
        if self.initial is not None:
            if self.ranks.rank == 0 and (costs := told(self.initial)):
                log.info("%s", costs)
            host = torch.device("cpu") if self.config.cpu_offload else None
            fill(model, self.initial, self.ranks.device, host)
        return model

    def wrap(self, model: nn.Module) -> nn.Module:
        """What is called in the place of the model."""
        return model

    def leave(self) -> None:
        """The ranks part: let go of what must not outlive their process group."""

    def begin(self, step: int) -> None:
        """Optimizer step ``step`` (from 0) begins."""
        share = self.config.global_batch // self.data_world
        first = step * self.config.global_batch + self.data_rank * share
        self.micro.step(first, self.ranks.device)

    def data_groups(self) -> Sequence[dist.ProcessGroup]:
        """Groups that span the data-parallel ranks, one after the other."""
        return [dist.group.WORLD] if self.data_world > 1 else []

    @property
    def averaged(self) -> int:
        """Ranks whose gradients are averaged: those that take other samples or parts of them."""
        return self.data_world

    def part(self, batch: Batch) -> Batch:
        """What this rank takes of the samples: all, but where ranks share each sequence."""
        return batch

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """What the model makes of a batch."""
        return model(*self.workload.inputs(batch), **self.beside(batch))

    def beside(self, batch: Batch) -> Mapping[str, Tensor]:
        """What every stage of the model takes by name."""
        beside = getattr(self.workload, "beside", None)
        return beside(batch) if beside else {}

    def backward(self, batches: Sequence[Batch], units: Tensor) -> Tensor:
        """Gradients of the mean loss over the ``units`` of the global batch.

        Args:
            units: float64, 0-dim, on the device.

        Returns the sum of the losses of this rank's micro-batches, likewise.
        """
        total = torch.zeros((), dtype=torch.float64, device=self.ranks.device)
        scale = self.factor(units)
        for number, batch in enumerate(batches, 1):
            self.micro.begin(number - 1)
            with nullcontext() if number == len(batches) else self.accumulating():
                loss = self.loss(self.forward, batch)
                scaled = loss * scale.to(loss.dtype)
                if number == len(batches):
                    scaled.register_hook(self._note_waiting)
                scaled.backward()
                if number == len(batches):
                    self.clock.mark("communication")
            total += loss.detach()
        return total

    def factor(self, units: Tensor) -> Tensor:
        """What a loss is multiplied by before its backward pass.

        Ranks average their gradients: times their number it is the sum again. Of a scaled one
        ``unscale`` makes that, so that float16 rounds, and overflows, whatever their number is.
        """
        return self.averaged / units if self.loss_scale is None else self.loss_scale.scale / units

    def unscale(self) -> None:
        """After the backward passes: gradients as they are without ``loss_scale``."""
        if self.loss_scale is not None:
            self.loss_scale.unscale(self.model.parameters(), self.averaged)

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
            return self.score(self.outputs(model, batch), batch)

    def score(self, outputs: Tensor, batch: Batch) -> Tensor:
        """The loss of outputs, never in less than float32."""
        wide = torch.promote_types(outputs.dtype, torch.float32)
        return self.workload.loss(outputs.to(wide), batch)

    def autocast(self) -> AbstractContextManager:
        """The precision of the matrix products."""
        half = self.config.half
        kind = getattr(torch, half) if half else None
        return torch.autocast(self.ranks.device.type, kind, enabled=half is not None)

    def validate(self, batch: Batch) -> Tensor:
        """The sum of the losses of a batch in full precision, without gradients."""
        return self.score(self.outputs(self.model, batch), batch)

    def clip(self) -> Tensor:
        """The global L2 norm of the gradient, 0-dim, which is then scaled down to ``grad_clip``.

        Both are of the gradient without ``loss_scale``, which is taken off it first.
        """
        self.unscale()
        return nn.utils.clip_grad_norm_(list(self.model.parameters()), self.config.grad_clip)

    def update(self, rate: float, finite: Tensor) -> None:
        """The optimizer's step at a learning rate; gradients are gone afterwards.

        Args:
            finite: boolean, 0-dim, on the device; where it is false, weights and the optimizer's
                state stay as they are.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        optimizers.step(self.optimizer, finite)
        self.optimizer.zero_grad()

    def sum(self, values: Tensor) -> Tensor:
        """Elementwise sum over the data-parallel ranks, on every rank."""
        return self.ranks.sum(values if self.scores else torch.zeros_like(values))

    def state(self) -> dict[str, Tensor]:
        """Name → tensor of all that training goes on from, as this rank holds it.

        The names do not depend on the strategy; loading writes into the tensors.
        """
        parameters = self.model.named_parameters()
        names = {parameter: self.saved_name(name) for name, parameter in parameters}
        state = {
            f"model.{self.saved_name(name)}": tensor
            for name, tensor in self.model.state_dict().items()
            if name not in self.from_base
        }
        for parameter, moments in optimizers.moments(self.optimizer):
            for kind, tensor in moments.items():
                state[f"optimizer.{names[parameter]}.{kind}"] = tensor
        return state

    def saved_name(self, name: str) -> str:
        """The name under which a checkpoint has what the model calls ``name``."""
        return self.names.get(name, name)

    def loaded(self, *averages: Mapping[str, Tensor]) -> None:
        """After ``state``'s tensors were written into, and these: the model's names → tensor."""

    def looks(self) -> dict[str, Tensor]:
        """Every name in the whole model's state → what its tensor is like, on meta.

        What is one tensor under several names is one here, too.
        """
        found = {first: self.look(first) for first in self.names.values()}
        return {name: found[first] for name, first in self.names.items()}

    def look(self, name: str) -> Tensor:
        """What the whole tensor of a name is like, on meta."""
        shape, kind = self._shapes[name]
        wide = self.config.precision == "float64" and kind.is_floating_point
        return torch.empty(shape, dtype=torch.float64 if wide else kind, device="meta")

    def holders(self, name: str) -> Sequence[int]:
        """The ranks that have a tensor at hand, whole or a part; by its saved name."""
        return range(self.ranks.world)

    def whole(self, wanted: Iterable[tuple[str, Collection[int]]]) -> Iterator[Tensor | None]:
        """One whole tensor of the model's state after the other, by saved names.

        Each goes to the CPU of the ranks that are named with it; the others get None. Every rank
        takes part, and asks for the same. No more than one is held here at a time.
        """
        state = self.model.state_dict(keep_vars=True)
        held = {self.saved_name(name): tensor for name, tensor in reversed(state.items())}
        for name, keepers in wanted:
            yield self.gather(name, held.get(name), keepers)

    def gather(self, name: str, held: Tensor | None, keepers: Collection[int]) -> Tensor | None:
        """The whole of what this rank holds of a tensor; None where it is not wanted."""
        return held.detach().cpu() if self.ranks.rank in keepers else None


# They are one weight: saved once, under the first of the names that the whole model has for it.


def first_names(model: nn.Module) -> dict[str, str]:
    """Every name in the model's state → the first name of the same tensor."""
    first: dict[int, str] = {}
    state = model.state_dict(keep_vars=True)
    return {name: first.setdefault(id(tensor), name) for name, tensor in state.items()}


def tie_again(model: nn.Module, names: Mapping[str, str]) -> None:
    """After weights were split under each of their names: those that lie alike become one again."""
    for first, name in _untied(model, names):
        found = dict(model.named_parameters(remove_duplicate=False))
        if _layout(found[first]) == _layout(found[name]):
            module, _, last = name.rpartition(".")
            setattr(model.get_submodule(module), last, found[first])


def check(model: nn.Module, names: Mapping[str, str]) -> None:
    """What is one weight in the whole model has to be one after it was split or sharded.

    Raises:
        TrainingError: it is two, which would be trained apart.
    """
    for first, name in _untied(model, names):
        raise TrainingError(
            f"{first} and {name} are one weight, but two after the strategy has split the model, "
            "and would be trained apart: let Workload.tensor_parallel split both alike, let "
            "Workload.blocks have both in one block or in none, or set strategy to ddp"
        )


def _untied(model: nn.Module, names: Mapping[str, str]) -> list[tuple[str, str]]:
    """(first name, other name) of what is not one parameter any more."""
    found = dict(model.named_parameters(remove_duplicate=False))
    return [
        (names[name], name)
        for name, parameter in found.items()
        if found.get(names.get(name, name), parameter) is not parameter
    ]


def _layout(parameter: nn.Parameter) -> tuple[object, object]:
    """How a parameter lies over the ranks."""
    return getattr(parameter, "device_mesh", None), getattr(parameter, "placements", None)
