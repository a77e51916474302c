"""Which training jobs are stopped before their end: by the median rule, or by Hyperband.

A curve is what a job has printed of the objective, one value a unit of resource. The median rule is
that of the developer guide, "Stop Training Jobs Early". Hyperband is asynchronous successive
halving that stops (ASHA, arXiv 1810.05934), with one bracket: at MinResource, and at each
``ETA``-fold of it, a job goes on while it is among the best ``1/ETA`` of those that got there.
"""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

ETA = 3
Curve = Sequence[float]


@dataclass(frozen=True, slots=True)
class Median:
    """TrainingJobEarlyStoppingType Auto."""

    minimize: bool

    def verdict(self, curve: Curve, at: int, others: Sequence[Curve]) -> str | None:
        """Why the job is stopped at its value number ``at``, from 1; None when it goes on.

        ``others``: the curves of the jobs that were started before it.
        """
        averages = [statistics.fmean(other[:at]) for other in others if len(other) >= at]
        if not averages:
            return None
        median = statistics.median(averages)
        if not _worse(curve[at - 1], median, self.minimize):
            return None
        return (
            f"early stopping: value {at} of the objective, {curve[at - 1]:g}, is worse than "
            f"{median:g}, the median of the earlier jobs' averages so far"
        )


@dataclass(frozen=True, slots=True)
class Hyperband:
    """HyperbandStrategyConfig."""

    minimize: bool
    least: int
    most: int

    def verdict(self, curve: Curve, at: int, others: Sequence[Curve]) -> str | None:
        """As :meth:`Median.verdict`; ``others`` are all other jobs' curves.

        At MaxResource a job is left to end by itself, so that it can save its model; it is stopped
        when it prints one value more.
        """
        if at > self.most:
            return f"Hyperband: it went on after MaxResource, {self.most} values of the objective"
        if at not in self.rungs():
            return None
        value = curve[at - 1]
        there = [other[at - 1] for other in others if len(other) >= at]
        better = sum(_worse(value, other, self.minimize) for other in there)
        places = max(1, (len(there) + 1) // ETA)
        if better < places:
            return None
        return (
            f"Hyperband: with {value:g} at {at} values of the objective it is number {better + 1} "
            f"of {len(there) + 1}, and the best {places} of them go on"
        )

    def rungs(self) -> list[int]:
        """The resources at which jobs are compared."""
        return list(_rungs(self.least, self.most))


Rule = Median | Hyperband


def _rungs(least: int, most: int) -> Iterator[int]:
    while least < most:
        yield least
        least *= ETA


def _worse(value: float, than: float, minimize: bool) -> bool:
    return value > than if minimize else value < than
