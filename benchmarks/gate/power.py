"""Measure how often the gate promotes a challenger that is better, by effect and groups."""

import statistics
from functools import partial

from benchmarks.gate.judge import FIRST, judge, sums
from benchmarks.gate.setting import Setting, data, rate
from benchmarks.gate.simulate import Kind, World
from benchmarks.harness import Figure, Section, Target
from conditions.paired import improvement

EFFECTS: dict[Kind, tuple[float, ...]] = {
    "loss": (0.01, 0.02, 0.03, 0.04, 0.06),
    "accuracy": (0.01, 0.02, 0.03, 0.05),
    "heavy": (0.01, 0.02, 0.03, 0.05),
}
"""World → true improvements, in the metric's unit. In these the usual limits are right."""
LOST = 0.05
"""Power that minding skewness and looks may cost."""


def power(setting: Setting) -> Section:
    """Measure the power of the gate and of the usual limits in each world."""
    section = Section("power", "Promoted and truly better, %: the gate (usual limits)")
    section.columns = ("world", "groups", *("improvement: rate",) * 5, "80 % at, says the gate")
    lost: list[tuple[float, int]] = []
    for kind, effects in EFFECTS.items():
        for groups in setting.groups:
            curve = []
            for effect in effects:
                world = World(kind=kind, groups=groups, effect=effect)
                found = setting.each(f"power, {kind}, {groups} groups, {effect:g}",
                                     partial(judge, world, None), setting.pairs)  # fmt: skip
                gate, usual = (rate([getattr(one, n) for one in found]) for n in ("gate", "usual"))
                lost.append((usual.median - gate.median, len(found)))
                curve.append({"effect": effect, "usual": data(usual)} | data(gate))
            said = statistics.median(setting.each("", partial(_detectable, kind, groups), 100))
            section.rows.append((kind, f"{groups:,}", *_cells(curve), f"{said:.3f}"))
            of_kind = section.data.setdefault(kind, {})
            of_kind[str(groups)] = {"detectable": said, "curve": curve}
    worst, pairs = max(lost)
    section.targets.append(
        Target(f"power lost to the usual limits, at most ({pairs:,} pairs)", Figure((worst,)), "≤",
               LOST, "%")
    )  # fmt: skip
    section.notes.append(
        "The last column is the median of what the check of power names as the smallest "
        "improvement that is found with 80 %."
    )
    return section


def _cells(curve: list[dict]) -> list[str]:
    shown = [f"{point['effect']:g}: {100 * point['rate']:.0f} ({100 * point['usual']['rate']:.0f})"
             for point in curve]  # fmt: skip
    return shown + [""] * (5 - len(shown))


def _detectable(kind: Kind, groups: int, seed: int) -> float:
    return improvement(*sums(World(kind=kind, groups=groups), seed), FIRST).detectable(0.8)
