"""Pairs of models whose true difference is known, and what the gate says of them.

The gate's own code judges: ``conditions.tally`` adds the scores up, ``conditions.scored.compared``
compares, ``conditions.comparison`` decides.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from conditions import comparison
from conditions.scored import compared
from conditions.tally import Batch, Floats, Tally, Wanted

CONFIDENCE = 0.95
ALPHA = 1 - CONFIDENCE
MEAN_GROUP, SPREAD = 20.0, 0.7
"""Examples of a group: log-normal, of this mean and standard deviation of the logarithm: a group
among 1,000 has ten times as many as the middle one."""
METRIC = "score"

Kind = Literal["loss", "accuracy", "skewed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What the models are drawn from."""

    kind: Kind
    """``loss``: a mean over units, of which an example has many or few. ``accuracy``: hits.
    ``skewed``: the challenger is a little better on nearly every group, and much worse on some."""
    groups: int
    effect: float
    """By how much the challenger is truly better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was decided about one pair."""

    plain: bool
    """The challenger's value on the test split is better than the champion's: what templates do."""
    promoted: bool
    value: float
    detectable: float
    """The smallest improvement that the gate says it would find with power 0.8."""


def judge(world: World, margin: float | None, seed: int) -> Outcome:
    """One pair; ``margin`` of non-inferiority, None for superiority."""
    batch = PAIRS[world.kind](world, np.random.default_rng(seed))
    direction = "higher" if world.kind == "accuracy" else "lower"
    tally = Tally(Wanted(metrics={METRIC: direction}, champion="arn"))
    tally.add(batch)
    found = compared(tally, METRIC, CONFIDENCE)
    check = (
        comparison.superior(found, 0) if margin is None else comparison.non_inferior(found, margin)
    )
    return Outcome(
        plain=found.improvement.value > (0 if margin is None else -margin),
        promoted=check.passed,
        value=found.improvement.value,
        detectable=found.improvement.detectable(0.8),
    )


def _loss(world: World, source: np.random.Generator) -> Batch:
    """Both models find the same groups and examples hard; each has luck of its own, in groups and
    in examples."""
    groups = _groups(world, source)
    units = source.integers(1, 60, len(groups)).astype(float)
    hard = source.gamma(4, 0.25, world.groups)[groups] * source.gamma(4, 0.25, len(groups))
    models = [_luck(world, source, groups, 0.05, 0.2) for _ in range(2)]
    challenger = (hard + models[0] - world.effect) * units
    return _batch(groups, challenger, (hard + models[1]) * units, units)


def _accuracy(world: World, source: np.random.Generator) -> Batch:
    groups = _groups(world, source)
    hard = source.normal(0.7, 0.3, world.groups)[groups] + source.normal(0, 0.2, len(groups))
    luck = source.uniform(size=len(groups))  # the same example is as hard for both
    models = [hard + _luck(world, source, groups, 0.05, 0.1) for _ in range(2)]
    hits = [(luck < np.clip(model, 0.05, 0.95)).astype(float) for model in models]
    gained = (source.uniform(size=len(groups)) < abs(world.effect)) * 1.0
    hits[0] = np.where(gained > 0, float(world.effect > 0), hits[0])
    # so that the true difference is the effect, whatever the hits were before
    hits[1] = np.where(gained > 0, float(world.effect < 0), hits[1])
    return _batch(groups, hits[0], hits[1], np.ones(len(groups)))


def _skewed(world: World, source: np.random.Generator) -> Batch:
    groups = _groups(world, source)
    moved = 0.05 * (1 - source.exponential(1.0, world.groups))[groups] + world.effect
    hard = source.gamma(4, 0.25, len(groups))
    noise = _luck(world, source, groups, 0.0, 0.2)
    return _batch(groups, hard - moved - noise, hard, np.ones(len(groups)))


def _groups(world: World, source: np.random.Generator) -> np.ndarray:
    """(examples,): the group of each; (groups,) sizes are at least 1."""
    mean = np.log(MEAN_GROUP) - SPREAD**2 / 2
    sizes = np.maximum(1, source.lognormal(mean, SPREAD, world.groups)).astype(int)
    return np.repeat(np.arange(world.groups), sizes)


def _luck(
    world: World, source: np.random.Generator, groups: np.ndarray, between: float, within: float
) -> Floats:
    shared = source.normal(0, between, world.groups)[groups]
    return shared + source.normal(0, within, len(groups))


def _batch(groups: np.ndarray, challenger: Floats, champion: Floats, weight: Floats) -> Batch:
    return Batch(groups=groups, metrics={METRIC: (challenger, champion, weight)})


PAIRS: dict[Kind, Callable[[World, np.random.Generator], Batch]] = {
    "loss": _loss,
    "accuracy": _accuracy,
    "skewed": _skewed,
}
