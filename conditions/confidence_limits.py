"""How far a true value may lie from the measured one: Student's t, made aware of skewness.

Where a few groups are far below the others, a sample that lacks some of them looks better than the
truth and varies less: Student's t, and the bootstrap-t, too, then promote far too often
(differences like a log-normal of σ 2, 100 groups: 31 and 17 % instead of 5). So a distance of t
standard errors counts as ``log(1 + b·t) / b`` only, where b grows with the groups' L-skewness τ₃
(Hosking, Journal of the Royal Statistical Society B 52, 1990) on the side of the danger: b = 88
|τ₃|³ / √effective groups. τ₃ is a ratio of means of order statistics, and tells a skewed sample
from a symmetric one with some far groups; the usual third moment does not. It is taken of the
groups as they count, and of their ratios, which unequal weights do not blur; the worse one counts.
The form and its constants are ours, found by simulation: ``python -m benchmarks.gate`` shows what
they are worth, also in worlds that they were not found in.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtr, stdtrit

from conditions.groups import effective_groups

Floats = NDArray[np.float64]

STEEPNESS = 88.0
"""b × √effective groups at |τ₃| = 1."""
STRAIGHT = 1e-9
"""Below this, b counts as 0: so small a number has no digits left to divide by."""
MOST = 2.0
"""Largest b: 1.65 standard errors become 13."""
DOUBT = 2.0
"""Standard errors by which a slope must differ from 0 to count, and by which it is reduced."""
FEW, LONGER = 30, 1.25
"""Fewer than ``FEW`` groups that differ do not show how long their tail is: τ₃ counts as longer by
``LONGER`` × (1/√groups - 1/√FEW)."""
MOST_OF_DIFFERING = 1.0
"""Largest b of the groups that differ."""
TIED = 3.0
"""The b of the groups that differ is multiplied by ``TIED`` × (share of the weight that ties)²,
at most 1: where few groups tie, all groups show the tail, and with less noise."""
SMOOTH = 0.4
"""Number of cosines for an ordered series of n groups: this × n^(2/3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Student:
    """Student's t, stretched by ``bend``, the b above."""

    error: float
    """Standard error; above 0."""
    freedom: float
    bend: float = 0.0

    def reach(self, confidence: float) -> float:
        """Return the distance that the truth exceeds with chance 1 - confidence; may be inf."""
        return self.error * _stretched(float(stdtrit(self.freedom, confidence)), self.bend)

    def chance(self, distance: float) -> float:
        """Return the smaller of both p-values."""
        return float(stdtr(self.freedom, -_shrunk(distance / self.error, self.bend)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """The limit where a group's difference follows its weight: long documents are the worse, say.

    The value is then a line over the weights, and as uncertain as the weights' own mean, which has
    a long tail: ``slope`` × the reach of Σ weight² / Σ weight. Noise in the differences hides that
    tail from ``Student``; the weights, which are known without noise, show it.
    """

    rest: float
    """Standard error of the part that does not follow the weights."""
    weights: Student
    """Uncertainty of |slope| × Σ weight² / Σ weight."""

    def reach(self, confidence: float) -> float:
        """Return the distance, see ``Student``; the parts are independent: their squares add up."""
        student = float(stdtrit(self.weights.freedom, confidence))
        return float(np.hypot(self.rest * student, self.weights.reach(confidence)))

    def chance(self, distance: float) -> float:
        """Return the p-value, see ``Student``: ``reach`` inverted, by halving the quantile of t."""
        low, high = 0.0, _shrunk(max(distance, 0.0) / self.weights.error, self.weights.bend)
        for _ in range(60):
            middle = (low + high) / 2
            stretched = self.weights.error * _stretched(middle, self.weights.bend)
            near = np.hypot(self.rest * middle, stretched) < distance
            low, high = (middle, high) if near else (low, middle)
        return float(stdtr(self.weights.freedom, -low))


@dataclass(frozen=True, slots=True, kw_only=True)
class Differing:
    """The limit where some groups tie: the mean of those that differ × their share of the weight.

    Ties say nothing of that mean: 10 of 100 groups that differ know it like 10 groups. A bound of 0
    is decided by it alone. Any other bound μ also asks how well the share is known: the variance is
    that of the mean, plus μ² times the share's relative variance (as in Fieller, Journal of the
    Royal Statistical Society B 16, 1954), so the limit is the root of a quadratic.
    """

    own: Student
    """Uncertainty of the mean × the share, if the share were known."""
    share: float
    """Relative variance of the share."""
    value: float
    """The improvement; negated in the limit above it."""

    def reach(self, confidence: float) -> float:
        """Return the distance, see ``Student``; inf if so few groups differ that any share fits."""
        rest = 1 - self.share * float(ndtri(confidence)) ** 2
        own = self.own.reach(confidence)
        if rest <= 0 or own == np.inf:
            return float("inf")
        root = np.hypot(np.sqrt(1 - rest) * self.value, np.sqrt(rest) * own)
        return self.value - (self.value - float(root)) / rest

    def chance(self, distance: float) -> float:
        """Return the p-value, see ``Student``: ``reach`` inverted by halving."""
        low, high = 0.0, 0.5
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if self.reach(1 - middle) < distance else (middle, high)
        return high


@dataclass(frozen=True, slots=True, kw_only=True)
class Some:
    """The limit of a few groups out of many.

    A few groups that lack what is rare are alike, and their own error is small; but they lie no
    further off than the same number drawn from all groups may.
    """

    own: Student
    all_: Student

    def reach(self, confidence: float) -> float:
        """Return the distance, see ``Student``."""
        return min(self.own.reach(confidence), self.all_.reach(confidence))

    def chance(self, distance: float) -> float:
        """Return the p-value, see ``Student``."""
        return min(self.own.chance(distance), self.all_.chance(distance))


@dataclass(frozen=True, slots=True, kw_only=True)
class Many:
    """Knowledge from many groups about the few that are some of them."""

    effective: float
    """Effective groups of all parts together."""
    tails: tuple[float, float]
    """Lengths of the tails below and above; see the function ``tails``."""
    spread: float
    """Standard deviation of a group's effect on the value, whatever the number of groups."""


Limit = Student | Sized | Some | Differing


def _shrunk(t: float, bent: float) -> float:
    return float(np.log1p(bent * t) / bent) if bent > STRAIGHT and t > 0 else t


def _stretched(quantile: float, bent: float) -> float:
    if bent <= STRAIGHT or quantile <= 0:
        return quantile
    with np.errstate(over="ignore"):
        return float(np.expm1(bent * quantile) / bent)


def freedom(effective: float) -> float:
    """Return the degrees of freedom of a standard error over this many effective groups."""
    return max(effective - 1, 1.0)


def bend(tail: float, effective: float) -> float:
    """Return b for so many effective groups and this tail on the side of the danger; see above."""
    return min(MOST, STEEPNESS * max(tail, 0.0) ** 3 / np.sqrt(effective))


def tails(*samples: Floats) -> tuple[float, float]:
    """Return the lengths of the tails below and above: the largest τ₃ to either side, or 0."""
    found = [l_skewness(sample) for sample in samples]
    return max(0.0, -min(found)), max(0.0, *found)


def l_skewness(values: Floats) -> float:
    """Return τ₃ of (n,) values, from -1 (long tail below) to 1; 0 for under three or equal ones."""
    n = len(values)
    if n < 3:
        return 0.0
    ordered, rank = np.sort(values), np.arange(n)
    first = ordered.mean()
    second = (rank * ordered).mean() / (n - 1)
    third = (rank * (rank - 1) * ordered).mean() / ((n - 1) * (n - 2))
    spread = 2 * second - first
    if spread <= 1e-12 * np.abs(ordered).max() + np.finfo(float).tiny:  # or subnormal: no digits
        return 0.0
    return float(np.clip((6 * third - 6 * second + first) / spread, -1, 1))


def jackknife(residual: Floats, share: Floats) -> tuple[float, Floats]:
    """Return (standard error, negated change of the estimate without each group); inf for one
    group.

    Without group g a ratio moves by -residual_g / (1 - share_g), exactly.
    """
    if np.any(share >= 1):
        return float("inf"), residual
    moved = residual / (1 - share)
    return float(np.sqrt((len(share) - 1) / len(share) * (moved @ moved))), moved


def sized(residual: Floats, weight: Floats, effective: float) -> tuple[Sized | None, Sized | None]:
    """(below, above) the value: where large groups are worse, and where they are better.

    ``residual``, ``weight``: (groups,) a ratio's residuals, and their weights. The slope is that of
    least squares through the groups' ratios, its standard error HC3 (MacKinnon & White, Journal of
    Econometrics 29, 1985). None where the slope is not clearly above or below 0: one that is only
    noise, one in forty, would cost a good model its promotion.
    """
    centred = weight - weight.mean()
    squares = float(centred @ centred)
    if len(weight) < 4 or squares <= 1e-12 * float(weight @ weight):
        return None, None
    ratio = residual / weight
    slope = float(centred @ ratio) / squares
    off = ratio - ratio.mean() - slope * centred
    leverage = np.minimum(1 / len(weight) + centred**2 / squares, 1 - 1e-9)
    doubt = DOUBT * float(np.sqrt(((centred * off / (1 - leverage)) ** 2).sum())) / squares
    if abs(slope) <= doubt:
        return None, None
    sure = slope - np.sign(slope) * doubt
    share = weight / weight.sum()
    of_weights = weight * (weight - float(share @ weight))
    error, _ = jackknife(residual - sure * of_weights, share)
    spread, moved = jackknife(of_weights, share)
    bent = bend(l_skewness(moved), effective)
    found = Sized(
        rest=error,
        weights=Student(error=abs(float(sure)) * spread, freedom=freedom(effective), bend=bent),
    )
    return (found, None) if slope < 0 else (None, found)


def of_differing(difference: Floats, weight: Floats, every: Floats) -> tuple[Differing, Differing]:
    """Return (below, above) the improvement of all groups, of which only some differ, at least one.

    ``difference``, ``weight``: of the groups that differ; ``every``: the weights of all groups.
    """
    total, part = float(every.sum()), float(weight.sum())
    of_all, squares = part / total, float(weight @ weight)
    spread = (1 - of_all) ** 2 * squares + of_all**2 * (float(every @ every) - squares)
    residual = difference / part - difference.sum() / part * weight / part
    error, moved = jackknife(residual, weight / part)
    effective = effective_groups(weight)
    longer = LONGER * max(0.0, 1 / np.sqrt(effective) - 1 / np.sqrt(FEW))
    counts = min(1.0, TIED * (1 - of_all) ** 2)
    value = float(difference.sum()) / total
    below, above = (
        Differing(
            own=Student(
                error=max(error * of_all, np.finfo(float).tiny),
                freedom=freedom(effective),
                bend=counts * min(MOST_OF_DIFFERING, bend(tail + longer, effective)),
            ),
            share=spread / part**2,
            value=sign * value,
        )
        for tail, sign in zip(tails(moved, residual / weight), (1, -1), strict=True)
    )
    return below, above


def ordered(moved: Floats) -> Student:
    """Return the limit of groups in an order, such as days, whose neighbours are alike.

    ``moved``: (groups,), not all equal. Equally weighted cosines, as many as pay (Lazarus, Lewis,
    Stock & Watson, Journal of Business & Economic Statistics 36, 2018): each is an independent
    glance at the variance over long times, so Student's t with as many degrees of freedom is right
    for few groups, too.
    """
    groups = len(moved)
    count = max(2, int(SMOOTH * groups ** (2 / 3)))
    waves = np.cos(np.pi * np.outer(np.arange(1, count + 1), np.arange(groups) + 0.5) / groups)
    parts = waves @ moved  # all 0 for a constant
    error = float(np.sqrt(2 * (parts @ parts) / count))
    return Student(error=max(error, np.finfo(float).tiny), freedom=float(count))
