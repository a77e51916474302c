"""Simulated training steps on one rank of a world.

Model, strategy, loss, clipping and optimizer are those of a real training; only the numbers do
not exist. Two steps run: the second has the optimizer's state from its beginning, like all later
ones.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.pipelining import schedules
from torch.distributed.tensor import DTensor
from torch.nn import functional as F

from training import strategies
from training.config import TrainConfig
from training.initial import fill_memory
from training.initial.build_model import built
from training.simulation.allocations import Record, Storages
from training.strategies import Strategy, pipeline_parallel
from training.strategies.ranks import Ranks
from training.strategy_table import SIMULATION_TORCH, release
from training.workloads import Workload
from trainyard.common.errors import TrainingError

Described = list[list[int]]
"""Inputs and outputs of the first stage, as numbers: see ``strategies.pipeline_parallel``."""


class Header(list):
    """Numbers that another stage would have sent as a tensor."""

    def tolist(self) -> list[int]:
        """Return the numbers, like a tensor's method."""
        return list(self)


@contextmanager
def receiving(found: Described) -> Iterator[None]:
    """Context in which a pipeline stage receives what the first stage sends.

    Args:
        found: empty for the first stage's rank, which is simulated first and fills it; the other
            ranks read it, since the same data flow between all stages.
    """
    described, receive = pipeline_parallel.described, pipeline_parallel.Pipeline._receive

    def note(tensors: Sequence[Tensor], *, trained: bool) -> list[int]:
        numbers = described(tensors, trained=trained)
        if len(found) < 2:
            found.append(numbers)
        return numbers

    def received(self: pipeline_parallel.Pipeline, stage: int, metas: Sequence[Any]) -> Any:
        if [tuple(one.shape) for one in metas] == [(pipeline_parallel.HEADER,)]:
            return [Header(found[1])]
        return receive(self, stage, metas)

    with (
        patch.object(pipeline_parallel, "described", note),
        patch.object(pipeline_parallel.Pipeline, "_receive", received),
        patch.object(schedules._PipelineSchedule, "_warmup_p2p", _vote),
    ):
        yield


def _vote(schedule: Any, stages: Sequence[Any], *_: Any) -> None:
    """Stand in for the pipeline stages' vote: each knows the shapes of its inputs.

    In torch they vote by sending numbers and reading them.
    """
    for stage in stages:
        stage._inference_mode = schedules.InferenceMode.STATIC


STEPS = 2
SIMULATED = ("single", "ddp", "fsdp")


def simulated(
    config: TrainConfig,
    workload: Workload,
    rank: int,
    world: int,
    stream: Described | None = None,
) -> Record:
    """Record every allocation of ``STEPS`` training steps of ``rank``, the model's own included.

    Args:
        stream: data found by the first pipeline stage's rank, for the others; see ``told``.

    Raises:
        TrainingError: the strategy's library touches memory, or cannot use so many
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
    with standing_for(rank, world) as ranks, receiving([] if stream is None else stream):
        strategy = strategies.kind(config)(config, workload, ranks)
        if config.strategy == "ddp" and config.split == 1:
            # DDP's reducer is not one of torch's operations; its buckets are the gradients, seen as
            # one.
            vars(strategy).update(wrap=lambda model: model, accumulating=nullcontext)
        fake = FakeTensorMode(allow_non_fake_inputs=True)
        run(strategy, config.micro_batches(world), storages, fake)
    return storages.record


def run(
    strategy: Strategy,
    micro_batches: int,
    storages: Storages,
    tensors: AbstractContextManager,
) -> None:
    """Prepare the strategy's model and run ``STEPS`` steps, with no numbers in any tensor.

    Args:
        tensors: entered around everything that allocates memory: FakeTensorMode, or nothing for
            real memory.
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
    """Return a micro-batch of ``size`` samples as the strategy takes it.

    Raises:
        TrainingError: the workload decodes samples, so their stored shape is not what it trains on.
    """
    workload = strategy.workload
    if hasattr(workload, "prepare"):
        raise TrainingError(
            "the workload prepares its samples (Workload.prepare), which needs their contents; "
            "simulate one whose samples are trained on as they are stored"
        )
    stored = {}
    for name, field in workload.packing.fields.items():
        if field.shape is None:
            raise TrainingError(
                f"the workload's field {name} is of any width, so its samples have no one shape; "
                "simulate a workload whose fields have one"
            )
        stored[name] = torch.zeros(size, *field.shape, dtype=getattr(torch, field.dtype))
    return dict(strategy.part(stored))


