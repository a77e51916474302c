"""How ranks share a step: one process, or data parallel (DDP). The curve is the same in both."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from errors import TrainingError


class Strategy(Protocol):
    """What the loop asks of a strategy."""

    rank: int
    world: int
    device: torch.device

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model as the strategy trains it; every rank has the same weights afterwards."""

    def accumulating(self, model: nn.Module) -> Any:
        """A context for backward passes whose gradients need not be shared yet."""

    def sum(self, values: Tensor) -> Tensor:
        """Elementwise sum over all ranks."""

    def gather(self, value: float) -> list[float]:
        """One number of each rank, in the order of the ranks."""

    def from_first(self, value: Any) -> Any:
        """Rank 0's value, on every rank."""


class Single:
    """One process."""

    rank, world = 0, 1

    def __init__(self) -> None:
        self.device = _device()

    def wrap(self, model: nn.Module) -> nn.Module:
        return model

    def accumulating(self, model: nn.Module) -> Any:
        return nullcontext()

    def sum(self, values: Tensor) -> Tensor:
        return values

    def gather(self, value: float) -> list[float]:
        return [value]

    def from_first(self, value: Any) -> Any:
        return value


class Ddp:
    """Replicated weights; gradients are averaged over the ranks while backward runs."""

    def __init__(self) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.device = _device()

    def wrap(self, model: nn.Module) -> nn.Module:
        devices = [self.device.index] if self.device.type == "cuda" else None
        return DistributedDataParallel(model, device_ids=devices)

    def accumulating(self, model: nn.Module) -> Any:
        return model.no_sync()

    def sum(self, values: Tensor) -> Tensor:
        dist.all_reduce(values)
        return values

    def gather(self, value: float) -> list[float]:
        mine = torch.tensor([value], dtype=torch.float64, device=self.device)
        every = [torch.empty_like(mine) for _ in range(self.world)]
        dist.all_gather(every, mine)
        return [float(one) for one in every]

    def from_first(self, value: Any) -> Any:
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]


@contextmanager
def started(name: str, timeout_seconds: int) -> Iterator[Strategy]:
    """Join the process group that torchrun's environment describes, and leave it at the end.

    Raises:
        TrainingError: ``single`` in a job of several ranks, or ``ddp`` outside torchrun.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if name == "single":
        if world > 1:
            raise TrainingError(
                f"strategy single cannot use {world} ranks; set train.loop.strategy to ddp, or "
                "train.instance_count and train.processes_per_node to 1"
            )
        yield Single()
        return
    if "RANK" not in os.environ:
        raise TrainingError("strategy ddp needs torchrun's environment (RANK, WORLD_SIZE, …)")
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    timeout = timedelta(seconds=timeout_seconds)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timeout)
    try:
        yield Ddp()
    finally:
        dist.destroy_process_group()


def _device() -> torch.device:
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
