"""Requests timed one by one, again where something else had the cores; without torch."""

from collections.abc import Callable
from dataclasses import dataclass

from training.cpu_cores import Waited

WARM, REQUESTS = 10, 100
ROUNDS, PATIENCE = 5, 30.0
"""A busy machine is measured again, up to so often and for so many seconds in all."""
BUSY = 0.2
"""Beyond this share of the wanted time without a core, and requests take 1 / (1 - 0.2) as long."""


@dataclass(frozen=True, slots=True)
class Round:
    """``seconds`` of each request; ``waited``: see ``training.cpu_cores.Waited.share_since``."""

    seconds: list[float]
    waited: float | None

    @property
    def busy(self) -> bool:
        """Return whether something else had the cores."""
        return self.waited is not None and self.waited > BUSY


def timed(seconds: Callable[[int], float], count: int) -> Round:
    """A round of ``count`` requests; ``seconds`` makes the one of that number."""
    before = Waited.now()
    taken = [seconds(number) for number in range(count)]
    after = Waited.now()
    return Round(taken, after.share_since(before) if before and after else None)


def quietest(measure: Callable[[], Round]) -> tuple[Round, int]:
    """The first round that is not busy, else the quietest; and how many there were."""
    best = measure()
    rounds, spent = 1, sum(best.seconds)
    while best.busy and rounds < ROUNDS and spent < PATIENCE:
        one = measure()
        rounds, spent = rounds + 1, spent + sum(one.seconds)
        best = min(best, one, key=lambda r: r.waited or 0.0)
    return best, rounds
