"""Expert parallel: each rank has some of the experts, and tokens travel to theirs and back.

GShard's way (Lepikhin et al. 2020, section 3.2), without a capacity: ranks tell each other how many
tokens come, then send just these. So the host has to know these numbers: it waits for the device
once a layer and forward pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import _functional_collectives as collectives
from torch.distributed.device_mesh import DeviceMesh


@dataclass(frozen=True)
class Sent:
    """Rows that have arrived at this rank, of all ranks."""

    rows: Tensor
    """Sorted by expert, (n, width)."""
    counts: Tensor
    """Rows of each of this rank's experts, int64."""
    order: Tensor
    """Number of each row as it arrived."""
    splits: tuple[Sequence[int], Sequence[int]]
    """Rows that went to each rank, and that came from it."""
    group: dist.ProcessGroup

    def back(self, rows: Tensor) -> Tensor:
        """What was made of ``rows``, to where they came from, in the order that they had there."""
        went, came = self.splits
        arrived = rows.index_select(0, self.order.argsort())
        return collectives.all_to_all_single_autograd(arrived, [*went], [*came], self.group)


class _Averaged(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, ranks: int) -> Tensor:
        ctx.ranks = ranks
        return weight.view_as(weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient / ctx.ranks, None


class Exchange:
    """Between the ranks of a one-dimensional mesh, each of which has equally many experts."""

    def __init__(self, mesh: DeviceMesh) -> None:
        self._group, self._ranks = mesh.get_group(), mesh.size()

    def averaged(self, weight: Tensor) -> Tensor:
        """A weight whose gradient, a sum over the tokens of all ranks, becomes the ranks' mean."""
        return _Averaged.apply(weight, self._ranks)

    def send(self, rows: Tensor, counts: Tensor) -> Sent:
        """Rows (n, width), sorted by expert, to the ranks of these; ``counts``: of each expert."""
        told = collectives.all_to_all_single(counts, None, None, self._group)
        going, coming = (one.unflatten(0, (self._ranks, -1)) for one in (counts, told))
        went, came = torch.stack([going.sum(1), coming.sum(1)]).tolist()
        arrived = collectives.all_to_all_single_autograd(rows, came, went, self._group)
        mine = torch.arange(coming.shape[1], device=rows.device).repeat(self._ranks)
        experts = mine.repeat_interleave(coming.flatten(), output_size=sum(came))
        order = experts.argsort(stable=True)
        sorted_ = arrived.index_select(0, order)
        return Sent(sorted_, coming.sum(0), order, (went, came), self._group)
