"""Trying again and again on one test split, until one try is promoted."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.gate.judge import ALPHA, CONFIDENCE, FIRST, promoted, usual
from benchmarks.gate.promotion import data, percent, rate
from benchmarks.gate.setting import Setting
from benchmarks.harness import Section, Target
from conditions.alpha_spending import spent
from conditions.paired import Floats

TRIES = (1, 10, 50)
NOISE = 0.05
"""Standard deviation of a group's luck with one training."""
LUCK = 0.006
"""Standard deviation of a seed's true quality, which is a seed's for ever: see ``seeds``."""
BETTER = 2.6
"""Standard errors, which the usual limits find with some 80 %."""


@dataclass(frozen=True, slots=True)
class Tried:
    """One series of challengers against one champion on one test split."""

    spent: tuple[bool, ...]
    """Of each of ``TRIES``: one of so many was promoted, with the levels of the looks."""
    unspent: tuple[bool, ...]
    """Each at the full level, by the usual limits."""


@dataclass(frozen=True, slots=True)
class Crowned:
    """One new challenger, against a champion that was the best of ten on this very split."""

    equal: bool
    """Promoted, and no better."""
    better: bool
    """Promoted, and better by ``BETTER`` standard errors."""
    better_than_any: bool
    """The same against a champion that was not selected."""


def measure(setting: Setting) -> Section:
    section = Section("looks", "One of K equal challengers promoted, %")
    section.columns = ("", "groups", *(f"K = {tries}" for tries in TRIES))
    runs = max(4, setting.pairs // 4)
    any_of_all: list[bool] = []
    for groups in setting.groups:
        found = setting.each(f"looks, {groups} groups", partial(tried, groups), runs)
        for title, name in (("levels of the looks", "spent"), ("each at α", "unspent")):
            rates = [rate([getattr(one, name)[k] for one in found]) for k in range(len(TRIES))]
            section.rows.append((title, f"{groups:,}", *(percent(one) for one in rates)))
            section.data.setdefault(title, {})[str(groups)] = [data(one) for one in rates]
        any_of_all += [one.spent[-1] for one in found]
    target = f"one of {TRIES[-1]} equal challengers promoted ({len(any_of_all):,} runs)"
    section.targets.append(Target(target, rate(any_of_all), "≤", ALPHA, "%"))
    for groups in setting.groups:
        found = setting.each(f"crowned, {groups} groups", partial(crowned, groups), runs)
        rates = [rate([getattr(one, name) for one in found])
                 for name in ("equal", "better", "better_than_any")]  # fmt: skip
        section.rows.append(("champion the best of ten here: equal | better | better, champion "
                             "not selected", f"{groups:,}", *map(percent, rates)))  # fmt: skip
        section.data.setdefault("crowned", {})[str(groups)] = [data(one) for one in rates]
        lucky = rate(setting.each(f"seeds, {groups} groups", partial(seeds, groups), setting.pairs))
        section.rows.append(("another seed of one recipe", f"{groups:,}", percent(lucky), "", ""))
        section.data.setdefault("seeds", {})[str(groups)] = data(lucky)
    section.notes.append(
        "The tries share champion and test split. Another seed: seeds differ truly, with a "
        f"standard deviation of {LUCK:g} where a group's luck has {NOISE:g}; the better one is "
        "rightly promoted, and the recipe is no better."
    )
    return section


def tried(groups: int, seed: int) -> Tried:
    """All challengers of one run, the champion and the split being the same."""
    source = np.random.default_rng([seed, groups])
    weight, champion = _split(source, groups)
    kept, plain = [], []
    for look in range(1, max(TRIES) + 1):
        difference = (source.normal(0, NOISE, groups) - champion) * weight
        confidence = 1 - spent(1 - CONFIDENCE, look)
        kept.append(promoted(difference, weight, 0.0, confidence))
        plain.append(usual(difference, weight, 0.0))
    return Tried(
        tuple(any(kept[:tries]) for tries in TRIES), tuple(any(plain[:tries]) for tries in TRIES)
    )


def crowned(groups: int, seed: int) -> Crowned:
    """The champion was promoted because it did best here: its luck on this split stays with it."""
    source = np.random.default_rng([seed, groups])
    weight, anyone = _split(source, groups)
    tries = [anyone, *(source.normal(0, NOISE, groups) for _ in range(9))]
    best = max(tries, key=lambda one: float(one @ weight))
    challenger = source.normal(0, NOISE, groups)
    error = NOISE * np.sqrt(2 * (weight @ weight)) / weight.sum()

    def passes(champion: Floats, effect: float) -> bool:
        difference = (challenger + effect - champion) * weight
        return promoted(difference, weight, 0.0, FIRST)

    gain = BETTER * error
    return Crowned(passes(best, 0.0), passes(best, gain), passes(anyone, gain))


def seeds(groups: int, seed: int) -> bool:
    """Two trainings of one recipe, whose seeds make them truly unequal."""
    source = np.random.default_rng([seed, groups])
    weight, champion = _split(source, groups)
    quality = source.normal(0, LUCK, 2)
    challenger = source.normal(0, NOISE, groups)
    difference = (challenger + quality[0] - champion - quality[1]) * weight
    return promoted(difference, weight, 0.0, FIRST)


def _split(source: np.random.Generator, groups: int) -> tuple[Floats, Floats]:
    """Weights of the groups, and the champion's luck in them."""
    return source.lognormal(3, 0.5, groups), source.normal(0, NOISE, groups)
