"""Judge a simulated pair by the gate, and by two simpler ways.

The gate's own code judges: ``conditions.group_sums`` adds the scores up, ``conditions.paired``
gives the limits, ``conditions.alpha_spending`` the level of the first look.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from benchmarks.gate.simulate import METRIC, World, pair
from conditions.alpha_spending import spent
from conditions.confidence_limits import freedom, jackknife
from conditions.group_sums import GroupSums, Ints, Wanted, in_order
from conditions.groups import effective_groups, likeness
from conditions.paired import RESAMPLES, Floats, bootstrap_t, improvement

CONFIDENCE = 0.95
ALPHA = 1 - CONFIDENCE
FIRST = 1 - spent(ALPHA, look=1)
"""Confidence of the limits at the first look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Decisions about one pair, each promoted or not."""

    plain: bool
    """The challenger's value on the test split is better than the champion's: what templates do."""
    usual: bool
    """By the more cautious one of the bootstrap-t and Student's t at 0.95: the gate before it
    minded skewness, order and looks."""
    gate: bool
    influence: float
    """Share of the variance that one group has."""
    alike: bool
    """The reason says that neighbouring groups are alike, although no order is declared."""


def judge(world: World, margin: float | None, seed: int) -> Outcome:
    """One pair; ``margin`` of non-inferiority, None for superiority."""
    added = _added(world, seed)
    difference, weight = added.of_groups(METRIC)
    bound = 0.0 if margin is None else -margin
    examples, ordered = added.examples_of_groups(), world.in_order
    found = improvement(difference, weight, FIRST, resamples=0, in_order=ordered, examples=examples)
    return Outcome(
        plain=found.value > bound,
        usual=usual(difference, weight, bound),
        gate=promoted(difference, weight, bound, FIRST, ordered=ordered, examples=examples),
        influence=found.influence,
        alike=not (ordered or found.copies) and likeness(*added.as_met(METRIC)) > 0,
    )


def sums(world: World, seed: int) -> tuple[Floats, Floats]:
    """(difference, weight) of each group of a pair, as the gate's job adds them up."""
    return _added(world, seed).of_groups(METRIC)


def _added(world: World, seed: int) -> GroupSums:
    batch = pair(world, seed)
    starts = in_order([batch.groups]) if world.in_order else None
    wanted = Wanted(metrics={METRIC: world.direction}, champion="arn")
    added = GroupSums(wanted, starts=starts)
    added.add(batch)
    return added


def promoted(
    difference: Floats,
    weight: Floats,
    bound: float,
    confidence: float,
    *,
    ordered: bool = False,
    examples: Ints | None = None,
) -> bool:
    """Whether the gate's lower limit is above the bound. The bootstrap, which takes the time, can
    only lower it: so it is asked where the others agree.
    """
    for resamples in (0, RESAMPLES):
        found = improvement(
            difference,
            weight,
            confidence,
            resamples=resamples,
            in_order=ordered,
            examples=examples,
        )
        if found.low <= bound:
            return False
    return True


def usual(difference: Floats, weight: Floats, bound: float) -> bool:
    """See ``Outcome``."""
    difference, weight = difference[weight > 0], weight[weight > 0]
    share = weight / weight.sum()
    value = difference.sum() / weight.sum()
    residual = difference / weight.sum() - value * share
    error, _ = jackknife(residual, share)
    reach = stdtrit(freedom(effective_groups(weight)), CONFIDENCE)
    if value - reach * error <= bound:
        return False
    _, highest = bootstrap_t(residual, share, CONFIDENCE, RESAMPLES)
    return bool(value - max(reach, highest) * error > bound and np.isfinite(highest))
