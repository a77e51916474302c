"""Which rank this process is, and what the ranks tell each other."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from errors import TrainingError

LAUNCHERS = (
    ("RANK", "LOCAL_RANK", "WORLD_SIZE"),  # torchrun
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI
)
"""Environment variables of the launchers: rank, local rank, world size."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among those of the job."""

    rank: int
    local_rank: int
    world: int
    device: torch.device

    def sum(self, values: Tensor) -> Tensor:
        """Elementwise sum over all ranks, in place."""
        if self.world > 1:
            dist.all_reduce(values)
        return values

    def gather(self, value: Any) -> list[Any]:
        """What each rank gives, in the order of the ranks."""
        if self.world == 1:
            return [value]
        every: list[Any] = [None] * self.world
        dist.all_gather_object(every, value)
        return every

    def from_first(self, value: Any) -> Any:
        """Rank 0's value, on every rank."""
        if self.world == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]


def read_ranks(environment: Mapping[str, str] = os.environ) -> tuple[int, int, int]:
    """(rank, local rank, world size) as the launcher says; (0, 0, 1) without one.

    Raises:
        TrainingError: a launcher's variables are not all there.
    """
    for names in LAUNCHERS:
        if names[0] in environment:
            if missing := [name for name in names if name not in environment]:
                raise TrainingError(
                    f"{names[0]} is set, but {', '.join(missing)} is not: start the job with "
                    "torchrun or mpirun, which set all of them"
                )
            rank, local_rank, world = (int(environment[name]) for name in names)
            return rank, local_rank, world
    return 0, 0, 1


@contextmanager
def joined(timeout_seconds: int, backend: str | None = None) -> Iterator[Ranks]:
    """Join the process group that the launcher's environment describes; leave it at the end.

    A process that no launcher started is alone and needs no group.
    """
    rank, local_rank, world = read_ranks()
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(local_rank % torch.cuda.device_count())
    device = torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")
    ranks = Ranks(rank, local_rank, world, device)
    if world == 1 and "RANK" not in os.environ:
        yield ranks
        return
    dist.init_process_group(
        backend or ("cpu:gloo,cuda:nccl" if cuda else "gloo"),
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=timeout_seconds),
    )
    try:
        yield ranks
    finally:
        dist.destroy_process_group()
