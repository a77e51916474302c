"""CPU seconds of a step and of the start beside DDP by hand, as one picture."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display
import matplotlib.pyplot as plt

from benchmarks.shards.figures import Section
from benchmarks.training.entries import ENTRIES

OURS, HAND, OTHER = "#d1495b", "#2e4057", "#8d99ae"
WHAT = {
    "step_cpu_over_hand": "CPU of a step ÷ DDP by hand",
    "first_cpu_over_hand": "CPU to the first step ÷ DDP by hand",
}


def draw(sections: Sequence[Section], folder: Path) -> Path:
    """``folder/training.png``: a row of bars for each number of processes."""
    folder.mkdir(parents=True, exist_ok=True)
    worlds = [section for section in sections if section.name.startswith("world_")]
    heights = [len(section.rows) for section in worlds]
    size = (12, 0.34 * sum(heights) + 1.5 * len(worlds))
    canvas, axes = plt.subplots(
        len(worlds), 2, figsize=size, squeeze=False, height_ratios=heights, layout="constrained"
    )
    for row, section in zip(axes, worlds, strict=True):
        entries = [entry for entry in reversed(ENTRIES) if entry.name in section.data]
        for plot, (key, title) in zip(row, WHAT.items(), strict=True):
            for y, entry in enumerate(entries):
                figure = section.data[entry.name][key]
                color = OURS if entry.ours else HAND if entry.name.startswith("hand") else OTHER
                plot.barh(y, figure["median"], 0.7, color=color)
                plot.hlines(y, figure["min"], figure["max"], color="black", linewidth=1)
                plot.text(figure["max"], y, f" {figure['median']:.2f}", va="center", fontsize=8)
            plot.axvline(1, color="black", linewidth=0.5)
            plot.set_yticks(range(len(entries)), [entry.label for entry in entries], fontsize=8)
            plot.set_title(f"{title}, {section.title}", fontsize=10)
            plot.spines[["top", "right"]].set_visible(False)
    path = folder / "training.png"
    canvas.savefig(path, dpi=110)
    plt.close(canvas)
    return path
