"""How much better the challenger is than the champion on the same examples, with limits.

A metric is a ratio of sums, Σ sum / Σ weight, and the improvement is Σ difference / Σ weight, where
``difference`` is how much better the challenger's sum is. Examples of one group (a document, a
user, a day) are not independent of each other, but groups are. So a group is one observation. The
improvement exceeds a bound b if the mean of difference - b × weight over the groups is above 0. The
tests of ``conditions.mean_tests`` give the p-value of this, and a limit is the bound at which the
p-value is 1 - confidence. If the largest possible difference of a group is known, the exact test is
used.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import brentq

from conditions.mean_tests import Floats, compute_approximate_p_value, compute_betting_p_value

Method = Literal["betting", "approximate"]
"""The test that was used. ``betting`` holds for any distribution within the range; ``approximate``
holds for many groups if none of them is rare and large (docs/gate.md)."""

BLOCKS = 16
"""Ordered groups, such as days, are joined to this many blocks of neighbours, which are treated as
independent: Ibragimov & Müller, t-statistic based correlation and heterogeneity robust inference,
Journal of Business & Economic Statistics 28, 2010, who try up to 16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Improvement:
    """How much better the challenger is, in the metric's own unit. Positive is better."""

    value: float
    low: float
    """One-sided lower limit at the chosen confidence. It may be -inf."""
    high: float
    """One-sided upper limit at the chosen confidence. It may be inf."""
    effective_groups: float
    """(Σ weight)² / Σ weight² over groups (Kish): the equivalent number of equal groups."""
    method: Method


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The two models' sums over independent groups, each with a weight above 0.

    Args:
        difference, weight: (groups,) how much better the challenger's sum is, and the group's
            weight.
        largest: largest possible difference per unit of weight, or None if it is unknown.
        level: significance level for which the bets of the exact test are chosen.
    """

    difference: Floats
    weight: Floats
    largest: float | None
    level: float

    @property
    def value(self) -> float:
        """Return the improvement: Σ difference / Σ weight."""
        return float(self.difference.sum() / self.weight.sum())

    def compute_p_at_most(self, bound: float) -> float:
        """Return the p-value of "the improvement is at most ``bound``"."""
        return self._compute_p_value(self.difference - bound * self.weight, bound)

    def compute_p_at_least(self, bound: float) -> float:
        """Return the p-value of "the improvement is at least ``bound``"."""
        return self._compute_p_value(bound * self.weight - self.difference, -bound)

    def _compute_p_value(self, values: Floats, bound: float) -> float:
        """Return the p-value of "the mean of ``values`` is at most 0".

        A value is at least -(largest + bound) × its weight, so with the largest weight this bounds
        all values. A bet must not depend on a group's own weight, because the weight may be
        correlated with the difference.
        """
        if self.largest is None:
            return compute_approximate_p_value(values)
        max_loss = self.largest + bound
        if max_loss <= 0:  # no value can be below 0
            return 0.0
        heaviest = float(self.weight.max())
        count = float(self.weight.sum()) / heaviest
        return compute_betting_p_value(values / (max_loss * heaviest), self.level, count)


def estimate_improvement(groups: Groups, confidence: float) -> Improvement:
    """Return the improvement and its one-sided limits at ``confidence``."""
    below, above = groups.compute_p_at_most, groups.compute_p_at_least
    scale = float(np.abs(groups.difference / groups.weight).max()) or 1.0
    return Improvement(
        value=groups.value,
        low=_find_limit(below, groups.value, -scale, 1 - confidence),
        high=_find_limit(above, groups.value, scale, 1 - confidence),
        effective_groups=count_effective_groups(groups.weight),
        method="approximate" if groups.largest is None else "betting",
    )


def _find_limit(
    p_value: Callable[[float], float], value: float, step: float, level: float
) -> float:
    """Return the bound beyond ``value`` at which the p-value is ``level``.

    The sign of ``step`` says on which side of ``value`` to search. Return ±inf if there is none.
    """
    if p_value(value + 1e-9 * step) <= level:
        return value  # the ratio is the same for every group
    near, far = value, value + step
    # A limit beyond 60 doublings is treated as infinite.
    for _ in range(60):
        if p_value(far) <= level:
            return float(brentq(lambda bound: p_value(bound) - level, near, far, xtol=1e-12))
        near, far = far, value + 2 * (far - value)
    return float(np.copysign(np.inf, step))


def count_effective_groups(weight: Floats) -> float:
    """Return (Σ weight)² / Σ weight² (Kish): exactly G for G equal weights; 0 without weight."""
    if not weight.any():
        return 0.0
    # Scaled so that equal weights become exactly 1, and count as exactly their number.
    weight = weight / weight.max()
    return float(weight.sum() ** 2 / (weight @ weight))


def sum_into_blocks(difference: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Return the sums over at most ``BLOCKS`` blocks of equally many (± 1) consecutive groups."""
    count = len(weight)
    starts = np.unique(np.arange(min(BLOCKS, count)) * count // min(BLOCKS, count))
    return np.add.reduceat(difference, starts), np.add.reduceat(weight, starts)
