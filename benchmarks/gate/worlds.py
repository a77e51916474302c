"""Worlds in which the challenger's true improvement is known, as sums over groups.

A world draws each group's mean difference and its weight. Its true improvement is 0, until it is
moved by a number of standard errors of a test split of that size.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from conditions.improvement import Groups, sum_into_blocks
from conditions.mean_tests import Floats

MANY = 200_000
"""Number of groups of the split that estimates a world's spread."""
LIKENESS = 0.5
"""Correlation of neighbouring days."""

Source = np.random.Generator
Draw = Callable[[Source, int], tuple[Floats, Floats]]
"""(source, groups) → (groups,) mean differences and weights; the improvement is 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Distribution of the differences and weights of groups."""

    draw: Draw
    largest: float | None = None
    """Largest difference of a group, for worlds that have a range."""
    gains: float = 0.0
    """In a world with a range: most that a losing group gains when its loss is mended."""
    ordered: bool = False


Moved = Callable[[Source, int], Floats]
"""(source, groups) → differences."""


def draw_sizes(source: Source, count: int) -> Floats:
    """Draw log-normal sizes; one group in 1,000 has ten times the examples of the median one."""
    return np.floor(np.maximum(1, source.lognormal(np.log(20) - 0.245, 0.7, count)))


def make_world(moved: Moved, sized: bool = False, **more: Any) -> World:
    """Return a world of differences with equal weights or, if ``sized``, with log-normal ones."""

    def draw(source: Source, count: int) -> tuple[Floats, Floats]:
        return moved(source, count), draw_sizes(source, count) if sized else np.ones(count)

    return World(draw=draw, **more)


def draw_tail(source: Source, count: int, spread: float = 1.0) -> Floats:
    """Draw differences of mean 0: small gains on most groups, a log-normal loss on few."""
    return np.exp(spread**2 / 2) - source.lognormal(0, spread, count)


def make_tail(spread: float) -> Moved:
    return lambda source, count: draw_tail(source, count, spread)


def mix_draws(share: float, one: Moved, other: Moved) -> Moved:
    """Return a draw of differences: a ``share`` is from ``one``, the rest from ``other``."""

    def draw(source: Source, count: int) -> Floats:
        from_one = source.uniform(size=count) < share
        return np.where(from_one, one(source, count), other(source, count))

    return draw


def make_normal(spread: float) -> Moved:
    return lambda source, count: source.normal(0, spread, count)


def draw_zeros(source: Source, count: int) -> Floats:
    return np.zeros(count)


def make_signs(rate: float) -> Moved:
    """Return a draw of wins and losses, on a share ``rate`` of the groups; the others tie."""
    return lambda source, count: np.select(
        [(draw := source.uniform(size=count)) < rate / 2, draw < rate], [1.0, -1.0], 0.0
    )


def make_hits(rate: float) -> Moved:
    return lambda source, count: (source.uniform(size=count) < rate) * 1.0


def subtract_scores(score: Moved) -> Moved:
    """Return a draw of the difference between two independent draws of ``score``."""
    return lambda source, count: score(source, count) - score(source, count)


def draw_heavy_group(source: Source, count: int) -> tuple[Floats, Floats]:
    return source.normal(size=count), np.r_[count / 4, np.ones(count - 1)]


def draw_losses_by_length(source: Source, count: int) -> tuple[Floats, Floats]:
    """Draw losses in proportion to a group's log-normal length, which is also its weight."""
    length = source.lognormal(0, 1, count)
    return np.exp(1.5) - length + source.normal(0, 0.5, count), length


def draw_spread_by_size(source: Source, count: int) -> tuple[Floats, Floats]:
    weight = draw_sizes(source, count)
    return source.normal(0, 1 / np.sqrt(weight)), weight


