"""A simulated step for people: a table, and a plot of the live memory over the step."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich.table import Table

from training.simulation.allocations import CATEGORIES

GIB = 2**30
COLOURS = ("#1e3a8a", "#2563eb", "#60a5fa", "#f59e0b", "#10b981", "#94a3b8")
POINTS = 2000
"""Largest number of moments in a plot."""


def table(found: Sequence[Mapping[str, Any]], title: str) -> Table:
    """Return a table in GiB with a row for each simulated rank.

    Args:
        found: result of ``training.simulate`` for each rank.
    """
    made = Table(box=None, pad_edge=False, title=title, title_justify="left")
    for name in ("rank", "stage", *CATEGORIES, "peak", "reserved"):
        made.add_column(name, justify="right", no_wrap=True)
    for one in found:
        numbers = (*(one["peak"][name] for name in CATEGORIES), one["peak_bytes"], one["reserved"])
        sizes = (f"{number / GIB:,.2f}" for number in numbers)
        made.add_row(str(one["rank"]), str(one["stage"]), *sizes)
    return made


def draw(moments: Sequence[Mapping[str, int]], title: str, path: Path) -> None:
    """Plot live memory over the simulated steps, stacked by category, as a PNG."""
    step = max(1, len(moments) // POINTS)
    # The highest moment of each stretch, so that no peak is lost.
    stretches = [moments[n : n + step] for n in range(0, len(moments), step)]
    shown = [max(stretch, key=lambda one: sum(one.values())) for stretch in stretches]
    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots()
    heights = [[one[name] / GIB for one in shown] for name in CATEGORIES]
    axes.stackplot(range(len(shown)), heights, labels=CATEGORIES, colors=COLOURS)
    axes.set(ylabel="GiB", xlabel="allocations and their ends, in order", title=title)
    axes.set_xticks([])
    axes.margins(x=0)
    axes.grid(axis="y", color="#cbd5e1")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(
        handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1, 0.5), frameon=False
    )
    figure.savefig(path, dpi=150)
