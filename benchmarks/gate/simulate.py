"""Pairs of models whose true difference is known, as the gate sees them: sums over groups.

Each world draws what the groups of a test split are worth; its true improvement is ``effect``.
``benchmarks.gate.judge`` then lets the gate's own code decide.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from conditions.group_sums import Batch, Floats

MEAN_GROUP, SPREAD = 20.0, 0.7
"""Examples of a group: log-normal, of this mean and standard deviation of the logarithm: a group
among 1,000 has ten times as many as the middle one."""
METRIC = "score"
MANY = 60_000
"""Groups of a split that shows what a world is like."""
LIKENESS = 0.5
"""Correlation of neighbouring days."""
DISASTER = 0.05
"""Gain elsewhere of a challenger with a rare disaster."""

Kind = Literal[
    "loss", "accuracy", "heavy", "skewed", "log-normal", "lengths", "disaster 5 %", "disaster 1 %",
    "days", "undeclared days", "copies", "tied 95 %", "tied 90 %", "tied 70 %",
    "tied 90 %, exponential", "tied 90 %, normal",
]  # fmt: skip
RATES: dict[str, float] = {"disaster 5 %": 0.05, "disaster 1 %": 0.01}
DIFFER: dict[str, float] = {
    "tied 95 %": 0.05, "tied 90 %": 0.1, "tied 70 %": 0.3, "tied 90 %, exponential": 0.1,
    "tied 90 %, normal": 0.1,
}  # fmt: skip
"""World → share of the groups on which the models differ at all."""
COPIES = 5
"""How often each group stands in the test split of ``copies``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Distribution that the models are drawn from."""

    kind: Kind
    """``loss``: a mean over units, of which an example has many or few. ``accuracy``: hits.
    ``heavy``: differences of Student's t with 2.5 degrees of freedom. ``skewed``: a little better
    on nearly every group, much worse on some (exponential). ``log-normal``: the same, of σ 1.
    ``lengths``: worse in proportion to a group's log-normal length. ``disaster``: much worse on 5
    or 1 % of the groups, a little better on the others. ``days``: neighbours are correlated, also
    ``undeclared``. ``copies``: each group five times. ``tied``: exactly equal on that share of the
    groups, log-normal on the others where nothing else is said; all groups weigh the same."""
    groups: int
    effect: float = 0.0
    """True improvement of the challenger."""

    @property
    def direction(self) -> Literal["lower", "higher"]:
        return "higher" if self.kind == "accuracy" else "lower"

    @property
    def in_order(self) -> bool:
        return self.kind == "days"


def standard_error(kind: Kind, groups: int) -> float:
    """The improvement's standard error over test splits of so many groups, from one large split."""
    batch = pair(World(kind=kind, groups=MANY), 0)
    challenger, champion, weight = (
        np.bincount(batch.groups, column, MANY) for column in batch.metrics[METRIC]
    )
    difference, total = champion - challenger, weight.sum()
    residual = difference - difference.sum() / total * weight
    return float(np.sqrt(residual @ residual) / total * np.sqrt(MANY / groups))


def pair(world: World, seed: int) -> Batch:
    """Examples of one champion and one challenger; of most worlds, a group's sum is one example."""
    return PAIRS[world.kind](world, np.random.default_rng([seed, world.groups]))


def _loss(world: World, source: np.random.Generator) -> Batch:
    """Both models find the same groups and examples hard; each has luck of its own, in groups and
    in examples.
    """
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


def _heavy(world: World, source: np.random.Generator) -> Batch:
    return _by_group(world, _sizes(world, source), 0.05 * source.standard_t(2.5, world.groups))


def _log_normal(world: World, source: np.random.Generator) -> Batch:
    moved = np.exp(0.5) - source.lognormal(0, 1, world.groups)
    return _by_group(world, _sizes(world, source), 0.05 * moved)


def _lengths(world: World, source: np.random.Generator) -> Batch:
    """A unit of length is worse by the length of its group, less what makes the whole equal:
    E[length²] / E[length]; with noise of the groups, and of the units of each.
    """
    length = source.lognormal(0, 1, world.groups)
    noise = source.normal(0, 0.5, world.groups) + source.normal(0, 1, world.groups) / np.sqrt(
        MEAN_GROUP * length
    )
    return _by_group(world, length, 0.05 * (np.exp(1.5) - length + noise))


def _disaster(world: World, source: np.random.Generator) -> Batch:
    rate = RATES[world.kind]
    bad = source.uniform(size=world.groups) < rate
    moved = np.where(bad, -DISASTER * (1 - rate) / rate, DISASTER)
    noise = source.normal(0, DISASTER, world.groups)
    return _by_group(world, _sizes(world, source), moved + noise)


def _days(world: World, source: np.random.Generator) -> Batch:
    moved = source.normal(size=world.groups)
    for day in range(1, world.groups):
        moved[day] = LIKENESS * moved[day - 1] + np.sqrt(1 - LIKENESS**2) * moved[day]
    return _by_group(world, _sizes(world, source), 0.05 * moved)


def _copies(world: World, source: np.random.Generator) -> Batch:
    places = np.arange(world.groups) // COPIES
    moved = 0.05 * source.normal(size=world.groups)
    return _by_group(world, _sizes(world, source)[places], moved[places])


def _tied(world: World, source: np.random.Generator) -> Batch:
    """The effect, too, is on the groups that differ alone."""
    share, groups = DIFFER[world.kind], world.groups
    differs = source.uniform(size=groups) < share
    if world.kind == "tied 90 %, normal":
        moved = source.normal(size=groups)
    elif world.kind == "tied 90 %, exponential":
        moved = 1 - source.exponential(1, groups)
    else:
        moved = np.exp(0.5) - source.lognormal(0, 1, groups)
    moved = np.where(differs, 0.05 * moved + world.effect / share, 0)
    weight = np.full(groups, MEAN_GROUP)
    return _batch(np.arange(groups), -moved * weight, np.zeros(groups), weight)


def _by_group(world: World, weight: Floats, moved: Floats) -> Batch:
    """``moved``: (groups,) by how much the challenger is better there, a unit of weight."""
    challenger = -(moved + world.effect) * weight
    return _batch(np.arange(world.groups), challenger, np.zeros(world.groups), weight)


def _sizes(world: World, source: np.random.Generator) -> Floats:
    mean = np.log(MEAN_GROUP) - SPREAD**2 / 2
    return np.floor(np.maximum(1, source.lognormal(mean, SPREAD, world.groups)))


def _groups(world: World, source: np.random.Generator) -> np.ndarray:
    """(examples,): the group of each; (groups,) sizes are at least 1."""
    return np.repeat(np.arange(world.groups), _sizes(world, source).astype(int))


def _luck(
    world: World, source: np.random.Generator, groups: np.ndarray, between: float, within: float
) -> Floats:
    shared = source.normal(0, between, world.groups)[groups]
    return shared + source.normal(0, within, len(groups))


def _batch(groups: np.ndarray, challenger: Floats, champion: Floats, weight: Floats) -> Batch:
    return Batch(groups=groups, metrics={METRIC: (challenger, champion, weight)})


PAIRS: dict[str, Callable[[World, np.random.Generator], Batch]] = {
    "loss": _loss,
    "accuracy": _accuracy,
    "heavy": _heavy,
    "skewed": _skewed,
    "log-normal": _log_normal,
    "lengths": _lengths,
    "disaster 5 %": _disaster,
    "disaster 1 %": _disaster,
    "days": _days,
    "undeclared days": _days,
    "copies": _copies,
    **dict.fromkeys(DIFFER, _tied),
}
