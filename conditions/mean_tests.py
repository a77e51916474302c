"""One-sided p-values of "the mean of these values is at most 0", of n independent values.

All ask how unlikely it is that the values balance at 0, give the same answer in any order, and
never a larger p-value when a value is raised:

- ``betting_p_value``, where a lower end of the values is known: exact for any distribution above it
  and any n. A bet of the share f of one's wealth on each value multiplies it by 1 + f·x. At a mean
  of at most 0 it is not expected to grow, so it exceeds 1/α with chance α at most (Markov). As the
  best bet is not known, the wealth is shared among several (Waudby-Smith & Ramdas, Estimating means
  of bounded random variables by betting, JRSS B 86, 2024; Orabona & Jun, Tight concentrations and
  confidence sequences from the regret of universal portfolio, IEEE Transactions on Information
  Theory 70, 2024).
- ``neyman_p_value`` and ``pearson_p_value``, where none is known: how far weights of the values
  have to move from 1/n until the mean is 0, by Neyman's and by Pearson's χ² (Owen, Empirical
  Likelihood, 2001; all such distances have one limit: Baggerly, Empirical likelihood as a
  goodness-of-fit measure, Biometrika 85, 1998). Approximate: right for many values. Neyman's is
  Student's t as long as no weight would be negative; there it stops at 0, so that a large gain does
  not hide the others (Duchi, Glynn & Namkoong, Statistics of robust optimization, Mathematics of
  Operations Research 46, 2021). Pearson's puts more weight on a few large losses.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import logsumexp, stdtr

Floats = NDArray[np.float64]


def betting_p_value(values: Floats, level: float, count: float | None = None) -> float:
    """Return the p-value of (n,) values of at least -1.

    Half of the wealth is in the bet that is best at ``level`` where values spread as far as they
    may, √(2 log(1/level) / n) (Waudby-Smith & Ramdas, section 3); a quarter in twice that bet, and
    so on; what is left in the bet of everything.

    Args:
        level: the level for which the bets are chosen; the p-value holds at any level.
        count: number of values as large as the largest can be; default: n.
    """
    shares, weights = _bets(level, len(values) if count is None else count)
    with np.errstate(divide="ignore"):  # a bet of everything on a value of -1 is lost
        growth = np.log1p(np.maximum(np.outer(shares, values), -1)).sum(axis=1)
    return float(np.exp(min(0.0, -logsumexp(growth, b=weights))))


def _bets(level: float, count: float) -> tuple[Floats, Floats]:
    """Return (bets,) shares of the wealth that are bet, and what part of the wealth bets them."""
    first = np.sqrt(2 * np.log(1 / level) / count)
    doublings = max(0, int(np.ceil(-np.log2(first))))
    shares = np.minimum(1.0, first * np.exp2(np.arange(doublings + 1.0)))
    weights: Floats = np.exp2(-np.arange(1.0, doublings + 2))
    # The bet of everything has what is left, so that the weights add up to 1.
    weights[-1] *= 2
    return shares, weights


def approximate_p_value(values: Floats) -> float:
    """Return the larger of ``neyman_p_value`` and ``pearson_p_value``."""
    return max(neyman_p_value(values), pearson_p_value(values))


def neyman_p_value(values: Floats) -> float:
    """Return the p-value of (n,) values by Student's t, where gains above a limit count as it.

    The limit, Σx² / Σx of the values below it, is the one that makes t largest.
    """
    count = len(values)
    if count < 2 or float(values.sum()) <= 0:
        return 1.0
    # Divided by the largest: the squares of very small values would have no digits.
    sorted_values = np.sort(values) / float(np.abs(values).max())
    sums, squares = np.cumsum(sorted_values), np.cumsum(sorted_values**2)
    kept_count = count
    while (
        kept_count > 1
        and sums[kept_count - 1] > 0
        and squares[kept_count - 1] < sorted_values[kept_count - 1] * sums[kept_count - 1]
    ):
        kept_count -= 1  # the largest of those that count is above the limit of the others
    limit = (
        squares[kept_count - 1] / sums[kept_count - 1]
        if kept_count < count and sums[kept_count - 1] > 0
        else 0.0
    )
    limited_values = np.minimum(sorted_values, limit) if limit > 0 else sorted_values
    error = float(limited_values.std(ddof=1)) / np.sqrt(count)
    if error <= 1e-12 * float(np.abs(limited_values).max()):
        return 0.0  # equal values above 0, but for rounding
    return float(stdtr(count - 1, -limited_values.mean() / error))


def pearson_p_value(values: Floats) -> float:
    """Return the p-value of (n,) values by Pearson's χ² of the weights, taken for Student's t².

    The weights are proportional to (1 + λx)^-½ with the λ at which the mean is 0.
    """
    count, least = len(values), float(values.min(initial=np.inf))
    if count < 2 or float(values.sum()) <= 0:
        return 1.0
    if least >= 0:
        return 0.0  # no weights balance the values at 0
    scaled_values = values / -least

    def weighted_sum(tilt: float) -> float:
        return float((scaled_values / np.sqrt(1 + tilt * scaled_values)).sum())

    if weighted_sum(0.0) <= 0:  # by rounding
        return 1.0
    # At 1 the weight of the smallest value would be infinite.
    most = 1 - 1e-12
    tilt = brentq(weighted_sum, 0.0, most, xtol=1e-13) if weighted_sum(most) < 0 else most
    roots = np.sqrt(1 + tilt * scaled_values)
    distance = float(roots.sum() * (1 / roots).sum()) - count**2
    return float(stdtr(count - 1, -np.sqrt(max(distance, 0.0) / count)))
