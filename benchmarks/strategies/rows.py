"""Compare each layout's curves with one process's, and test for a bias beyond what seeds scatter.

Two trainings whose sums are rounded at other places drift apart, and what they have drifted by
stays in the steps that follow. So the steps of one training are hardly more than one observation,
and say nothing of bias however many they are: trainings of other seeds are the independent ones.
What is tested is that over seeds the expectation of a run's mean signed difference is nought.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from rich.table import Table
from scipy import stats

from benchmarks.strategies.cases import EVERY, JUDGED
from benchmarks.strategies.runs import CURVES, Found, distance, parted, steps

CHANCE = 0.05
"""Chance of calling any of the layouts biased when none is."""


@dataclass(frozen=True, slots=True)
class Bias:
    """Bias of a layout: its runs' mean signed relative differences, one a seed, and their verdict.

    Attributes:
        mean, error: over the seeds, with the standard error of that mean.
        low, high: 95 % interval of the expectation (Student's t).
        p: chance of a mean as far off nought when the expectation is nought, two-sided.
    """

    mean: float
    error: float
    low: float
    high: float
    p: float

    @property
    def cells(self) -> tuple[str, str]:
        """Interval and p-value."""
        return f"{self.low:+.1e} … {self.high:+.1e}", f"{self.p:.2g}"

    def __str__(self) -> str:
        return f"{self.mean:+.1e} ± {self.error:.1e}"


def signed(curve: Mapping[int, float], reference: Mapping[int, float]) -> float:
    """The mean signed relative difference of a run's losses from ``reference``, step by step."""
    return float(np.mean([curve[step] / reference[step] - 1 for step in sorted(reference)]))


def bias(means: Sequence[float]) -> Bias:
    """Return the bias of one mean for each seed, at least two."""
    if not any(means):  # the very same curves, which Student's t divides by
        return Bias(0.0, 0.0, 0.0, 0.0, 1.0)
    found = stats.ttest_1samp(means, 0.0)
    interval = found.confidence_interval(0.95)
    error = float(stats.sem(means))
    return Bias(float(np.mean(means)), error, interval.low, interval.high, float(found.pvalue))


def adjusted(chances: Sequence[float]) -> list[float]:
    """p-values of as many comparisons, adjusted for their number (Holm 1979).

    Holm's holds however the comparisons depend on each other; these share their reference.
    """
    from statsmodels.stats.multitest import multipletests  # a second of a processor

    return [float(p) for p in multipletests(chances, method="holm")[1]]


COLUMNS = ("strategy", "ranks", "largest", "validation", "mean, signed")
OF_SEEDS = ("95 %", "p", "adjusted", "first 10 steps")
EARLY = 10
"""Steps in which curves have hardly drifted apart: what rounds to one side shows there first."""


@dataclass(frozen=True, slots=True)
class Row:
    """A layout's largest relative differences over steps and seeds, and each seed's signed mean.

    Attributes:
        early: that mean of the first ``EARLY`` steps alone.
        until: the step up to which they are compared, of the seed where that is least: from then on
            one has made an update that the other has left out (float16). None where none has.
    """

    layout: str
    largest: float
    validation: float
    means: Sequence[float]
    early: Sequence[float] = ()
    until: int | None = None

    @classmethod
    def of(cls, layout: str, found: Sequence[Found], single: Sequence[Found]) -> "Row":
        """Of a layout's trainings, and those of one process from the same seeds in that order."""
        both = list(zip(found, single, strict=True))
        ends = [parted(*pair) for pair in both]
        # A validation comes after its step's update, the loss of a step before it.
        pairs = [
            [
                tuple(_until(one[key], end, after=after) for one in pair)
                for pair, end in zip(both, ends, strict=True)
            ]
            for key, after in zip(CURVES, (False, True), strict=True)
        ]
        losses, validation = (
            max(distance(*pair) if pair[0] else 0.0 for pair in each) for each in pairs
        )
        means = [signed(mine, one) for mine, one in pairs[0]]
        early = [signed(mine, {n: one[n] for n in sorted(one)[:EARLY]}) for mine, one in pairs[0]]
        until = min((end for end in ends if end is not None), default=None)
        return cls(layout, losses, validation, means, early, until)

    @property
    def worst(self) -> float:
        return max(self.largest, self.validation)

    @property
    def cells(self) -> tuple[str, ...]:
        """For the first columns; a single seed has no standard error."""
        mean = str(bias(self.means)) if len(self.means) > 1 else f"{self.means[0]:+.1e}"
        ranks = EVERY[self.layout][0]
        largest = f"{self.largest:.1e}" + (f" to step {self.until}" if self.until else "")
        return self.layout, str(ranks), largest, f"{self.validation:.1e}", mean


def _until(curve: Mapping[str, float], end: int | None, *, after: bool) -> dict[int, float]:
    """The steps of a curve that the updates before step ``end`` have shaped, or all of them."""
    return {n: loss for n, loss in steps(curve).items() if end is None or n + after <= end}


def table(rows: Sequence[Row]) -> Table:
    """One line a layout; of several seeds with what they show of a bias, each and all together.

    The last line is of the mean of all layouts, seed by seed: what they have in common against the
    one process.
    """
    one_seed = not rows or len(rows[0].means) == 1
    columns = COLUMNS if one_seed else COLUMNS + OF_SEEDS
    found = Table(*columns, box=None, pad_edge=False)
    chances = _chances(rows)
    for row in rows:
        shown = f"{chances[row.layout]:.2g}" if row.layout in chances else ""
        more = [] if one_seed else [*bias(row.means).cells, shown, str(bias(row.early))]
        found.add_row(*row.cells, *more)
    if chances:
        means = np.mean([row.means for row in rows if row.layout in chances], axis=0)
        every = bias(means.tolist())
        found.add_row("all layouts", "", "", "", str(every), *every.cells, "")
    return found


def biased(rows: Sequence[Row]) -> list[str]:
    """The layouts that lie to one side by more than chance; with a single seed none is known."""
    return [layout for layout, chance in _chances(rows).items() if chance < CHANCE]


def _chances(rows: Sequence[Row]) -> dict[str, float]:
    """Layout → p-value, adjusted for their number."""
    compared = [row for row in rows if row.layout in JUDGED and row.layout != "single"]
    if not compared or len(compared[0].means) == 1:
        return {}
    together = adjusted([bias(row.means).p for row in compared])
    return {row.layout: chance for row, chance in zip(compared, together, strict=True)}
