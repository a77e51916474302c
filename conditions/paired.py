"""The challenger's improvement over the champion on the same examples, with its limits.

A metric is a ratio of sums, Σ sum / Σ weight, and the improvement Σ difference / Σ weight, where
``difference`` is how much better the challenger's sum is. Examples of one group (a document, a
user, a day) are not independent, groups are; so a group is what is resampled, and what counts as
one observation. Several limits are computed, and the most cautious one is taken:

- Student's t with as many degrees of freedom as there are effective groups, less one, stretched
  where the groups are skewed (``conditions.confidence_limits``);
- the same of the groups that differ at all, where others tie;
- the same of the weights, where a group's difference follows its weight;
- the bootstrap-t over groups (Efron & Tibshirani, An Introduction to the Bootstrap, 1993, chapter
  12; over clusters: Cameron, Gelbach & Miller, Review of Economics and Statistics 90, 2008), whose
  quantiles follow the skewness of the groups;
- where the groups have an order, and neighbours are alike, Student's t over long waves.

The standard error is that of the jackknife over groups, which does not shrink when some groups are
large (CV3: MacKinnon, Nielsen & Webb, Journal of Econometrics 232, 2023). Why not the percentile
bootstrap, and what each limit is worth with 30 groups, is what ``python -m benchmarks.gate``
simulates. No limit sees what no group of the sample shows: docs/gate.md says what that means.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from conditions.confidence_limits import (
    Limit,
    Many,
    Some,
    Student,
    bend,
    freedom,
    jackknife,
    of_differing,
    ordered,
    sized,
    tails,
)
from conditions.groups import differing, effective_groups, without_copies

RESAMPLES = 1999  # (RESAMPLES + 1) × α is whole for the usual α: the quantile is one of the values
SEED = 20261121
CELLS = 2**15  # resamples × groups at a time: what a core's cache holds

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Improvement:
    """How much better the challenger is: positive is better, in the metric's own unit."""

    value: float
    low: float
    """One-sided lower limit, below the improvement with the chosen confidence; may be -inf."""
    high: float
    """One-sided upper limit; may be inf."""
    standard_error: float
    effective_groups: float
    """(Σ weight)² / Σ weight² over groups (Kish): as informative as so many equal groups."""
    differing_groups: float
    """Effective groups among those that do not tie."""
    copies: int
    """Groups that were joined to another group as its copies."""
    influence: float
    """Share of the variance of the one group that moves the value most; 0: none does."""
    above: tuple[Limit, ...]
    """Limits of how far the truth may lie above the value; without the bootstrap."""

    def chance_below(self, bound: float) -> float:
        """Return the one-sided p-value of "the improvement is at least ``bound``"; no bootstrap."""
        if self.standard_error == 0:
            return float(self.value >= bound)
        return max(limit.chance(bound - self.value) for limit in self.above)

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the standard error."""
        return freedom(self.differing_groups)

    def detectable(self, power: float) -> float:
        """Return the smallest true improvement whose lower limit is above 0 with this power, or
        inf.

        The limit's distance + t₁₋β × the standard error: Bloom, Evaluation Review 19, 1995, who has
        t₁₋α × the standard error for the distance.
        """
        reach = float(stdtrit(self.freedom, power) * self.standard_error)
        return self.value - self.low + reach


def improvement(
    difference: Floats,
    weight: Floats,
    confidence: float,
    *,
    resamples: int = RESAMPLES,
    in_order: bool = False,
    known: Many | None = None,
    examples: NDArray[np.int64] | None = None,
) -> Improvement:
    """Return the improvement and its one-sided limits at ``confidence``.

    Args:
        difference, weight: (groups,) sums over each group; a group without weight does not count,
            and some group has weight.
        resamples: number of the bootstrap's resamples; 0 for none.
        in_order: True if neighbours among the groups may be alike.
        known: knowledge from the many groups that these few belong to; None where these are all.
        examples: (groups,) number in each group, to look for copies; None: not looked for.

    The random numbers are always the same: the same scores give the same verdict.
    """
    counts = weight > 0
    difference, weight, groups = difference[counts], weight[counts], np.count_nonzero(counts)
    if examples is not None and not in_order:
        difference, weight = without_copies(difference, weight, examples[counts])
    share = weight / weight.sum()
    value = float(difference.sum() / weight.sum())
    residual = difference / weight.sum() - value * share
    error, moved = jackknife(residual, share)
    below, above = _limits(difference, weight, moved, error, in_order, known) if error else ((), ())
    down = max((limit.reach(confidence) for limit in below), default=0.0)
    up = max((limit.reach(confidence) for limit in above), default=0.0)
    if resamples and 0 < error < np.inf:
        lowest, highest = bootstrap_t(residual, share, confidence, resamples)
        down, up = max(down, highest * error), max(up, -lowest * error)
    return Improvement(
        value=value,
        low=value - down,
        high=value + up,
        standard_error=error,
        effective_groups=effective_groups(weight),
        differing_groups=effective_groups(weight[differing(difference, weight)]),
        copies=int(groups) - len(weight),
        influence=_influence(moved),
        above=above,
    )


def _influence(moved: Floats) -> float:
    squares = moved**2
    if len(squares) == 1:
        return 1.0
    return float(squares.max() / squares.sum()) if squares.any() else 0.0


def together(parts: Iterable[tuple[Floats, Floats]]) -> Many:
    """Return the knowledge from all groups of some parts, each around its own part's improvement.

    ``parts``: (difference, weight) of each. Groups that tie say nothing of the others' tails.
    """
    parts = [(difference[weight > 0], weight[weight > 0]) for difference, weight in parts]
    moved, _ = np.concatenate([_deviations(*part) for part in parts], axis=1)
    differ = [_that_differ(*part) for part in parts]
    own, ratios = np.concatenate([_deviations(*part) for part in differ], axis=1)
    return Many(
        effective=sum(effective_groups(weight) for _, weight in differ),
        tails=tails(own, ratios),
        spread=float(moved.std()),
    )


def _that_differ(difference: Floats, weight: Floats) -> tuple[Floats, Floats]:
    found = differing(difference, weight)
    return difference[found], weight[found]


def _deviations(difference: Floats, weight: Floats) -> Floats:
    """Return (2, groups): how far each group moves the improvement, whatever their number, and how
    far its own ratio is from it.
    """
    if not len(weight):
        return np.zeros((2, 0))
    residual = difference - difference.sum() / weight.sum() * weight
    _, moved = jackknife(residual, weight / weight.sum())
    return np.stack([moved / weight.mean(), residual / weight])


Limits = tuple[Limit, ...]


def _limits(
    difference: Floats,
    weight: Floats,
    moved: Floats,
    error: float,
    in_order: bool,
    known: Many | None,
) -> tuple[Limits, Limits]:
    """Return (below, above) the value, of groups that differ."""
    value = float(difference.sum() / weight.sum())
    residual = (difference - value * weight) / weight.sum()
    differ = _that_differ(difference, weight)
    if known is not None:
        return _of_some(error, differ, known, moved, in_order)
    own, effective = tails(moved, residual / weight), effective_groups(weight)
    sides: list[list[Limit]] = [
        [Student(error=error, freedom=freedom(effective), bend=bend(tail, effective))]
        for tail in own
    ]
    if len(differ[1]) < len(weight):
        for side, without_ties in zip(sides, of_differing(*differ, weight), strict=True):
            side.append(without_ties)
    if error < np.inf:
        for side, found in zip(sides, sized(residual, weight, effective), strict=True):
            side.extend([found] if found else ())
    below, above = ((*side, *_waves(moved, error, in_order)) for side in sides)
    return below, above


def _of_some(
    error: float, differ: tuple[Floats, Floats], known: Many, moved: Floats, in_order: bool
) -> tuple[Limits, Limits]:
    """Return the limits of a few groups, whose longer tails may be chance, of about 1 / √groups.

    ``differ``: (difference, weight) of the groups that do not tie.
    """
    own, effective = tails(*_deviations(*differ)), effective_groups(differ[1])
    noise, degrees = 1 / np.sqrt(len(differ[1])), freedom(effective)
    wide = max(error, known.spread / np.sqrt(len(moved)))
    sides: list[Limits] = []
    for mine, of_all in zip(own, known.tails, strict=True):
        alone = bend(max(mine - noise, of_all), effective)
        both = Some(
            own=Student(error=error, freedom=degrees, bend=alone),
            all_=Student(error=wide, freedom=degrees, bend=bend(of_all, known.effective)),
        )
        sides.append((both, *_waves(moved, error, in_order)))
    return sides[0], sides[1]


def _waves(moved: Floats, error: float, in_order: bool) -> list[Student]:
    return [ordered(moved)] if in_order and error < np.inf else []


def bootstrap_t(
    residual: Floats, share: Floats, confidence: float, resamples: int
) -> tuple[float, float]:
    """Return the studentised improvement's quantiles at 1 - confidence and confidence, maybe inf.

    The sums that a resample needs are linear in how often it took each group: one product of
    matrices gives them all.
    """
    columns = np.stack([residual, share, residual**2, residual * share, share**2], axis=1)
    sums = _times_taken(len(share), resamples) @ columns
    residuals, taken, squares, products, shares = sums.T
    studentised = _studentised(residuals, taken, squares, products, shares, len(share))
    studentised = np.sort(studentised)
    last = len(studentised) - 1
    rank = min(last, int(np.ceil(confidence * (last + 2))) - 1)
    return float(studentised[last - rank]), float(studentised[rank])


@lru_cache(maxsize=1)  # the same for every metric; 16 MB for 1,024 groups
def _times_taken(groups: int, resamples: int) -> Floats:
    """Return (resamples, groups): draws of each group per resample, ``groups`` draws in all."""
    generator = np.random.default_rng(SEED)
    found = np.empty((resamples, groups))
    size = max(1, CELLS // groups)
    for first in range(0, resamples, size):
        rows = found[first : first + size]
        drawn = generator.integers(0, groups, size=rows.shape)
        drawn += np.arange(len(rows))[:, None] * groups
        rows[:] = np.bincount(drawn.ravel(), minlength=rows.size).reshape(rows.shape)
    return found


def _studentised(
    residual: Floats, share: Floats, squares: Floats, products: Floats, shares: Floats, groups: int
) -> Floats:
    """Return each resample's distance from the whole sample's improvement, in its standard errors.

    Infinite where a resample moved but does not vary: too few groups differ to say how far off.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        moved = residual / share
        variance = squares - 2 * moved * products + moved**2 * shares
        error = np.sqrt(np.maximum(variance, 0) * groups / (groups - 1)) / share
        return np.where(moved == 0, 0.0, moved / error)
