"""One-sided p-values of "the mean of these values is at most 0", for n independent values.

All tests measure how unlikely it is that the values balance at 0. They give the same result in any
order, and never a larger p-value if a value is raised:

- ``compute_betting_p_value`` is for values with a known lower end. It is exact for any distribution
above
  that end and any n. Betting the share f of one's wealth on each value multiplies the wealth by
  1 + f·x. If the mean is at most 0, the wealth is not expected to grow, so it exceeds 1/α with
  chance α at most (Markov). As the best bet is not known, the wealth is divided among several
  (Waudby-Smith & Ramdas, Estimating means of bounded random variables by betting, JRSS B 86, 2024;
  Orabona & Jun, Tight concentrations and confidence sequences from the regret of universal
  portfolio, IEEE Transactions on Information Theory 70, 2024).
- ``compute_neyman_p_value`` and ``compute_pearson_p_value`` are for values without a known lower
end. They measure
  how far weights of the values have to move from 1/n until the mean is 0, by Neyman's and by
  Pearson's χ² (Owen, Empirical Likelihood, 2001; all such distances have the same limit: Baggerly,
  Empirical likelihood as a goodness-of-fit measure, Biometrika 85, 1998). They are approximate:
  right for many values. Neyman's is Student's t as long as no weight would be negative; such a
  weight is set to 0, so that one large gain does not hide the others (Duchi, Glynn & Namkoong,
  Statistics of robust optimization, Mathematics of Operations Research 46, 2021). Pearson's gives
  more weight to a few large losses.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import logsumexp, stdtr

Floats = NDArray[np.float64]


def compute_betting_p_value(values: Floats, level: float, count: float | None = None) -> float:
    """Return the p-value of "the mean is at most 0" for (n,) values that are at least -1.

    Half of the wealth is in the bet that is best at ``level`` if the values spread as widely as
    they can, √(2 log(1/level) / n) (Waudby-Smith & Ramdas, section 3). A quarter is in twice that
    bet, and so on. The rest is in the bet of everything.

    Args:
        level: level for which the bets are chosen. The p-value holds at any level.
        count: number of values, if all were as large as the largest can be. Default: n.
    """
    shares, weights = _choose_bets(level, len(values) if count is None else count)
    with np.errstate(divide="ignore"):  # betting everything on a value of -1 loses everything
        growth = np.log1p(np.maximum(np.outer(shares, values), -1)).sum(axis=1)
    return float(np.exp(min(0.0, -logsumexp(growth, b=weights))))


def _choose_bets(level: float, count: float) -> tuple[Floats, Floats]:
    """Return the bets as shares of the wealth, and the part of the wealth in each; (bets,) each."""
    first = np.sqrt(2 * np.log(1 / level) / count)
    doublings = max(0, int(np.ceil(-np.log2(first))))
    shares = np.minimum(1.0, first * np.exp2(np.arange(doublings + 1.0)))
    weights: Floats = np.exp2(-np.arange(1.0, doublings + 2))
    # The bet of everything gets the rest, so that the weights add up to 1.
    weights[-1] *= 2
    return shares, weights


def compute_approximate_p_value(values: Floats) -> float:
    """Return the larger of ``compute_neyman_p_value`` and ``compute_pearson_p_value``."""
    return max(compute_neyman_p_value(values), compute_pearson_p_value(values))


def compute_neyman_p_value(values: Floats) -> float:
    """Return the p-value of (n,) values by Student's t, with gains above a limit reduced to it.

    The limit is the one that makes t largest: Σx² / Σx of the values below it.
    """
    count = len(values)
    if count < 2 or float(values.sum()) <= 0:
        return 1.0
    # Divide by the largest value, because the squares of very small values would underflow.
    sorted_values = np.sort(values) / float(np.abs(values).max())
    sums, squares = np.cumsum(sorted_values), np.cumsum(sorted_values**2)
    kept_count = count
    while (
        kept_count > 1
        and sums[kept_count - 1] > 0
        and squares[kept_count - 1] < sorted_values[kept_count - 1] * sums[kept_count - 1]
    ):
        kept_count -= 1  # the largest remaining value is above the limit of the others
    limit = (
        squares[kept_count - 1] / sums[kept_count - 1]
        if kept_count < count and sums[kept_count - 1] > 0
        else 0.0
    )
    limited_values = np.minimum(sorted_values, limit) if limit > 0 else sorted_values
    error = float(limited_values.std(ddof=1)) / np.sqrt(count)
    if error <= 1e-12 * float(np.abs(limited_values).max()):
        return 0.0  # the values are equal, up to rounding, and above 0
    return float(stdtr(count - 1, -limited_values.mean() / error))


def compute_pearson_p_value(values: Floats) -> float:
    """Return the p-value of (n,) values by Pearson's χ² of the weights, used as Student's t².

    The weights are proportional to (1 + λx)^-½, with the λ at which the mean is 0.
    """
    count, minimum = len(values), float(values.min(initial=np.inf))
    if count < 2 or float(values.sum()) <= 0:
        return 1.0
    if minimum >= 0:
        return 0.0  # no weights can balance the values at 0
    scaled_values = values / -minimum

    def sum_weighted(tilt: float) -> float:
        """Return the weighted sum of the values for λ = ``tilt``, up to a factor."""
        return float((scaled_values / np.sqrt(1 + tilt * scaled_values)).sum())

    if sum_weighted(0.0) <= 0:  # the sum is above 0 except for rounding
        return 1.0
    # At λ = 1 the weight of the smallest value would be infinite.
    max_tilt = 1 - 1e-12
    tilt = (
        brentq(sum_weighted, 0.0, max_tilt, xtol=1e-13) if sum_weighted(max_tilt) < 0 else max_tilt
    )
    roots = np.sqrt(1 + tilt * scaled_values)
    distance = float(roots.sum() * (1 / roots).sum()) - count**2
    return float(stdtr(count - 1, -np.sqrt(max(distance, 0.0) / count)))
