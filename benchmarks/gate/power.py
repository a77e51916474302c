"""How often the gate promotes a challenger that is better, by effect and size of the test split."""

import statistics
from functools import partial

from benchmarks.gate.promotion import rate
from benchmarks.gate.setting import Setting
from benchmarks.gate.simulate import MEAN_GROUP, World, judge
from benchmarks.shards.figures import Section

EFFECTS = (0.0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06)
"""Improvements of a mean loss of 1, in the loss's unit."""


def measure(setting: Setting) -> Section:
    section = Section("power", "Promoted as superior, % of challengers that are better by so much")
    section.columns = (
        "groups (examples)", *(f"{effect:g}" for effect in EFFECTS), "80 % at, says the gate"
    )  # fmt: skip
    for groups in setting.groups:
        found = {
            effect: setting.each(
                f"power, {groups} groups, {effect:g}",
                partial(judge, World(kind="loss", groups=groups, effect=effect), None),
                max(1, setting.pairs // 4),
            )
            for effect in EFFECTS
        }
        curve = {effect: rate([one.promoted for one in outcomes])
                 for effect, outcomes in found.items()}  # fmt: skip
        said = statistics.median(one.detectable for one in found[EFFECTS[0]])
        rates = (f"{100 * figure.median:.0f}" for figure in curve.values())
        examples = f"{groups:,} ({groups * MEAN_GROUP:,.0f})"
        section.rows.append((examples, *rates, f"{said:.3f}"))
        section.data[str(groups)] = {
            "detectable": said,
            "curve": [
                {"effect": effect, "rate": figure.median, "low": figure.low, "high": figure.high}
                for effect, figure in curve.items()
            ],
        }
    section.notes.append(
        "The last column is the median of what the check of power names as the smallest "
        "improvement that is found with 80 %."
    )
    return section
