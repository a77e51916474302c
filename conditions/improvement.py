"""How much better the challenger is than the champion on the same examples, with limits.

A metric is a ratio of sums, Σ sum / Σ weight, and the improvement Σ difference / Σ weight, where
``difference`` is how much better the challenger's sum is. Examples of one group (a document, a
user, a day) are not independent, groups are: a group is one observation. That the improvement
exceeds a bound b is a statement about a mean, that of difference - b × weight over the groups; the
tests of ``conditions.mean_tests`` give its p-value, and a limit is the bound at which that is
1 - confidence. Where the difference of a group has a known largest size, the test is the exact one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import brentq

from conditions.mean_tests import Floats, approximate_p_value, betting_p_value

Method = Literal["betting", "approximate"]
"""Test that judged: ``betting`` holds for any distribution within the range, ``approximate`` for
many groups none of which is rare and large (docs/gate.md)."""

BLOCKS = 16
"""Ordered groups, such as days, are joined to this many runs of neighbours, which count as
independent: Ibragimov & Müller, t-statistic based correlation and heterogeneity robust inference,
Journal of Business & Economic Statistics 28, 2010, who try up to 16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Improvement:
    """How much better the challenger is: positive is better, in the metric's own unit."""

    value: float
    low: float
    """One-sided lower limit, below the improvement with the chosen confidence; may be -inf."""
    high: float
    """One-sided upper limit; may be inf."""
    effective_groups: float
    """(Σ weight)² / Σ weight² over groups (Kish): as informative as so many equal groups."""
    method: Method


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The two models' sums over independent groups, each with a weight above 0.

    Args:
        difference, weight: (groups,)
        largest: largest size of a difference per unit of weight; None where none is known.
        level: significance for which bets are chosen.
    """

    difference: Floats
    weight: Floats
    largest: float | None
    level: float

    @property
    def value(self) -> float:
        return float(self.difference.sum() / self.weight.sum())

    def chance_not_above(self, bound: float) -> float:
        """Return the p-value of "the improvement is at most ``bound``"."""
        return self._p_value(self.difference - bound * self.weight, bound)

    def chance_not_below(self, bound: float) -> float:
        """Return the p-value of "the improvement is at least ``bound``"."""
        return self._p_value(bound * self.weight - self.difference, -bound)

    def _p_value(self, values: Floats, bound: float) -> float:
        """Return the p-value of "their mean is at most 0".

        A value is at least -(largest + bound) × its weight, so the largest weight bounds them all.
        The bets may not depend on a group's own weight, which may go with its difference.
        """
        if self.largest is None:
            return approximate_p_value(values)
        least = self.largest + bound
        if least <= 0:  # nothing is that small
            return 0.0
        heaviest = float(self.weight.max())
        count = float(self.weight.sum()) / heaviest
        return betting_p_value(values / (least * heaviest), self.level, count)


def improvement(groups: Groups, confidence: float) -> Improvement:
    """Return the improvement and its one-sided limits at ``confidence``."""
    below, above = groups.chance_not_above, groups.chance_not_below
    scale = float(np.abs(groups.difference / groups.weight).max()) or 1.0
    return Improvement(
        value=groups.value,
        low=_limit(below, groups.value, -scale, 1 - confidence),
        high=_limit(above, groups.value, scale, 1 - confidence),
        effective_groups=effective_groups(groups.weight),
        method="approximate" if groups.largest is None else "betting",
    )


def _limit(chance: Callable[[float], float], value: float, step: float, level: float) -> float:
    """Return the bound beyond ``value``, on the side of ``step``, whose p-value is ``level``."""
    if chance(value + 1e-9 * step) <= level:
        return value  # every group says the same
    near, far = value, value + step
    # After 60 doublings a limit is not told apart from infinity.
    for _ in range(60):
        if chance(far) <= level:
            return float(brentq(lambda bound: chance(bound) - level, near, far, xtol=1e-12))
        near, far = far, value + 2 * (far - value)
    return float(np.copysign(np.inf, step))


def effective_groups(weight: Floats) -> float:
    """Return (Σ weight)² / Σ weight² (Kish): exactly G for G equal weights; 0 without weight."""
    if not weight.any():
        return 0.0
    # Equal weights become 1 each, so that they count as exactly their number.
    weight = weight / weight.max()
    return float(weight.sum() ** 2 / (weight @ weight))


def joined_neighbours(difference: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Return (difference, weight) of ``BLOCKS`` runs of ordered groups, of equally many groups."""
    count = len(weight)
    starts = np.unique(np.arange(min(BLOCKS, count)) * count // min(BLOCKS, count))
    return np.add.reduceat(difference, starts), np.add.reduceat(weight, starts)