def draw_hidden_clusters(source: Source, count: int) -> Floats:
    """Draw differences in clusters of three similar groups, which the gate does not know of."""
    shared = np.repeat(source.normal(size=count // 3 + 1), 3)[:count]
    return np.sqrt(0.5) * (shared + source.normal(size=count))


def draw_correlated_days(source: Source, count: int) -> Floats:
    moved = source.normal(size=count)
    for day in range(1, count):
        moved[day] = LIKENESS * moved[day - 1] + np.sqrt(1 - LIKENESS**2) * moved[day]
    return moved


def make_rare_disasters(rate: float) -> Moved:
    """Return a draw of a small gain, with a disaster on a share ``rate`` of the groups."""
    loss = (1 - rate) / rate
    return lambda source, count: (
        np.where(source.uniform(size=count) < rate, -loss, 1.0) + source.normal(0, 1, count)
    )


def draw_atom(source: Source, count: int) -> Floats:
    """Draw the same gain on nine of ten groups, and a log-normal loss on the tenth."""
    loss = -9 * np.exp(-0.5) * source.lognormal(0, 1, count)
    return np.where(source.uniform(size=count) < 0.1, loss, 1.0)


def draw_lost_groups(source: Source, count: int) -> Floats:
    """Draw the whole range as loss on one of ten groups, and a gain of a ninth on the others."""
    return np.where(source.uniform(size=count) < 0.1, -1.0, 1 / 9)


WORLDS: dict[str, World] = {
    "normal": make_world(make_normal(1)),
    "normal, unlike sizes": make_world(make_normal(1), sized=True),
    "spread that follows size": World(draw=draw_spread_by_size),
    "Student's t with 2 degrees": make_world(lambda s, n: s.standard_t(2, n)),
    "negative correlation within": make_world(make_normal(0.1), sized=True),
    "one group with 20 % of the weight": World(draw=draw_heavy_group),
    "exponential loss": make_world(lambda s, n: 1 - s.exponential(1, n)),
    "log-normal gain, σ 1": make_world(lambda s, n: -draw_tail(s, n)),
    "log-normal loss, σ 1": make_world(make_tail(1)),
    "log-normal loss, σ 1.5": make_world(make_tail(1.5)),
    "log-normal loss, σ 2": make_world(make_tail(2)),
    "Pareto loss, 1.5": make_world(lambda s, n: 2 - s.pareto(1.5, n)),
    "worse by log-normal length": World(draw=draw_losses_by_length),
    "70 % tie, log-normal, sizes": make_world(mix_draws(0.3, draw_tail, draw_zeros), sized=True),
    "90 % tie, log-normal": make_world(mix_draws(0.1, draw_tail, draw_zeros)),
    "90 % nearly tie, log-normal": make_world(mix_draws(0.1, draw_tail, make_normal(0.01))),
    "80 % nearly tie, log-normal, sizes": make_world(
        mix_draws(0.2, draw_tail, make_normal(0.1)), sized=True
    ),
    "30 % tie, 60 % normal, 10 % σ 1.5": make_world(
        mix_draws(0.1, make_tail(1.5), mix_draws(2 / 3, make_normal(0.1), draw_zeros))
    ),
    "atom at the margin": make_world(draw_atom),
    "much worse on 5 % of groups": make_world(make_rare_disasters(0.05)),
    "much worse on 1 % of groups": make_world(make_rare_disasters(0.01)),
    "hidden clusters of 3": make_world(draw_hidden_clusters),
    "days, AR 0.5, in order": make_world(draw_correlated_days, ordered=True),
    "wins and losses": make_world(make_signs(1.0), largest=1, gains=2),
    "wins and losses, 80 % tie": make_world(make_signs(0.2), largest=1, gains=2),
    "accuracy 0.7": make_world(subtract_scores(make_hits(0.7)), largest=1, gains=1),
    "accuracy 0.98": make_world(subtract_scores(make_hits(0.98)), largest=1, gains=1),
    "MRR": make_world(
        subtract_scores(lambda s, n: 1 / np.floor(1 + s.exponential(2, n))), largest=1, gains=0.5
    ),
    "NDCG near 1": make_world(subtract_scores(lambda s, n: s.beta(20, 1, n)), largest=1, gains=0.1),
    "10 % of groups lost whole": make_world(draw_lost_groups, largest=1, gains=10 / 9),
}


@cache
def compute_standard_error(name: str, groups: int) -> float:
    """Return the standard error of the improvement over test splits of ``groups`` groups."""
    moved, weight = WORLDS[name].draw(np.random.default_rng(0), groups if groups > MANY else MANY)
    residual = (moved - moved @ weight / weight.sum()) * weight
    many = len(weight) / groups
    return float(np.sqrt(residual @ residual) / weight.sum() * np.sqrt(many))


def draw_split(
    name: str, groups: int, seed: int, errors: float = 0.0, level: float = 0.05
) -> Groups:
    """Draw a test split of a world, with a challenger better by ``errors`` standard errors."""
    world = WORLDS[name]
    source = np.random.default_rng([seed, groups, abs(int(1000 * errors))])
    moved, weight = world.draw(source, groups)
    effect = errors * compute_standard_error(name, groups)
    if world.largest is None:
        moved = moved + effect
    elif errors:
        moved = _mend_losses(world, moved, effect, source)
    difference = moved * weight
    if world.ordered:
        difference, weight = sum_into_blocks(difference, weight)
    return Groups(difference=difference, weight=weight, largest=world.largest, level=level)


def _mend_losses(world: World, moved: Floats, effect: float, source: Source) -> Floats:
    """Return the differences with random losses mended, until their mean is the effect."""
    losing = moved < 0
    gain = np.minimum(world.gains, 1 - moved)
    large = world.draw(np.random.default_rng(0), MANY)[0]
    possible = float((np.minimum(world.gains, 1 - large) * (large < 0)).mean())
    mended = losing & (source.uniform(size=len(moved)) < min(1.0, effect / possible))
    return np.where(mended, moved + gain, moved)


def drop_range(groups: Groups) -> Groups:
    """Return the groups without their range, as the gate sees them where none is declared."""
    return replace(groups, largest=None)
