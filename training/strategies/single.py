"""The strategy for one process; it defines the default behaviour of all strategies."""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.distributed as dist
from torch import Tensor, nn

from training import optimizers
from training.config import TrainConfig
from training.microbatches import MicroBatches, StageMicroBatches, depends_on_micro_batch
from training.strategies.block_wrapping import adapt_blocks
from training.strategies.precision import LossScale
from training.strategies.ranks import Ranks
from training.watching.clock import Clock
from training.weights.initial.build_model import describe_costly_weights, find_initial_values
from training.weights.initial.initial_values import Value, materialize_tensors
from training.workloads import Workload
from trainyard.common.errors import TrainingError

log = logging.getLogger(__name__)

Batch = Mapping[str, Tensor]


class Strategy:
    """How the ranks share a training step; base class of all strategies.

    Attributes:
        model: the model's weights as this rank has them, under the model's own names.
        forward: the module to call for a forward pass in training.
        names: mapping of every name in the whole model's state to the name under which it is saved.
        initial: mapping of name to initial value, for a model on meta, until ``materialize``.
        from_base: names of the weights taken unchanged from the base model; checkpoints omit them.
        optimizer: optimizer of these weights.
        data_rank, data_world: the part of the global batch that this rank takes. Ranks that share a
            model (tensor, pipeline) or each sequence (context) take the same samples.
        scores: whether this rank's losses and units count; true for one of the ranks that take the
            same parts of the same samples.
        clock: measures where the time of a step goes.
        loss_scale: set with ``precision: float16``, else None.
        emulates_float8: whether float8 products are emulated, because the device has none.
        reads: whether ``update`` always makes the host wait for the device; if so, each step's
            numbers are read at once.
    """

    data_rank, data_world, scores = 0, 1, True
    reads = False
    model: nn.Module
    forward: nn.Module
    micro: MicroBatches | StageMicroBatches
    optimizer: torch.optim.Optimizer
    initial: dict[str, Value] | None
    from_base: frozenset[str]

    def __init__(self, config: TrainConfig, workload: Workload, ranks: Ranks) -> None:
        self.config, self.workload, self.ranks = config, workload, ranks
        self.clock = Clock(ranks.device)
        self.loss_scale = LossScale(ranks.device) if config.precision == "float16" else None
        self.emulates_float8 = ranks.device.type != "cuda"

    @staticmethod
    def register_backend() -> str | None:
        """Register the process group's backend if needed, and return its name; None for the
        default: gloo, or nccl with GPUs.
        """
        return None

    def prepare(self, model: nn.Module) -> None:
        """Prepare the fresh model, which is the same on every rank, for training.

        It is on meta (``training.weights.initial``), or already real.
        """
        self.record_model(model)
        self.set_model(self.materialize(self.to_stored_dtype_and_device(model)))
        self.initial = None
        adapt_blocks(self.workload.blocks(self.model), self.config)
        self.forward = self.wrap(self.model)
        self.optimizer = optimizers.build_optimizer(self.config, self.model)

    def record_model(self, model: nn.Module) -> None:
        """Record facts about the whole model, before it is split.

        Raises:
            TrainingError: all its weights are frozen.
        """
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise TrainingError(
                "all weights of the model are frozen (requires_grad=False), so there is nothing to "
                "train: leave those that are to be trained unfrozen in Workload.model"
            )
        self.names, self.initial = find_first_names(model), find_initial_values(model)
        self._shapes = {name: (t.shape, t.dtype) for name, t in model.state_dict().items()}
        self.from_base = getattr(model, "from_base", frozenset())
        self._draws = depends_on_micro_batch(self.workload, model)

    def set_model(self, model: nn.Module) -> None:
        """Set this rank's part of the model, not yet wrapped."""
        self.model = self.forward = model
        self.micro = self.create_micro_batches(model)

    def create_micro_batches(self, model: nn.Module, stage: int = 0) -> MicroBatches:
        """Create the ``MicroBatches`` of the model, or of one of its stages."""
        seed, size = self.config.seed, self.config.micro_batch
        return MicroBatches(model, seed, size, stage, draws=self._draws)

    def to_stored_dtype_and_device(self, model: nn.Module) -> nn.Module:
        """Convert the model to its stored type, and move it to this rank's device unless it is
        on meta.
        """
        if self.config.precision == "float64":
            model = model.to(torch.float64)
        if self.config.float8 != "none":
            from training.strategies import float8

            blocks, device = self.workload.blocks(model), self.ranks.device
            float8.convert_linear_layers(blocks, self.config, device, emulate=self.emulates_float8)
        return model if self.initial is not None else model.to(self.ranks.device)

    def materialize(self, model: nn.Module) -> nn.Module:
        """Allocate memory for tensors on meta, and write this rank's part of their initial values.

        Code that runs before this must not read a weight.
        """
        if self.initial is not None:
            if self.ranks.rank == 0 and (costs := describe_costly_weights(self.initial)):
                log.info("%s", costs)
            host = torch.device("cpu") if self.config.cpu_offload else None
            materialize_tensors(model, self.initial, self.ranks.device, host)
        return model

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return the module to call instead of the model."""
        return model

    def leave(self) -> None:
        """Release whatever must not outlive the process group, before the group is destroyed."""

    def begin(self, step: int) -> None:
        """Begin optimizer step ``step`` (from 0)."""
        share = self.config.global_batch // self.data_world
        first = step * self.config.global_batch + self.data_rank * share
        self.micro.begin_step(first, self.ranks.device)

    def list_data_groups(self) -> Sequence[dist.ProcessGroup]:
        """Return process groups that together span the data-parallel ranks.

        To reduce over all of them, reduce over one group after the other.
        """
        world = dist.group.WORLD
        return [world] if world is not None and self.data_world > 1 else []

    @property
    def gradient_world(self) -> int:
        """Number of ranks whose gradients are averaged: those with different samples, or with
        different parts of the same samples.
        """
        return self.data_world

    def take_local_slice(self, batch: Batch) -> Batch:
        """Return this rank's part of a batch: all of it, unless ranks share each sequence."""
        return {name: self._widen_tensor(tensor) for name, tensor in batch.items()}

    def compute_outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the model's outputs for a batch."""
        return model(*self.prepare_inputs(batch), **self.model_kwargs(batch))

    def prepare_inputs(self, batch: Batch) -> tuple[Tensor, ...]:
        """Return the inputs of the model's first stage."""
        return tuple(map(self._widen_tensor, self.workload.inputs(batch)))

    def model_kwargs(self, batch: Batch) -> Mapping[str, Tensor]:
        """Return the keyword inputs of every stage of the model."""
        method = getattr(self.workload, "model_kwargs", None)
        return (
            {n: self._widen_tensor(tensor) for n, tensor in method(batch).items()} if method else {}
        )

    def _widen_tensor(self, tensor: Tensor) -> Tensor:
        """Return a tensor of samples, converted to float64 if the weights have that type."""
        wide = self.config.precision == "float64" and tensor.is_floating_point()
        return tensor.double() if wide else tensor

    def backward(self, batches: Sequence[Batch], units: Tensor) -> Tensor:
        """Compute gradients of the mean loss over the ``units`` of the global batch.

        Args:
            units: float64, 0-dim, on the device.

        Returns:
            The sum of the losses of this rank's micro-batches, float64, 0-dim, on the device.
        """
        total = torch.zeros((), dtype=torch.float64, device=self.ranks.device)
        scale = self.compute_loss_factor(units)
        assert isinstance(self.micro, MicroBatches)  # this strategy has no pipeline stages
        for number, batch in enumerate(batches, 1):
            self.micro.begin(number - 1)
            with nullcontext() if number == len(batches) else self.defer_gradient_sync():
                loss = self.compute_loss(self.forward, batch)
                scaled_loss = loss * scale.to(loss.dtype)
                if number == len(batches):
                    scaled_loss.register_hook(self._queue_clock_mark)
                scaled_loss.backward()
                if number == len(batches):
                    self.clock.mark("communication")
            total += loss.detach()
        return total

    def compute_loss_factor(self, units: Tensor) -> Tensor:
        """Return the factor by which a loss is multiplied before its backward pass.

        Ranks average their gradients; multiplied by the number of ranks, the average is the sum
        again. For a scaled loss ``unscale_gradients`` does that multiplication, so that float16
        rounding does not depend on the number.
        """
        return (
            self.gradient_world / units
            if self.loss_scale is None
            else self.loss_scale.scale / units
        )

    def unscale_gradients(self) -> None:
        """Remove ``loss_scale`` from the gradients after the backward passes."""
        if self.loss_scale is not None:
            self.loss_scale.unscale_gradients(self.model.parameters(), self.gradient_world)

    def _queue_clock_mark(self, gradient: Tensor) -> None:
        """Make the clock record when this rank has computed its gradients; called when a backward
        pass starts.

        Autograd runs callbacks in the order of their registration at the end of a pass. DDP and
        FSDP2 register theirs, in which they wait for the other ranks, later in the pass.
        """
        engine = torch.autograd.Variable._execution_engine
        engine.queue_callback(lambda: self.clock.mark("forward_backward"))

    def defer_gradient_sync(self) -> AbstractContextManager:
        """Context for backward passes after which gradients need not be summed over the ranks
        yet.
        """
        return nullcontext()

    def compute_loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the sum of the losses of a micro-batch."""
        with self.autocast():
            return self.score(self.compute_outputs(model, batch), batch)

    def score(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Return the loss of ``outputs``, computed in float32 or wider."""
        wide = torch.promote_types(outputs.dtype, torch.float32)
        return self.workload.loss(outputs.to(wide), batch)

    def autocast(self) -> AbstractContextManager:
        """Context that sets the precision of the matrix products."""
        half = self.config.half_precision
        kind = getattr(torch, half) if half else None
        return torch.autocast(self.ranks.device.type, kind, enabled=half is not None)

    def validate(self, batch: Batch) -> Tensor:
        """Return the sum of the losses of a batch in full precision, without gradients."""
        return self.score(self.compute_outputs(self.model, batch), batch)

    def clip(self) -> Tensor:
        """Return the gradient's global L2 norm, 0-dim, and scale the gradient down to
        ``grad_clip``.

        ``loss_scale`` is removed from the gradient first.
        """
        self.unscale_gradients()
        return nn.utils.clip_grad_norm_(list(self.model.parameters()), self.config.grad_clip)

    def update(self, rate: float, finite: Tensor) -> None:
        """Take the optimizer's step at learning rate ``rate``, and remove the gradients.

        Args:
            finite: boolean, 0-dim, on the device; if false, weights and the optimizer's state stay
                unchanged.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        optimizers.take_step(self.optimizer, finite)
        self.optimizer.zero_grad()

    def sum(self, values: Tensor) -> Tensor:
        """Return the elementwise sum over the data-parallel ranks, on every rank."""
        return self.ranks.sum(values if self.scores else torch.zeros_like(values))

    def collect_state(self) -> dict[str, Tensor]:
        """Return everything needed to resume, as a mapping of name to tensor, as this rank holds
        it.

        The names do not depend on the strategy. Loading a checkpoint writes into these tensors.
        """
        parameters = self.model.named_parameters()
        names: dict[Tensor, str] = {p: self.find_saved_name(name) for name, p in parameters}
        state = {
            f"model.{self.find_saved_name(name)}": tensor
            for name, tensor in self.model.state_dict().items()
            if name not in self.from_base
        }
        for parameter, moments in optimizers.iter_moments(self.optimizer):
            for kind, tensor in moments.items():
                state[f"optimizer.{names[parameter]}.{kind}"] = tensor
        return state

    def find_saved_name(self, name: str) -> str:
        """Return the name of the model's tensor ``name`` in a checkpoint."""
        return self.names.get(name, name)

    def apply_loaded_state(self, *averages: Mapping[str, Tensor]) -> None:
        """Update what depends on the loaded values of ``collect_state``'s tensors and of
        ``averages`` (tensors by name); by default nothing does.
        """

    def make_meta_tensors(self) -> dict[str, Tensor]:
        """Return a mapping of every name in the whole model's state to a tensor on meta of its type
        and shape.

        A tensor with several names is a single object in the mapping, too.
        """
        tensors = {first: self.make_meta_tensor(first) for first in self.names.values()}
        return {name: tensors[first] for name, first in self.names.items()}

    def make_meta_tensor(self, name: str) -> Tensor:
        """Return a tensor on meta with the type and shape of the whole tensor ``name``."""
        shape, kind = self._shapes[name]
        wide = self.config.precision == "float64" and kind.is_floating_point
        return torch.empty(shape, dtype=torch.float64 if wide else kind, device="meta")

    def list_holders(self, name: str) -> Sequence[int]:
        """Return the ranks that hold a tensor, given by its saved name, in whole or in part."""
        return range(self.ranks.world)

    def gather_full_tensors(
        self, requests: Iterable[tuple[str, Collection[int]]]
    ) -> Iterator[Tensor | None]:
        """Yield whole tensors of the model's state, one by one, by saved names.

        Each is on the CPU of the ranks given with its name; the other ranks get None. At most one
        is held here at a time. Collective: call it on every rank with the same arguments.
        """
        state = self.model.state_dict(keep_vars=True)
        # Reversed, so that of a tensor's several names in this model the first one counts.
        tensors = {self.find_saved_name(name): tensor for name, tensor in reversed(state.items())}
        for name, keepers in requests:
            yield self.gather(name, tensors.get(name), keepers)

    def gather(self, name: str, tensor: Tensor | None, keepers: Collection[int]) -> Tensor | None:
        """Return the whole of a tensor that this rank holds, or None on ranks that are not in
        ``keepers``.
        """
        if self.ranks.rank not in keepers:
            return None
        assert tensor is not None  # each rank has every tensor
        return tensor.detach().cpu()


