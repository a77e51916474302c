"""Which rank keeps the others waiting: its own work in a step beside that of the others.

A step is as long as its slowest rank's, so the time of a step says nothing of who that is; what a
rank does before it waits for others does. Ranks are compared with those of the same pipeline stage,
which do the same work. What of a step is a rank's own is said in ``training.clock``: its data
always, its forward and backward pass where the ranks meet after it alone (ddp, smddp). Under fsdp,
tensor, context and pipeline parallelism they meet in each block, all passes take as long as the
slowest one's, and a slow device is not told apart here; a slow loader or host is.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low

from training.clock import PARTS
from training.watching.rules.stalled_rank import LINES, OF, RATIO

OWN = ("data", "forward_backward", "optimizer")
"""Parts of a step that are a rank's own work, see ``training.clock``. Before clipping all ranks
have met, so little of the optimizer's part is waiting; saving a checkpoint is not every step's."""

LOOK = {
    "data": "its loader is late: look at that machine's disk, network and cores, and at "
    "train.loop.loader_threads",
    "forward_backward": "its device or host is slow: look there at nvidia-smi -q -d "
    "PERFORMANCE,TEMPERATURE, and at other processes; take another instance if it stays so",
    "optimizer": "its host or device is slow: look there at other processes, and at cores and "
    "memory where weights are offloaded (cpu_offload)",
}
"""What to do, by the part that is slow."""

Table = Sequence[Sequence[float]]
"""Each rank's seconds of each of ``PARTS``, over the steps of a metric line."""


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank that keeps the others waiting."""

    rank: int
    ratio: float
    """Its own work's time, in the median's."""
    part: str
    """One of ``OWN``: that in which it loses most."""
    seconds: float
    """How much longer than the median its own work took, over the steps of the line."""


def own_seconds(table: Table) -> list[float]:
    """Seconds of each rank's own work."""
    return [sum(_own(row)) for row in table]


def ratios(table: Table, stages: int = 1) -> list[float]:
    """Each rank's own work over the median of the ranks of its pipeline stage.

    Of an even number the median is the lower of the two in the middle: so of two ranks the slower
    one is compared with the other, and half of the ranks can be slow.

    Args:
        stages: pipeline stages; the ranks of one follow each other (``training.strategies.mesh``).
    """
    own = own_seconds(table)
    middles = _medians(own, stages)
    return [one / middle if middle else 1.0 for one, middle in zip(own, middles, strict=True)]


def straggler(table: Table, rank: int, stages: int = 1) -> Straggler:
    """How this rank differs from its stage's median, and in what."""
    parts = list(zip(*map(_own, table), strict=True))
    more = [column[rank] - _medians(column, stages)[rank] for column in parts]
    own = own_seconds(table)
    late = own[rank] - _medians(own, stages)[rank]
    return Straggler(rank, ratios(table, stages)[rank], OWN[more.index(max(more))], late)


class Stragglers:
    """Remembers the last metric lines, and names a rank once when it is slow persistently."""

    def __init__(self, stages: int = 1) -> None:
        self._stages, self._named = stages, set[int]()
        self._slow: deque[set[int]] = deque(maxlen=OF)

    def add(self, table: Table) -> list[Straggler]:
        """Those that this line makes persistent. One that was named is named again only after
        ``OF`` lines in which it was not slow."""
        found = ratios(table, self._stages)
        self._slow.append({rank for rank, ratio in enumerate(found) if ratio >= RATIO})
        seen = set().union(*self._slow)
        late = {rank for rank in seen if sum(rank in line for line in self._slow) >= LINES}
        new = sorted(late - self._named)
        self._named = (self._named | late) & seen
        return [straggler(table, rank, self._stages) for rank in new]


def told(one: Straggler, host: str, steps: int) -> str:
    """The log's line.

    Args:
        steps: of the metric line that it is named with.
    """
    return (
        f"rank {one.rank} on {host} is slower than the others in {LINES} of the last {OF} metric "
        f"lines: its own work takes {one.ratio:.2f} times the median's, and they wait "
        f"{one.seconds / steps:.3g} s a step for it, most of all in its {one.part}: "
        f"{LOOK[one.part]}"
    )


def _own(row: Sequence[float]) -> list[float]:
    return [row[PARTS.index(part)] for part in OWN]


def _medians(values: Sequence[float], stages: int) -> list[float]:
    """Of each rank's stage; see ``ratios``."""
    size, found = len(values) // stages, list[float]()
    for first in range(0, len(values), size):
        found += [median_low(values[first : first + size])] * size
    return found
