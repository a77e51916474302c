"""Training steps on one rank of a world, simulated.

Model, strategy, loss, clipping and optimizer are those that a training runs; the numbers are not
there. Two steps are made: the second has the optimizer's state from its beginning, as all after it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.tensor import DTensor

from training import strategies
from training.config import TrainConfig
from training.initial import fill
from training.initial.build import built
from training.simulation.boundaries import Described, told
from training.simulation.kernels import cuda_kernels
from training.simulation.storages import Record, Storages
from training.simulation.world import standing_for
from training.strategies import Strategy
from training.strategy_table import SIMULATION_TORCH, release
from training.workloads import Workload
from trainyard.common.errors import TrainingError

STEPS = 2
SIMULATED = ("single", "ddp", "fsdp")


def simulated(
    config: TrainConfig,
    workload: Workload,
    rank: int,
    world: int,
    stream: Described | None = None,
) -> Record:
    """Every allocation of ``STEPS`` training steps of ``rank``, the model's own included.

    Args:
        stream: what the first pipeline stage's rank has found, for the others; see ``boundaries``.

    Raises:
        TrainingError: the strategy is a library's that touches memory, or has no use for so many
            ranks.
    """
    if release(torch.__version__) < release(SIMULATION_TORCH):
        raise TrainingError(
            f"the simulation needs torch {SIMULATION_TORCH} or newer, and this Python has "
            f"{torch.__version__}: run it with the checkout's .venv"
        )
    if config.strategy not in SIMULATED:
        raise TrainingError(
            f"strategy {config.strategy} cannot be simulated: its library reads and writes memory; "
            f"only {', '.join(SIMULATED)} can"
        )
    storages = Storages()
    with standing_for(rank, world) as ranks, told([] if stream is None else stream):
        strategy = strategies.kind(config)(config, workload, ranks)
        if config.strategy == "ddp" and config.split == 1:
            # DDP's reducer is no operation of torch's; its buckets are the gradients, seen as one.
            strategy.wrap, strategy.accumulating = lambda model: model, nullcontext
        fake = FakeTensorMode(allow_non_fake_inputs=True)
        run(strategy, config.micro_batches(world), storages, fake)
    return storages.record


def run(
    strategy: Strategy,
    micro_batches: int,
    storages: Storages,
    tensors: AbstractContextManager,
) -> None:
    """Prepare the strategy's model and make ``STEPS`` steps, with no numbers in any tensor.

    Args:
        tensors: entered around all that takes memory: FakeTensorMode, or nothing for real memory.
    """

    @contextmanager
    def counted() -> Iterator[None]:
        with tensors, cuda_kernels(), storages:
            yield

    _prepare(strategy, counted)
    with counted():
        for number in range(STEPS):
            size = strategy.config.micro_batch
            storages.record.last = len(storages.record.events)
            _step(
                strategy, [sample(strategy, size) for _ in range(micro_batches)], number, storages
            )


def sample(strategy: Strategy, size: int) -> dict[str, Tensor]:
    """A micro-batch of ``size`` samples as the strategy takes it.

    Raises:
        TrainingError: the workload decodes samples, so their stored shape is not what it trains on.
    """
    workload = strategy.workload
    if hasattr(workload, "prepare"):
        raise TrainingError(
            "the workload prepares its samples (Workload.prepare), which needs their contents; "
            "simulate one whose samples are trained on as they are stored"
        )
    fields = workload.packing.fields.items()
    stored = {n: torch.zeros(size, *f.shape, dtype=getattr(torch, f.dtype)) for n, f in fields}
    return dict(strategy.part(stored))


def _prepare(strategy: Strategy, counted: Callable[[], AbstractContextManager]) -> None:
    """Build the model on meta, split it as for a training, and give it memory that is counted."""

    def filled(model: nn.Module) -> nn.Module:
        with counted():
            take_memory(model)
        return model

    strategy.filled = filled  # no value is written
    strategy.emulated = False  # float8 multiplies as a GPU does
    strategy.prepare(built(strategy.workload.model, strategy.config.seed))
    for micro in getattr(strategy.micro, "_each", {0: strategy.micro}).values():
        micro._unchecked = False  # random numbers cannot be compared


def _step(strategy: Strategy, batches: Sequence, number: int, storages: Storages) -> None:
    """As ``training.loop`` makes it."""
    units, finite = torch.ones((), dtype=torch.float64), torch.ones((), dtype=torch.bool)
    strategy.begin(number)
    strategy.backward(batches, units)
    strategy.clip()
    strategy.micro.end(strategy.data_groups(), finite)
    parameters = list(strategy.model.parameters())
    storages.call((*parameters, *strategy.model.buffers()), "parameters")
    storages.call((parameter.grad for parameter in parameters), "gradients")
    strategy.update(1e-4, finite)
    for state in strategy.optimizer.state.values():
        storages.call((t for t in state.values() if isinstance(t, Tensor)), "optimizer")


def take_memory(model: nn.Module) -> None:
    """What is on meta gets storages, which are counted.

    A fake tensor cannot be swapped into a parameter as ``fill.fill`` does it, a DTensor of one can.
    """
    fill.replace(model, lambda one: _empty(one) if isinstance(one, DTensor) else one)
    made: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, one in module._parameters.items():
            if one is not None and one.is_meta and id(one) not in made:
                made[id(one)] = nn.Parameter(_empty(one), requires_grad=one.requires_grad)
            if one is not None and one.is_meta:
                module._parameters[name] = made[id(one)]
        for name, one in module._buffers.items():
            if one is not None and one.is_meta:
                module._buffers[name] = _empty(one)


def _empty(tensor: Tensor) -> Tensor:
    if isinstance(tensor, DTensor):
        return torch.empty_like(tensor, device="cpu")
    return torch.empty(tensor.shape, dtype=tensor.dtype)
