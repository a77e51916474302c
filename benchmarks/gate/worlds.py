"""Worlds in which the challenger's true improvement is known, as sums over groups.

A world draws each group's mean difference and its weight. Its true improvement is 0, until it is
moved by so many standard errors of a test split of that size.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from conditions.improvement import Groups, join_neighbours
from conditions.mean_tests import Floats

MANY = 200_000
"""Groups of a split that shows how far a world spreads."""
LIKENESS = 0.5
"""Correlation of neighbouring days."""

Source = np.random.Generator
Draw = Callable[[Source, int], tuple[Floats, Floats]]
"""(source, groups) → (groups,) mean differences and weights; the improvement is 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Distribution of the groups."""

    draw: Draw
    largest: float | None = None
    """Largest difference of a group, for worlds that have a range."""
    gains: float = 0.0
    """In a world with a range: what a group that loses its whole range gains by being mended."""
    ordered: bool = False


Moved = Callable[[Source, int], Floats]
"""(source, groups) → differences."""


def sizes(source: Source, count: int) -> Floats:
    """Log-normal: a group among 1,000 has ten times the examples of the middle one."""
    return np.floor(np.maximum(1, source.lognormal(np.log(20) - 0.245, 0.7, count)))


def weigh_groups(moved: Moved, sized: bool = False) -> Draw:
    """Return a draw of these differences, with equal weights or unlike ones."""
    return lambda source, count: (
        moved(source, count),
        sizes(source, count) if sized else np.ones(count),
    )


def tail(source: Source, count: int, spread: float = 1.0) -> Floats:
    """Better by the mean on most groups, much worse on few: a log-normal loss."""
    return np.exp(spread**2 / 2) - source.lognormal(0, spread, count)


def log_normal(spread: float) -> Moved:
    return lambda source, count: tail(source, count, spread)


def mix_differences(share: float, one: Moved, other: Moved) -> Moved:
    """Return differences of which a share is drawn from ``one``."""

    def draw(source: Source, count: int) -> Floats:
        from_one = source.uniform(size=count) < share
        return np.where(from_one, one(source, count), other(source, count))

    return draw


def normal(spread: float) -> Moved:
    return lambda source, count: source.normal(0, spread, count)


def nothing(source: Source, count: int) -> Floats:
    return np.zeros(count)


def signs(rate: float) -> Moved:
    """Return wins and losses of single questions, the others tied."""
    return lambda source, count: np.select(
        [(draw := source.uniform(size=count)) < rate / 2, draw < rate], [1.0, -1.0], 0.0
    )


def less(score: Moved) -> Moved:
    """Return differences of two models' scores that are drawn alike."""
    return lambda source, count: score(source, count) - score(source, count)


def one_heavy_group(source: Source, count: int) -> tuple[Floats, Floats]:
    return source.normal(size=count), np.r_[count / 4, np.ones(count - 1)]


def lengths(source: Source, count: int) -> tuple[Floats, Floats]:
    """Worse in proportion to a group's log-normal length, which is its weight, too."""
    length = source.lognormal(0, 1, count)
    return np.exp(1.5) - length + source.normal(0, 0.5, count), length


def spread_by_size(source: Source, count: int) -> tuple[Floats, Floats]:
    weight = sizes(source, count)
    return source.normal(0, 1 / np.sqrt(weight)), weight


