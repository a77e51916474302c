"""Count promotions: of challengers that are no better, are better, or are one of many tries."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.gate.judge import ALPHA, CONFIDENCE, FIRST, Outcome, judge, promoted, usual
from benchmarks.gate.setting import Setting, data, percent, rate
from benchmarks.gate.simulate import RATES, Kind, World, standard_error
from benchmarks.harness import Section, Target
from conditions.alpha_spending import spent
from conditions.paired import Floats

MARGIN, NEAR = 0.03, 0.005
INFLUENCE = 0.5
"""Value of ``max_group_influence`` in the last column."""
CASES: tuple[tuple[str, Kind, float | None], ...] = (
    ("loss", "loss", None),
    ("accuracy", "accuracy", None),
    (f"accuracy, not inferior by {MARGIN:g}", "accuracy", MARGIN),
    ("heavy tails", "heavy", None),
    ("exponential tail", "skewed", None),
    ("log-normal tail", "log-normal", None),
    ("worse by log-normal length", "lengths", None),
    ("days, AR 0.5, in order", "days", None),
    ("10 % of groups differ, normal", "tied 90 %, normal", None),
    ("10 % of groups differ, exponential", "tied 90 %, exponential", None),
    ("5 % of groups differ, log-normal", "tied 95 %", None),
    ("10 % of groups differ, log-normal", "tied 90 %", None),
    ("30 % of groups differ, log-normal", "tied 70 %", None),
    (f"10 % differ, log-normal, not inferior by {NEAR:g}", "tied 90 %", NEAR),
    ("each group five times", "copies", None),
    ("days, AR 0.5, order not declared", "undeclared days", None),
    ("much worse on 5 % of groups", "disaster 5 %", None),
    ("much worse on 1 % of groups", "disaster 1 %", None),
)
"""The last two no method covers without a bad group in the sample, and an order that nobody
declares is only said: no targets."""
HOPELESS = tuple(t for t, kind, _ in CASES if kind in RATES or kind == "undeclared days")


def promotion(setting: Setting) -> Section:
    section = Section("promotion", f"Promoted although not better, %; declared: {100 * ALPHA:g}")
    section.columns = ("world", "groups", "pairs", "gate", "95 % interval", "usual limits",
                       "plain comparison", f"gate, influence ≤ {INFLUENCE:g}",
                       "said to be alike")  # fmt: skip
    for title, kind, margin in CASES:
        pooled: list[Outcome] = []
        for groups in setting.groups:
            # Just not good enough: no better at all, or worse by the very margin.
            world = World(kind=kind, groups=groups, effect=-margin if margin else 0.0)
            found = setting.each(
                f"{title}, {groups} groups", partial(judge, world, margin), setting.pairs
            )
            _report(section, title, groups, found)
            pooled += found
        if title not in HOPELESS:
            promoted = rate([one.gate for one in pooled])
            what = f"false promotions, {title} ({len(pooled):,} pairs)"
            section.targets.append(Target(what, promoted, "≤", ALPHA, "%"))
    section.notes.append(
        "The exact 95 % interval (Clopper & Pearson) of a rate from so many pairs. Both models of "
        "a pair are truly equal; at non-inferiority the challenger is worse by the very margin. "
        "Usual limits: Student's t and the bootstrap-t at 0.95. The last column: a promotion in "
        "which one group has more than half of the variance does not count; and how often the "
        "reason says that neighbours are alike though no order is declared."
    )
    return section


def _report(section: Section, title: str, groups: int, found: Sequence[Outcome]) -> None:
    rates = {
        "gate": rate([one.gate for one in found]),
        "usual": rate([one.usual for one in found]),
        "plain": rate([one.plain for one in found]),
        "influence": rate([one.gate and one.influence <= INFLUENCE for one in found]),
        "alike": rate([one.alike for one in found]),
    }
    gate = rates["gate"]
    interval = f"{100 * gate.low:.1f}–{100 * gate.high:.1f}"
    others = (
        f"{100 * rates[name].median:.1f}" for name in ("usual", "plain", "influence", "alike")
    )
    section.rows.append(
        (title, f"{groups:,}", f"{len(found):,}", f"{100 * gate.median:.1f}", interval, *others)
    )
    of_groups = section.data.setdefault(title, {})
    figures = {name: data(figure) for name, figure in rates.items()}
    of_groups[str(groups)] = {"pairs": len(found)} | figures


FOUR = 4.0
KINDS: tuple[Kind, ...] = (
    "loss", "accuracy", "heavy", "skewed", "log-normal", "tied 90 %, normal",
    "tied 90 %, exponential", "tied 95 %", "tied 90 %", "tied 70 %",
)  # fmt: skip
LEAST = {"loss": 0.9, "tied 90 %, normal": 0.9}
"""Power that is demanded from 300 groups on."""


def sure(setting: Setting) -> Section:
    section = Section("sure", f"Promoted when better by {FOUR:g} standard errors, %")
    section.columns = ("world", "groups", "gate", "usual limits")
    for kind in KINDS:
        for groups in setting.groups:
            world = World(kind=kind, groups=groups, effect=FOUR * standard_error(kind, groups))
            found = setting.each(f"sure, {kind}, {groups} groups", partial(judge, world, None),
                                 max(4, setting.pairs // 2))  # fmt: skip
            gate, usual = (
                rate([getattr(one, name) for one in found]) for name in ("gate", "usual")
            )
            section.rows.append((kind, f"{groups:,}", percent(gate), percent(usual)))
            section.data.setdefault(kind, {})[str(groups)] = data(gate) | {"usual": data(usual)}
            if kind in LEAST and groups >= 300:
                what = f"promoted when better by {FOUR:g} standard errors, {kind}, {groups} groups"
                section.targets.append(Target(what, gate, "≥", LEAST[kind], "%"))
    section.notes.append("In a tied world the improvement is on the groups that differ alone.")
    return section


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
    """For each of ``TRIES``: whether one of them was promoted, with the levels of the looks."""
    unspent: tuple[bool, ...]
    """For each of ``TRIES``: whether one was, each at the full level, by the usual limits."""


@dataclass(frozen=True, slots=True)
class Crowned:
    """One new challenger, against a champion that was the best of ten on this very split."""

    equal: bool
    """Promoted, and no better."""
    better: bool
    """Promoted, and better by ``BETTER`` standard errors."""
    better_than_any: bool
    """Promoted, and better by as much, against a champion that was not selected."""


def looks(setting: Setting) -> Section:
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
