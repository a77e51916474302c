"""The numbers of the steps, kept on the device until the host reads them.

Reading a number means waiting until the device has done everything before it, and during this time
the device gets no new work. So a step leaves its loss, the gradient's norm and its units on the
device, and whether all of them are finite is decided there, too. If they are not, this step and all
later ones change nothing until the host reads it, which it does before anything is logged,
validated or saved.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from training.strategies.precision import REPORT_SIZE, LossScale
from training.strategies.ranks import Ranks
from trainyard.common.errors import TrainingError


@dataclass(frozen=True, slots=True)
class Step:
    """Numbers of the last step, or of the first one that was not finite.

    A unit is what the loss is averaged over, as ``Workload.units`` counts it.
    """

    number: int
    """Number of the step, from 1."""
    loss: float
    """Sum of the losses of all units in the global batch."""
    units: float
    norm: float
    """L2 norm of the gradient."""
    rank_losses: tuple[float, ...]
    """Each rank's part of ``loss``."""
    shares: tuple[int, ...]
    """Index (from 0) of the part of the global batch that each rank takes."""
    scale: float
    """Factor by which the loss was scaled; 0 without ``LossScale``."""
    left_out: bool
    """True if the step was skipped because its scaled gradient overflowed."""
    skipped_steps: int
    """Number of skipped steps of the training so far, including this one."""
    units_since: float
    """Units of all steps since the previous reading."""
    by_rank: tuple[tuple[float, ...], ...]
    """Numbers that each rank passed to ``read``."""

    def check(self, global_batch: int) -> None:
        """Check the step's numbers.

        Raises:
            TrainingError: a number is not finite, or there are no units; the message names the
                step, and the ranks with the positions of their samples.
        """
        if self.units == 0:
            raise TrainingError(
                f"step {self.number}: the {global_batch} samples of the global batch hold no unit "
                "that counts (padding only?); look at the shards with python -m steps.shard.inspect"
            )
        for value, quantity, rank_values in (
            (self.loss, "loss", self.rank_losses),
            (self.norm, "gradient norm", (self.norm,) * len(self.rank_losses)),
        ):
            if math.isfinite(value) or (quantity == "gradient norm" and self.left_out):
                continue
            nonfinite_ranks = [
                rank for rank, part in enumerate(rank_values) if not math.isfinite(part)
            ]
            rank_list = ", ".join(map(str, nonfinite_ranks)) or "(the sum)"
            hint = ""
            if self.scale:
                note = f" (the loss was scaled by {self.scale:g})"
                hint = f"; or set precision to float32: the largest float16 number is 65504{note}"
            raise TrainingError(
                f"{quantity} is {value} at step {self.number} on rank {rank_list}, in the samples "
                f"at positions {self._format_positions(nonfinite_ranks, global_batch)} of the "
                "order; nothing "
                "is "
                f"saved: lower learning_rate, or look at those samples{hint}"
            )

    def _format_positions(self, ranks: Sequence[int], global_batch: int) -> str:
        """Return the positions of the samples that these ranks took, as text; those of all ranks
        if ``ranks`` is empty.
        """
        first, size = (self.number - 1) * global_batch, global_batch // (max(self.shares) + 1)
        all_shares = {*self.shares}
        shares = {self.shares[rank] for rank in ranks} or all_shares
        if shares == all_shares:
            return f"{first} to {first + global_batch - 1}"
        begins = [first + share * size for share in sorted(shares)]
        return ", ".join(f"{begin} to {begin + size - 1}" for begin in begins)


class DeviceStepMetrics:
    """Accumulate the numbers of the steps on one rank's device.

    Attributes:
        finite: boolean, 0-dim, on the device: whether every step so far was finite, except those
            that ``LossScale`` skips. It is the same on all ranks because its inputs are.
    """

    def __init__(self, device: torch.device, share: int = 0) -> None:
        """Start without steps.

        Args:
            share: index (from 0) of this rank's part of the global batch.
        """
        self._share = share
        self.finite = torch.ones((), dtype=torch.bool, device=device)
        self._last = torch.zeros(5 + REPORT_SIZE, dtype=torch.float64, device=device)
        self._zero_report = torch.zeros(REPORT_SIZE, dtype=torch.float64, device=device)
        self._units = torch.zeros((), dtype=torch.float64, device=device)

    def add(
        self,
        number: int,
        loss: Tensor,
        units: Tensor,
        norm: Tensor,
        rank_loss: Tensor,
        scaling: LossScale | None = None,
    ) -> Tensor:
        """Add a step's numbers, each 0-dim; return whether the step may change the weights, 0-dim.

        It may if it and all earlier steps are finite, and its gradient has not overflowed. Losses
        are summed unscaled, so a loss that is not finite is not an overflow of the scaling.

        Args:
            rank_loss: this rank's part of ``loss``.
        """
        step = torch.full_like(loss, number)
        overflow = scaling.has_overflow(norm) if scaling else torch.zeros_like(self.finite)
        scale_report = scaling.report(overflow) if scaling else self._zero_report
        now = torch.cat([torch.stack([step, loss, units, norm.to(loss), rank_loss]), scale_report])
        # After the first step that is not finite, the numbers stay those of that step.
        self._last = torch.where(self.finite, now, self._last)
        is_valid = norm.isfinite().to(loss.device) | overflow
        self.finite = self.finite & loss.isfinite() & is_valid & (units > 0)
        self._units += units
        if scaling is None:
            return self.finite
        scaling.update(overflow)
        return self.finite & ~overflow

    def read(
        self, ranks: Ranks, numbers: Sequence[float] = (), measurements: Tensor | None = None
    ) -> Step:
        """Read the numbers in one copy from the device, and restart the sum of the units.

        Collective: call it on every rank.

        Args:
            numbers: further numbers that this rank sends to the others.
            measurements: (n,) float64 on the device, sent after ``numbers``.
        """
        extra_numbers = torch.tensor(numbers, dtype=torch.float64, device=self._last.device)
        more = [] if measurements is None else [measurements]
        since = torch.stack([self._units, torch.full_like(self._units, self._share)])
        row = torch.cat([self._last, since, extra_numbers, *more])
        # Each rank fills its own row of a table of zeros, so the sum over the ranks gathers all
        # rows.
        table = row.new_zeros(ranks.world, len(row))
        table[ranks.rank] = row
        rows = ranks.sum(table).tolist()
        self._units = torch.zeros_like(self._units)
        number, loss, units, norm, _, *scale_report, units_since = rows[ranks.rank][
            : 6 + REPORT_SIZE
        ]
        scale, left_out, skipped_steps = scale_report
        return Step(
            number=int(number),
            loss=loss,
            units=units,
            norm=norm,
            rank_losses=tuple(rank_row[4] for rank_row in rows),
            shares=tuple(int(rank_row[6 + REPORT_SIZE]) for rank_row in rows),
            scale=scale,
            left_out=bool(left_out),
            skipped_steps=int(skipped_steps),
            units_since=units_since,
            by_rank=tuple(tuple(rank_row[7 + REPORT_SIZE :]) for rank_row in rows),
        )