# Tied names are one weight: it is saved once, under the first of its names in the whole model.


def find_first_names(model: nn.Module) -> dict[str, str]:
    """Return a mapping of every name in the model's state to the first name of the same tensor."""
    first: dict[int, str] = {}
    state = model.state_dict(keep_vars=True)
    return {name: first.setdefault(id(tensor), name) for name, tensor in state.items()}


def retie_names(model: nn.Module, names: Mapping[str, str]) -> None:
    """Tie weights again that splitting made separate parameters, if they have the same layout."""
    for first, name in _find_untied(model, names):
        parameters = dict(model.named_parameters(remove_duplicate=False))
        if _read_layout(parameters[first]) == _read_layout(parameters[name]):
            module, _, last = name.rpartition(".")
            setattr(model.get_submodule(module), last, parameters[first])


def check_tied_weights(model: nn.Module, names: Mapping[str, str]) -> None:
    """Check that tied weights are still one weight after splitting and sharding.

    Raises:
        TrainingError: a weight has become two, which would be trained separately.
    """
    for first, name in _find_untied(model, names):
        raise TrainingError(
            f"{first} and {name} are one weight, but became two when the strategy split the model, "
            "and would be trained separately: split both alike in Workload.tensor_parallel, have "
            "both in one block or in none in Workload.blocks, or set strategy to ddp"
        )


def _find_untied(model: nn.Module, names: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return (first name, other name) of weights that are no longer one parameter."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    return [
        (names[name], name)
        for name, parameter in parameters.items()
        if parameters.get(names.get(name, name), parameter) is not parameter
    ]


def _read_layout(parameter: nn.Parameter) -> tuple[object, object]:
    """Return the mesh and placements of a parameter: how it is laid out over the ranks."""
    return getattr(parameter, "device_mesh", None), getattr(parameter, "placements", None)
