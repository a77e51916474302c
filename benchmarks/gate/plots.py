"""Draw false promotions and power in one picture."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # no display
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from benchmarks.gate.judge import ALPHA
from benchmarks.gate.promotion import HOPELESS

OURS, LIMIT = "#d1495b", "#2e4057"
COLOURS = matplotlib.colormaps["tab10"].colors
SHADES = ("#f2b5bd", "#e28a96", OURS, "#8f1f33")


def draw(promotion: dict[str, Any], power: dict[str, Any], path: Path) -> None:
    """Write a PNG file: promotions on the left, power on the right."""
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
    """Draw ● for the gate, × for the usual limits; worlds that nothing covers are hollow."""
    for place, (title, of_groups) in enumerate(data.items()):
        shift = 1 + 0.035 * (place - len(data) / 2)
        groups = [int(number) * shift for number in of_groups]
        colour = COLOURS[place % len(COLOURS)]
        found = [one["gate"] for one in of_groups.values()]
        rates = [one["rate"] for one in found]
        spread = [
            [one["rate"] - one["low"] for one in found],
            [one["high"] - one["rate"] for one in found],
        ]
        filled = "white" if title in HOPELESS else colour
        plot.errorbar(groups, rates, spread, fmt="o", color=colour, mfc=filled, label=title,
                      capsize=2, ms=5, lw=1)  # fmt: skip
        usual = [one["usual"]["rate"] for one in of_groups.values()]
        plot.plot(groups, usual, "x", color=colour, ms=5, alpha=0.7)
    plot.axhline(ALPHA, color=LIMIT, ls="--", lw=1)
    plot.set(xscale="log", ylim=(0, 0.8), title="Promoted although not better")
    plot.set(xlabel="groups in the test split", ylabel="of simulated pairs, 95 % interval")
    numbers = [int(number) for number in next(iter(data.values()))]
    plot.set_xticks(numbers, [f"{number:,}" for number in numbers])
    plot.minorticks_off()
    plot.legend(frameon=False, loc="upper right", ncol=2, fontsize=6, title_fontsize=8,
                title="● gate  × usual limits  -- declared α, 5 %")  # fmt: skip


def _power(plot: Axes, data: dict[str, Any]) -> None:
    for (groups, found), colour in zip(data["loss"].items(), SHADES, strict=False):
        curve = found["curve"]
        effects, rates = ([point[key] for point in curve] for key in ("effect", "rate"))
        label = f"{int(groups):,} groups of 20 examples"
        plot.plot(effects, rates, "o-", color=colour, label=label, ms=4)
        lows, highs = ([point[key] for point in curve] for key in ("low", "high"))
        plot.fill_between(effects, lows, highs, color=colour, alpha=0.15, lw=0)
        usual = [point["usual"]["rate"] for point in curve]
        plot.plot(effects, usual, ":", color=colour, lw=1.2)
        plot.plot(found["detectable"], 0.8, "D", color=colour, mec=LIMIT, ms=7, clip_on=True)
    plot.axhline(0.8, color=LIMIT, ls=":", lw=1)
    right = max(point["effect"] for found in data["loss"].values() for point in found["curve"])
    plot.set(xlim=(0, right), ylim=(0, 1.02), title="Promoted, and better (power), loss")
    plot.set(xlabel="true improvement of a mean loss of 1")
    plot.plot([], [], ":", color=LIMIT, label="the usual limits")
    plot.plot([], [], "D", color="white", mec=LIMIT, ms=7, label="80 %, says the check of power")
    plot.legend(loc="lower right", edgecolor="none", framealpha=0.9, fontsize=8)
