"""Pipeline schedules by name, and what they take. No torch here: a recipe is checked without it.

The schedules are torch's (torch.distributed.pipelining.schedules); a name without underscores is
torch's own, whose case does not count.
"""

from collections.abc import Sequence
from dataclasses import dataclass

OLDEST_TORCH = "2.8.0"
"""The oldest torch under which the training's tests pass (make test-torch). Under 2.6 FSDP2,
context and pipeline parallelism fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleEntry:
    """How a schedule shares stages and micro-batches."""

    least_torch: str = OLDEST_TORCH
    """The least torch that it needs."""

    fewest: int = 1
    """Stages on a rank."""

    usual: int = 1
    """Stages on a rank where the recipe does not say it."""

    most: int | None = None
    """Stages on a rank; None: any number."""

    folded: bool = False
    """A rank's second stage is as far from the end as its first is from the beginning (a V); else
    its stages are as many apart as there are ranks (a loop)."""

    rounds: bool = False
    """Micro-batches go in rounds of as many as there are ranks, or some more; all rounds alike."""

    whole: bool = False
    """As many micro-batches as stages are needed, and not only as ranks."""

    halves: bool = False
    """The backward pass of the inputs and that of the weights are two (zero bubble)."""

    def indices(self, rank: int, ranks: int, stages: int) -> Sequence[int]:
        """The stages of pipeline rank ``rank`` of ``ranks``, of ``stages`` in all, in order."""
        if self.folded:
            return (rank, stages - 1 - rank)
        return range(rank, stages, ranks)

    def refuse(self, micro_batches: int, ranks: int, stages: int) -> str | None:
        """Why so many micro-batches cannot be shared, with the arithmetic; None where they can."""
        needed = stages if self.whole else ranks
        if micro_batches < needed:
            what = "stages" if needed == stages else "ranks"
            return f"{needed} {what} need as many micro-batches to be busy"
        rounds = micro_batches // ranks
        if self.rounds and micro_batches % rounds:
            better = micro_batches // ranks * ranks
            return (
                f"{micro_batches} micro-batches make {micro_batches} / {ranks} = {rounds} rounds, "
                f"which are not of equally many; {better} or {better + ranks} would do"
            )
        return None


SCHEDULES = {
    "1f1b": ScheduleEntry(most=1),
    "gpipe": ScheduleEntry(most=1),
    "interleaved_1f1b": ScheduleEntry(usual=2, rounds=True),
    "looped_bfs": ScheduleEntry(usual=2),
    "interleaved_zero_bubble": ScheduleEntry(usual=2, rounds=True, halves=True),
    # torch before 2.10 lets a rank send to itself where the V folds, which gloo and NCCL refuse.
    "zbv_zero_bubble": ScheduleEntry(
        least_torch="2.10.0", fewest=2, usual=2, most=2, folded=True, halves=True
    ),
    "dual_pipe_v": ScheduleEntry(
        least_torch="2.10.0", fewest=2, usual=2, most=2, folded=True, whole=True, halves=True
    ),
}
