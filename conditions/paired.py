"""The challenger's improvement over the champion on the same examples, with its limits.

A metric is a ratio of sums, Σ sum / Σ weight, and the improvement Σ difference / Σ weight, where
``difference`` is how much better the challenger's sum is. Examples of one group (a document, a
user, a day) are not independent, groups are; so a group is what is resampled, and what counts as
one observation. Two limits are computed, and the more cautious one is taken:

- the bootstrap-t over groups (Efron & Tibshirani, An Introduction to the Bootstrap, 1993, chapter
  12; over clusters: Cameron, Gelbach & Miller, Review of Economics and Statistics 90, 2008), whose
  quantiles follow the skewness of the groups;
- Student's t with as many degrees of freedom as there are effective groups, less one.

Both use the jackknife over groups for the standard error, which does not shrink when some groups
are large (CV3: MacKinnon, Nielsen & Webb, Journal of Econometrics 232, 2023). Why not the
percentile bootstrap, and what each limit is worth with 20 groups, is what
``python -m benchmarks.gate`` simulates.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

RESAMPLES = 1999  # (RESAMPLES + 1) × α is whole for the usual α: the quantile is one of the values
SEED = 20261121
CELLS = 2**15  # resamples × groups at a time: what a core's cache holds

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Improvement:
    """How much better the challenger is: positive is better, in the metric's own unit."""

    value: float
    low: float
    """One-sided lower limit: with the chosen confidence the improvement is larger; may be -inf."""
    high: float
    """One-sided upper limit; may be inf."""
    standard_error: float
    effective_groups: float
    """(Σ weight)² / Σ weight² over groups (Kish): as many groups of equal weight tell as much."""

    def chance_below(self, bound: float) -> float:
        """One-sided p-value of "the improvement is at least ``bound``", by Student's t."""
        if self.standard_error == 0:
            return float(self.value >= bound)
        return float(stdtr(self.freedom, (self.value - bound) / self.standard_error))

    @property
    def freedom(self) -> float:
        """Degrees of freedom of its standard error."""
        return max(self.effective_groups - 1, 1.0)

    def detectable(self, power: float) -> float:
        """The smallest true improvement whose lower limit is above 0 with this power; may be inf.

        The limit's distance + t₁₋β × the standard error: Bloom, Evaluation Review 19, 1995, who has
        t₁₋α × the standard error for the distance.
        """
        reach = float(stdtrit(self.freedom, power) * self.standard_error)
        return self.value - self.low + reach


def improvement(
    difference: Floats, weight: Floats, confidence: float, *, resamples: int = RESAMPLES
) -> Improvement:
    """The improvement and its one-sided limits at ``confidence``.

    Args:
        difference, weight: (groups,) sums over each group; a group without weight does not count,
            and some group has weight.
        resamples: of the bootstrap; 0 for Student's t alone.

    The random numbers are always the same: the same scores give the same verdict.
    """
    difference, weight = difference[weight > 0], weight[weight > 0]
    share = weight / weight.sum()
    value = float(difference.sum() / weight.sum())
    residual = difference / weight.sum() - value * share
    error = _jackknife(residual, share)
    effective = float(1 / (share @ share))
    reach = stdtrit(max(effective - 1, 1.0), confidence)
    down, up = reach, reach
    if resamples and 0 < error < np.inf:
        lowest, highest = _quantiles(residual, share, confidence, resamples)
        down, up = max(reach, highest), max(reach, -lowest)
    return Improvement(
        value=value,
        low=float(value - down * error) if error else value,
        high=float(value + up * error) if error else value,
        standard_error=error,
        effective_groups=effective,
    )


def _jackknife(residual: Floats, share: Floats) -> float:
    """Standard error over the estimates that leave out one group each; inf for a single group.

    Without group g a ratio moves by -residual_g / (1 - share_g), exactly.
    """
    if np.any(share >= 1):
        return float("inf")
    moved = residual / (1 - share)
    return float(np.sqrt((len(share) - 1) / len(share) * (moved @ moved)))


def _quantiles(
    residual: Floats, share: Floats, confidence: float, resamples: int
) -> tuple[float, float]:
    """The studentised improvement's quantiles at 1 - confidence and at confidence; may be infinite.

    The sums that a resample needs are linear in how often it took each group: one product of
    matrices gives them all.
    """
    generator = np.random.default_rng(SEED)
    columns = np.stack([residual, share, residual**2, residual * share, share**2], axis=1)
    size = max(1, CELLS // len(share))
    taken = [min(size, resamples - done) for done in range(0, resamples, size)]
    sums = np.concatenate([_times_taken(generator, len(share), n) @ columns for n in taken])
    studentised = np.sort(_studentised(*sums.T, len(share)))
    last = len(studentised) - 1
    rank = min(last, int(np.ceil(confidence * (last + 2))) - 1)
    return float(studentised[last - rank]), float(studentised[rank])


def _times_taken(generator: np.random.Generator, groups: int, resamples: int) -> Floats:
    """(resamples, groups): how often each resample took each group, ``groups`` draws in all."""
    drawn = generator.integers(0, groups, size=(resamples, groups))
    drawn += np.arange(resamples)[:, None] * groups
    counts = np.bincount(drawn.ravel(), minlength=resamples * groups)
    return counts.reshape(resamples, groups).astype(np.float64)


def _studentised(
    residual: Floats, share: Floats, squares: Floats, products: Floats, shares: Floats, groups: int
) -> Floats:
    """Each resample's distance from the whole sample's improvement, over its standard error.

    Infinite where a resample moved but does not vary: too few groups differ to say how far off.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        moved = residual / share
        variance = squares - 2 * moved * products + moved**2 * shares
        error = np.sqrt(np.maximum(variance, 0) * groups / (groups - 1)) / share
        return np.where(moved == 0, 0.0, moved / error)