def hidden_clusters(source: Source, count: int) -> Floats:
    """Three groups each that are alike, which nobody declares."""
    shared = np.repeat(source.normal(size=count // 3 + 1), 3)[:count]
    return np.sqrt(0.5) * (shared + source.normal(size=count))


def days(source: Source, count: int) -> Floats:
    moved = source.normal(size=count)
    for day in range(1, count):
        moved[day] = LIKENESS * moved[day - 1] + np.sqrt(1 - LIKENESS**2) * moved[day]
    return moved


def rare(rate: float) -> Moved:
    """Return a little gain everywhere, and a disaster on so many groups."""
    loss = (1 - rate) / rate
    return lambda source, count: (
        np.where(source.uniform(size=count) < rate, -loss, 1.0) + source.normal(0, 1, count)
    )


def atom(source: Source, count: int) -> Floats:
    """Exactly the margin above it on nine of ten groups, and a log-normal loss on the tenth."""
    loss = -9 * np.exp(-0.5) * source.lognormal(0, 1, count)
    return np.where(source.uniform(size=count) < 0.1, loss, 1.0)


def lost_whole(source: Source, count: int) -> Floats:
    """One of ten groups is lost whole, the others are better by a ninth."""
    return np.where(source.uniform(size=count) < 0.1, -1.0, 1 / 9)


WORLDS: dict[str, World] = {
    "normal": World(draw=weigh_groups(normal(1))),
    "normal, unlike sizes": World(draw=weigh_groups(normal(1), sized=True)),
    "spread that follows size": World(draw=spread_by_size),
    "Student's t with 2 degrees": World(draw=weigh_groups(lambda s, n: s.standard_t(2, n))),
    "negative correlation within": World(draw=weigh_groups(normal(0.1), sized=True)),
    "one group with 20 % of the weight": World(draw=one_heavy_group),
    "exponential loss": World(draw=weigh_groups(lambda s, n: 1 - s.exponential(1, n))),
    "log-normal gain, σ 1": World(draw=weigh_groups(lambda s, n: -tail(s, n))),
    "log-normal loss, σ 1": World(draw=weigh_groups(log_normal(1))),
    "log-normal loss, σ 1.5": World(draw=weigh_groups(log_normal(1.5))),
    "log-normal loss, σ 2": World(draw=weigh_groups(log_normal(2))),
    "Pareto loss, 1.5": World(draw=weigh_groups(lambda s, n: 2 - s.pareto(1.5, n))),
    "worse by log-normal length": World(draw=lengths),
    "70 % tie, log-normal, sizes": World(
        draw=weigh_groups(mix_differences(0.3, tail, nothing), sized=True)
    ),
    "90 % tie, log-normal": World(draw=weigh_groups(mix_differences(0.1, tail, nothing))),
    "90 % nearly tie, log-normal": World(
        draw=weigh_groups(mix_differences(0.1, tail, normal(0.01)))
    ),
    "80 % nearly tie, log-normal, sizes": World(
        draw=weigh_groups(mix_differences(0.2, tail, normal(0.1)), sized=True)
    ),
    "30 % tie, 60 % normal, 10 % σ 1.5": World(
        draw=weigh_groups(
            mix_differences(0.1, log_normal(1.5), mix_differences(2 / 3, normal(0.1), nothing))
        )
    ),
    "atom at the margin": World(draw=weigh_groups(atom)),
    "much worse on 5 % of groups": World(draw=weigh_groups(rare(0.05))),
    "much worse on 1 % of groups": World(draw=weigh_groups(rare(0.01))),
    "hidden clusters of 3": World(draw=weigh_groups(hidden_clusters)),
    "days, AR 0.5, in order": World(draw=weigh_groups(days), ordered=True),
    "wins and losses": World(draw=weigh_groups(signs(1.0)), largest=1, gains=2),
    "wins and losses, 80 % tie": World(draw=weigh_groups(signs(0.2)), largest=1, gains=2),
    "accuracy 0.7": World(
        draw=weigh_groups(less(lambda s, n: (s.uniform(size=n) < 0.7) * 1.0)), largest=1, gains=1
    ),
    "accuracy 0.98": World(
        draw=weigh_groups(less(lambda s, n: (s.uniform(size=n) < 0.98) * 1.0)), largest=1, gains=1
    ),
    "MRR": World(
        draw=weigh_groups(less(lambda s, n: 1 / np.floor(1 + s.exponential(2, n)))),
        largest=1,
        gains=0.5,
    ),
    "NDCG near 1": World(
        draw=weigh_groups(less(lambda s, n: s.beta(20, 1, n))), largest=1, gains=0.1
    ),
    "10 % of groups lost whole": World(draw=weigh_groups(lost_whole), largest=1, gains=10 / 9),
}


@cache
def standard_error(name: str, groups: int) -> float:
    """Return the improvement's standard error over test splits of so many groups."""
    moved, weight = WORLDS[name].draw(np.random.default_rng(0), groups if groups > MANY else MANY)
    residual = (moved - moved @ weight / weight.sum()) * weight
    many = len(weight) / groups
    return float(np.sqrt(residual @ residual) / weight.sum() * np.sqrt(many))


def sample(name: str, groups: int, seed: int, errors: float = 0.0, level: float = 0.05) -> Groups:
    """Return a test split of the world, better by so many standard errors."""
    world = WORLDS[name]
    source = np.random.default_rng([seed, groups, abs(int(1000 * errors))])
    moved, weight = world.draw(source, groups)
    effect = errors * standard_error(name, groups)
    if world.largest is None:
        moved = moved + effect
    elif errors:
        moved = _mend(world, moved, effect, source)
    difference = moved * weight
    if world.ordered:
        difference, weight = join_neighbours(difference, weight)
    return Groups(difference=difference, weight=weight, largest=world.largest, level=level)


def _mend(world: World, moved: Floats, effect: float, source: Source) -> Floats:
    """Return the differences, with losses mended by chance until the mean is the effect."""
    losing = moved < 0
    gain = np.minimum(world.gains, 1 - moved)
    large = world.draw(np.random.default_rng(0), MANY)[0]
    possible = float((np.minimum(world.gains, 1 - large) * (large < 0)).mean())
    mended = losing & (source.uniform(size=len(moved)) < min(1.0, effect / possible))
    return np.where(mended, moved + gain, moved)


def approximate(groups: Groups) -> Groups:
    """Return the groups as the gate sees them where no range is declared."""
    return replace(groups, largest=None)
