"""One picture: false promotions on the left, power on the right."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # no display
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from benchmarks.gate.promotion import HARD
from benchmarks.gate.simulate import ALPHA
from benchmarks.shards.plots import LIMIT, OTHER, OURS

SHADES = ("#f2b5bd", "#e28a96", OURS, "#8f1f33")


def draw(promotion: dict[str, Any], power: dict[str, Any], path: Path) -> None:
    """A PNG file at ``path``."""
    canvas, (left, right) = plt.subplots(1, 2, figsize=(12, 4.6), layout="constrained")
    _promotion(left, promotion)
    _power(right, power)
    for plot in (left, right):
        plot.yaxis.set_major_formatter(PercentFormatter(1))
        plot.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    canvas.savefig(path, dpi=110)
    plt.close(canvas)


def _promotion(plot: Axes, data: dict[str, Any]) -> None:
    colours = (OURS, "#e28a96", "#8f1f33", OTHER)
    for place, (title, of_groups) in enumerate(data.items()):
        shift = 1 + 0.05 * (place - 1.5)
        groups = [int(number) * shift for number in of_groups]
        for name, style in (("gate", "o"), ("plain", "x")):
            found = [one[name] for one in of_groups.values()]
            rates = [one["rate"] for one in found]
            spread = [
                [one["rate"] - one["low"] for one in found],
                [one["high"] - one["rate"] for one in found],
            ]
            label = title if name == "gate" else None
            plot.errorbar(groups, rates, spread, fmt=style, color=colours[place], label=label,
                          capsize=2, ms=5, lw=1)  # fmt: skip
    plot.axhline(ALPHA, color=LIMIT, ls="--", lw=1)
    plot.annotate(f"declared α, {ALPHA:.0%}", (0.76, ALPHA), (0, -12), color=LIMIT, ha="center",
                  xycoords=("axes fraction", "data"), textcoords="offset points")  # fmt: skip
    plot.annotate("× plain comparison of two values", (0.02, 0.56), color=LIMIT,
                  xycoords=("axes fraction", "data"))  # fmt: skip
    plot.set(xscale="log", ylim=(0, 0.6), title="Promoted although not better")
    plot.set(xlabel="groups in the test split", ylabel="of simulated pairs, 95 % interval")
    numbers = [int(number) for number in data[HARD]]
    plot.set_xticks(numbers, [f"{number:,}" for number in numbers])
    plot.minorticks_off()
    plot.legend(frameon=False, loc="center", bbox_to_anchor=(0.5, 0.45), title="● gate")


def _power(plot: Axes, data: dict[str, Any]) -> None:
    for (groups, found), colour in zip(data.items(), SHADES, strict=False):
        curve = found["curve"]
        effects, rates = ([point[key] for point in curve] for key in ("effect", "rate"))
        label = f"{int(groups):,} groups of 20 examples"
        plot.plot(effects, rates, "o-", color=colour, label=label, ms=4)
        lows, highs = ([point[key] for point in curve] for key in ("low", "high"))
        plot.fill_between(effects, lows, highs, color=colour, alpha=0.15, lw=0)
        plot.plot(found["detectable"], 0.8, "D", color=colour, mec=LIMIT, ms=7, clip_on=True)
    plot.axhline(0.8, color=LIMIT, ls=":", lw=1)
    plot.axhline(ALPHA, color=LIMIT, ls="--", lw=1)
    right = max(point["effect"] for found in data.values() for point in found["curve"])
    plot.set(xlim=(0, right), ylim=(0, 1.02), title="Promoted, and better (power)")
    plot.set(xlabel="true improvement of a mean loss of 1")
    plot.plot([], [], "D", color="white", mec=LIMIT, ms=7, label="80 %, says the check of power")
    plot.legend(loc="lower right", bbox_to_anchor=(1, 0.06), edgecolor="none", framealpha=0.9)
