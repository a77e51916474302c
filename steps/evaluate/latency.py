"""Time requests one by one, again if other processes had the cores; without torch.

Apart: a script's evaluation has no torch.
"""

from collections.abc import Callable
from dataclasses import dataclass

from training.cpu_cores import ThreadTimes

WARM, REQUESTS = 10, 100
ROUNDS, PATIENCE = 5, 30.0
"""Limits of repeated measurements on a busy machine: rounds, and seconds in all."""
BUSY = 0.2
"""Share of the wanted time without a core above which a round is busy; requests take 1 / (1 - 0.2)
as long then."""


@dataclass(frozen=True, slots=True)
class Round:
    """One round: ``seconds`` of each request; ``waited_share``: see
    ``training.cpu_cores.ThreadTimes.share_since``.
    """

    seconds: list[float]
    waited_share: float | None

    @property
    def busy(self) -> bool:
        """Return whether other processes had the cores."""
        return self.waited_share is not None and self.waited_share > BUSY


def time_round(seconds: Callable[[int], float], count: int) -> Round:
    """Time a round of ``count`` requests; ``seconds`` runs the request of that number."""
    before = ThreadTimes.now()
    durations = [seconds(number) for number in range(count)]
    after = ThreadTimes.now()
    return Round(durations, after.share_since(before) if before and after else None)


def quietest(measure: Callable[[], Round]) -> tuple[Round, int]:
    """Return the first round that is not busy, else the quietest; and the number of rounds."""
    best = measure()
    rounds, total_seconds = 1, sum(best.seconds)
    while best.busy and rounds < ROUNDS and total_seconds < PATIENCE:
        candidate = measure()
        rounds, total_seconds = rounds + 1, total_seconds + sum(candidate.seconds)
        best = min(best, candidate, key=lambda r: r.waited_share or 0.0)
    return best, rounds
