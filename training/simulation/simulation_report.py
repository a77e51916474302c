"""A simulated step for people: a table, and what is alive over the step as a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from rich.table import Table

from training.simulation.allocations import CATEGORIES

GIB = 2**30
COLOURS = ("#1e3a8a", "#2563eb", "#60a5fa", "#f59e0b", "#10b981", "#94a3b8")
POINTS = 2000
"""Moments that a picture shows at most."""


def table(found: Sequence[Mapping[str, float]], title: str) -> Table:
    """A row for each simulated rank; GiB.

    Args:
        found: what ``training.simulate`` gives for each of them.
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
    """What is alive over the simulated steps, category upon category, as a PNG."""
    step = max(1, len(moments) // POINTS)
    # Of each stretch its highest moment, so that no peak is left out.
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
