"""The numbers of the steps, on the device until the host asks for them.

To read one is to wait until the device has done everything before it, and meanwhile nobody tells it
what comes next. So a step leaves its loss, the gradient's norm and its units there, and whether all
of that is finite is decided there, too: where it is not, this step and all after it change nothing,
until the host reads and says so. It does before anything is logged, validated or saved.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from training.strategies.ranks import Ranks
from trainyard.common.errors import TrainingError


@dataclass(frozen=True, slots=True)
class Step:
    """A step's numbers: the last one's, or those of the first that was not finite."""

    number: int
    """From 1."""
    loss: float
    """The sum over the units of the global batch."""
    units: float
    norm: float
    """Of the gradient, L2."""
    own: tuple[float, ...]
    """Each rank's part of ``loss``."""
    units_since: float
    """Of all steps since the reading before."""
    told: tuple[tuple[float, ...], ...]
    """What each rank gave to ``read``."""

    def check(self, global_batch: int) -> None:
        """Raises: TrainingError: a number is not finite, or no unit counts; names the step."""
        first = (self.number - 1) * global_batch
        if self.units == 0:
            raise TrainingError(
                f"step {self.number}: the {global_batch} samples of the global batch "
                "hold no unit that counts (padding only?); look at the shards with "
                "python -m steps.shard.inspect"
            )
        for value, what, own in (
            (self.loss, "loss", self.own),
            (self.norm, "gradient norm", (self.norm,) * len(self.own)),
        ):
            if math.isfinite(value):
                continue
            bad = ", ".join(str(rank) for rank, part in enumerate(own) if not math.isfinite(part))
            raise TrainingError(
                f"{what} is {value} at step {self.number} on rank {bad or '(the sum)'}, in the "
                f"samples at positions {first} to {first + global_batch - 1} of the order; "
                "nothing is saved: lower learning_rate, or look at those samples"
            )


class Numbers:
    """Keeps them for one rank.

    Attributes:
        finite: boolean, 0-dim, on the device: whether every step so far was. The same on all ranks,
            since all that it depends on is.
    """

    def __init__(self, device: torch.device) -> None:
        self.finite = torch.ones((), dtype=torch.bool, device=device)
        self._last = torch.zeros(5, dtype=torch.float64, device=device)
        self._units = torch.zeros((), dtype=torch.float64, device=device)

    def add(self, number: int, loss: Tensor, units: Tensor, norm: Tensor, own: Tensor) -> Tensor:
        """Those of a step, 0-dim; whether it, and all before it, may change anything."""
        step = torch.full_like(loss, number)
        now = torch.stack([step, loss, units, norm.to(loss), own])
        self._last = torch.where(self.finite, now, self._last)
        self.finite = self.finite & loss.isfinite() & norm.isfinite().to(loss.device) & (units > 0)
        self._units += units
        return self.finite

    def read(self, ranks: Ranks, told: Sequence[float] = ()) -> Step:
        """In one copy from the device; every rank takes part.

        Args:
            told: what this rank tells the others beside.
        """
        beside = torch.tensor(told, dtype=torch.float64, device=self._last.device)
        row = torch.cat([self._last, self._units[None], beside])
        table = row.new_zeros(ranks.world, len(row))
        table[ranks.rank] = row
        rows = ranks.sum(table).tolist()
        self._units = torch.zeros_like(self._units)
        number, loss, units, norm, _, since, *_ = rows[ranks.rank]
        own = tuple(one[4] for one in rows)
        return Step(int(number), loss, units, norm, own, since, tuple(tuple(r[6:]) for r in rows))
