"""Units of resource until a job that ran to its end is one of the table's best 1 %.

The tables have no curves, so they are made: a configuration's loss after e of EPOCHS epochs is its
mean in the table, plus a gap that shrinks as a power of e, plus noise. Gap and power differ from
one configuration to the next, so curves cross. WORKERS jobs run at a time, one epoch a tick.
"""

import random
from dataclasses import dataclass, field
from functools import partial

from benchmarks.tuning.tables import Table
from trainyard.emulator.tuning.objective_curves import Hyperband, Median, Rule
from trainyard.emulator.tuning.search_space import sample

EPOCHS, WORKERS, SHARE = 27, 4, 0.01
NOISE = 0.02
"""Of an emission, as a share of the distance from the table's best to its median."""
MOST = 100_000  # units of resource after which a search is given up
RULES: dict[str, Rule | None] = {
    "Random": None,
    "Random, Auto": Median(minimize=True),
    "Hyperband": Hyperband(minimize=True, least=1, most=EPOCHS),
}
"""Strategy and TrainingJobEarlyStoppingType → the rule that stops jobs."""


@dataclass
class _Job:
    key: tuple[int, ...]
    curve: list[float] = field(default_factory=list)
    ended: bool = False


def emission(table: Table, key: tuple[int, ...], epoch: int, chance: random.Random) -> float:
    """The loss that a job prints after that epoch."""
    shape = random.Random(f"{table.name}/{key}")
    gap, power = shape.uniform(0.5, 3.0) * table.span, shape.uniform(0.4, 1.5)
    left = epoch**-power - EPOCHS**-power
    return table.means[key] + gap * left + chance.gauss(0.0, NOISE * table.span)


def units(table: Table, rule: Rule | None, seed: int) -> int:
    """How many epochs all jobs trained until one of the best 1 % came to its end."""
    chance = random.Random(f"{table.name}/{seed}")
    good = table.sorted_means[int(SHARE * len(table.sorted_means))]
    jobs: list[_Job] = []
    spent = 0
    while spent < MOST:
        running = [job for job in jobs[-10 * WORKERS :] if not job.ended]
        for _ in range(WORKERS - len(running)):
            jobs.append(_Job(table.key(sample(table.space, chance))))
            running.append(jobs[-1])
        for job in running:
            spent += 1
            job.curve.append(emission(table, job.key, len(job.curve) + 1, chance))
            job.ended = len(job.curve) == EPOCHS
            if job.ended and table.means[job.key] <= good:
                return spent
            job.ended |= _stopped(job, jobs, rule)
    return spent


def _stopped(job: _Job, jobs: list[_Job], rule: Rule | None) -> bool:
    if rule is None:
        return False
    if isinstance(rule, Median):
        others = jobs[: next(n for n, other in enumerate(jobs) if other is job)]
    else:
        others = [other for other in jobs if other is not job]
    ask = partial(rule.verdict, job.curve, len(job.curve))
    return ask([other.curve for other in others]) is not None