def _prepare(strategy: Strategy, counted: Callable[[], AbstractContextManager]) -> None:
    """Build the model on meta, split it as for a training, and allocate memory that is counted."""

    def filled(model: nn.Module) -> nn.Module:
        with counted():
            take_memory(model)
        return model

    # No value is written; float8 multiplies as a GPU does.
    vars(strategy).update(filled=filled, emulated=False)
    strategy.prepare(built(strategy.workload.model, strategy.config.seed))
    for micro in getattr(strategy.micro, "_each", {0: strategy.micro}).values():
        micro._unchecked = False  # random numbers cannot be compared


def _step(strategy: Strategy, batches: Sequence, number: int, storages: Storages) -> None:
    """Run a step in the same order as ``training.loop``."""
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
    """Give tensors on meta storages, which are counted.

    A fake tensor cannot be swapped into a parameter as ``fill_memory.fill`` does; a DTensor of one
    can.
    """
    fill_memory.replace(model, lambda one: _empty(one) if isinstance(one, DTensor) else one)
    made: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, one in module._parameters.items():
            if one is not None and one.is_meta and id(one) not in made:
                made[id(one)] = nn.Parameter(_empty(one), requires_grad=one.requires_grad)
            if one is not None and one.is_meta:
                module._parameters[name] = made[id(one)]
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.is_meta:
                module._buffers[name] = _empty(buffer)


def _empty(tensor: Tensor) -> Tensor:
    if isinstance(tensor, DTensor):
        return torch.empty_like(tensor, device="cpu")
    return torch.empty(tensor.shape, dtype=tensor.dtype)


@contextmanager
def standing_for(rank: int, world: int, per_node: int = 8) -> Iterator[Ranks]:
    """Context in which this process acts as ``rank`` of ``world``; no other process is needed.

    torch's ``fake`` backend answers each collective at once and leaves the tensors as they are.
    """
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        yield Ranks(rank, rank % per_node, world, torch.device("cpu"))
    finally:
        dist.destroy_process_group()


# A simulation runs on CPU tensors, because torch without CUDA has no backward pass of CUDA
# tensors. Attention (flash on both), matrix products and the fused optimizer keep the same tensors.


class FusedRmsNorm(torch.autograd.Function):
    """CUDA's ``aten::_fused_rms_norm``: keeps its input, its weight and one float32 per row.

    The CPU composes it of five operations, some in float32, and keeps what each needs.
    """

    @staticmethod
    def forward(context: Any, x: Tensor, shape: Sequence[int], weight: Tensor | None) -> Tensor:
        rows = x.shape[: x.dim() - len(shape)]
        context.save_for_backward(x, weight, torch.empty(rows, dtype=torch.float32))
        return torch.empty_like(x)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, _ = context.saved_tensors
        return torch.empty_like(x), None, None if weight is None else torch.empty_like(weight)


@contextmanager
def cuda_kernels(moved: Callable[[int], None] = lambda size: None) -> Iterator[None]:
    """Context in which operations keep the tensors that they keep on a CUDA device.

    Args:
        moved: called with the bytes that such an operation reads and writes, which torch does not
            see.
    """

    def rms_norm(
        x: Tensor, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
    ) -> Tensor:
        moved(2 * x.numel() * x.element_size())
        return FusedRmsNorm.apply(x, shape, weight)

    with patch.object(F, "rms_norm", rms_norm):
        yield
