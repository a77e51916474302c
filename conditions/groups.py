"""The groups that count as evidence: ties do not, and a copied group counts once."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

TIE = 1e-3
"""A group ties when its difference per unit of weight is smaller than this share of the groups'
root mean square: zero, or the noise of another order of summation."""
DIGITS = 12
"""Digits of the largest difference to which copies agree; a batch may end inside a group."""
SOME = 1 / 3
"""Ties with a smaller share of the weight stay: the limits of all groups take them into account,
and lose less power where groups are so small that some tie by chance."""
COPIED = 5
"""Smaller groups, in examples, may agree by chance: rows of a table with few different values do.
"""
ALIKE = 2.33
"""Standard errors above 0 from which a correlation of neighbours is remarked on: 1 in 100."""


def effective_groups(weight: Floats) -> float:
    """Return (Σ weight)² / Σ weight² (Kish): exactly G for G equal weights; 0 without weight."""
    if not weight.any():
        return 0.0
    weight = weight / weight.max()
    return float(weight.sum() ** 2 / (weight @ weight))


def differing(difference: Floats, weight: Floats) -> NDArray[np.bool_]:
    """Return (groups,) whether the two models differ there; every weight is above 0."""
    ratio = np.abs(difference / weight)
    if largest := ratio.max(initial=0.0):
        ratio /= largest  # squares of what is very large or small have no digits
    found = ratio > TIE * np.sqrt(np.mean(ratio**2))
    return found | (weight[found].sum() > (1 - SOME) * weight.sum())


def without_copies(
    difference: Floats, weight: Floats, examples: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """Return the groups; groups of several examples with equal difference and weight are joined.

    ``examples``: (groups,) in each. Independent groups agree so exactly only where they are small,
    where they tie, or where differences are multiples of one step, such as counts of hits: those
    stay as they are.
    """
    scale = np.abs(difference).max(initial=0.0)
    key = np.round(difference / scale, DIGITS) if scale else difference
    distinct = np.unique(key[key != 0])
    if not 3 <= len(distinct) < np.count_nonzero(key):
        return difference, weight
    steps = (distinct - distinct[0]) / np.diff(distinct).min()
    if np.abs(steps - np.round(steps)).max() < 1e-3:
        return difference, weight
    chance = (key == 0) | (examples < COPIED)
    alone = np.where(chance, np.arange(1, len(key) + 1), 0)  # not a copy
    rows = np.stack([key, np.round(weight / weight.max(), DIGITS), alone], axis=1)
    place = np.unique(rows, axis=0, return_inverse=True)[1].ravel()
    if place.max() + 1 == len(key):
        return difference, weight
    summed = (np.bincount(place, column).astype(np.float64) for column in (difference, weight))
    return next(summed), next(summed)


def likeness(difference: Floats, weight: Floats) -> float:
    """Return the correlation of ordered neighbours, by ranks; 0 where it may be chance."""
    difference, weight = difference[weight > 0], weight[weight > 0]
    if len(weight) < 4:
        return 0.0
    ratio = difference / weight - difference.sum() / weight.sum()
    rank = np.unique(ratio, return_inverse=True)[1].astype(float)
    rank -= rank.mean()
    squares = float(rank @ rank)
    found = float(rank[1:] @ rank[:-1]) / squares if squares else 0.0
    return found if found > ALIKE / np.sqrt(len(rank)) - 1 / len(rank) else 0.0
