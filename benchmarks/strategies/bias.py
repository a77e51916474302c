"""Whether a layout's curves lie above or below one process's, beyond what seeds scatter.

Two trainings whose sums are rounded at other places drift apart, and what they have drifted by
stays in the steps that follow. So the steps of one training are hardly more than one observation,
and say nothing of bias however many they are: trainings of other seeds are the independent ones.
What is tested is that over seeds the expectation of a run's mean signed difference is nought.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

CHANCE = 0.05
"""Of calling any of the layouts biased when none is."""


@dataclass(frozen=True, slots=True)
class Bias:
    """Of a layout: its runs' mean signed relative differences, one a seed, and what they show.

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
    """Of one mean for each seed, at least two of them."""
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
