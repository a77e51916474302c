"""The check of slices: harmless models that it stops, and bad slices that it finds."""

from functools import partial

import numpy as np

from benchmarks.gate.judge import ALPHA, CONFIDENCE
from benchmarks.gate.setting import Setting, percent, rate
from benchmarks.harness import Figure, Section, Target
from conditions.checks.slice_regression import SLICE_REGRESSION
from conditions.confidence_limits import Student, freedom, jackknife
from conditions.paired import Floats, improvement
from conditions.slices import Part, holm, judge_slices

SPLITS = ((10, 12), (10, 30), (10, 100), (1, 30), (3, 100), (3, 300), (1, 600))
"""Slices, and groups of each."""
SHAPES = ("normal", "exponential", "log-normal", "rare luck")
BAD = 3.5
"""Standard errors by which one slice is worse, for its harm to be found."""
SPREAD = 0.1
LUCK = 0.05
"""Share of groups on which a challenger with rare luck is much better."""


def slices(setting: Setting) -> Section:
    section = Section("slices", "Models stopped for a slice, %")
    section.columns = ("slices × groups", *(f"harmless, {shape}" for shape in SHAPES),
                       "harmless, rare luck, usual", "a bad slice found", "usual")  # fmt: skip
    runs = max(4, setting.pairs // 2)
    harmless: dict[str, list[bool]] = {shape: [] for shape in SHAPES}
    finds, before = [], []
    for slices, groups in SPLITS:
        found = {}
        for shape in SHAPES:
            run = partial(stopped, shape, slices, groups, 0.0)
            found[shape] = setting.each(f"{slices} × {groups}, {shape}", run, runs)
        bad = setting.each(f"{slices} × {groups}, bad",
                           partial(stopped, "normal", slices, groups, BAD), runs)  # fmt: skip
        gate = {shape: rate([one for one, _ in found[shape]]) for shape in SHAPES}
        usual = rate([other for _, other in found["rare luck"]])
        rates = [rate([one[n] for one in bad]) for n in (0, 1)]
        section.rows.append((f"{slices} × {groups}", *(percent(one) for one in gate.values()),
                             percent(usual), *map(percent, rates)))  # fmt: skip
        section.data[f"{slices} × {groups}"] = {
            "harmless": {shape: figure.data() for shape, figure in gate.items()},
            "rare luck, usual": usual.data(),
            "found": rates[0].data(),
            "found, usual": rates[1].data(),
        }
        for shape in SHAPES:
            harmless[shape] += [one for one, _ in found[shape]]
        finds += [one for one, _ in bad]
        before += [one for _, one in bad]
    for shape in SHAPES[:3]:
        what = f"harmless models stopped, {shape} ({len(finds):,} runs)"
        section.targets.append(Target(what, rate(harmless[shape]), "≤", ALPHA, "%"))
    lost = Figure((rate(before).median - rate(finds).median,))
    what = f"bad slices that only the usual test found ({len(finds):,} runs)"
    section.targets.append(Target(what, lost, "≤", 0.01, "%"))
    section.notes.append(
        "Harmless: on no slice truly worse. Rare luck: much better on 5 % of the groups, a little "
        f"worse on the others. Bad: one slice is worse by {BAD:g} standard errors. Usual: "
        "Student's t of each slice alone."
    )
    return section


def stopped(shape: str, slices: int, groups: int, bad: float, seed: int) -> tuple[bool, bool]:
    """(by the gate, by the usual test): was the model stopped, margin 0?"""
    source = np.random.default_rng([seed, slices, groups])
    parts = [_part(shape, f"s={place}", groups, source) for place in range(slices)]
    if bad:
        first = parts[0]
        error = SPREAD * np.sqrt(first.weight @ first.weight)
        moved = first.difference - bad * error / first.weight.sum() * first.weight
        parts[0] = Part(slice="s=0", examples=1000, difference=moved, weight=first.weight)
    check, _ = judge_slices(
        SLICE_REGRESSION, parts, "m", 0.0, confidence=CONFIDENCE, min_examples=1, min_groups=2
    )
    chances = holm(np.array([_usual(part) for part in parts]))
    return not check.passed, bool((chances <= ALPHA).any())


def _part(shape: str, name: str, groups: int, source: np.random.Generator) -> Part:
    weight = source.lognormal(3, 0.5, groups)
    return Part(slice=name, examples=1000, difference=_moved(shape, groups, source) * weight,
                weight=weight)  # fmt: skip


def _moved(shape: str, groups: int, source: np.random.Generator) -> Floats:
    """(groups,) of mean 0; the skewed ones look worse than they are where the long tail lacks."""
    if shape == "normal":
        return source.normal(0, SPREAD, groups)
    if shape == "exponential":
        return SPREAD * (source.exponential(1, groups) - 1)
    if shape == "log-normal":
        return SPREAD * (source.lognormal(0, 1, groups) - np.exp(0.5))
    lucky = source.uniform(size=groups) < LUCK
    moved = np.where(lucky, (1 - LUCK) / LUCK * SPREAD, -SPREAD)
    return moved + source.normal(0, SPREAD / 2, groups)


def _usual(part: Part) -> float:
    found = improvement(part.difference, part.weight, CONFIDENCE, resamples=0)
    share = part.weight / part.weight.sum()
    error, _ = jackknife(part.difference / part.weight.sum() - found.value * share, share)
    return Student(error=error, freedom=freedom(found.effective_groups)).chance(-found.value)
