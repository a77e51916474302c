"""The figures as pictures, one PNG for each section that has something to see."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # no display
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from benchmarks.shards.contenders import ENTRIES
from benchmarks.shards.figures import Section

OURS, LIMIT, OTHER, PALE = "#d1495b", "#2e4057", "#8d99ae", "#d0d6e0"
COLORS = {"ours": OURS, "limit": LIMIT, "peer": OTHER, "format": PALE, "reference": PALE}
ROLES = {entry.module: entry.role for entry in ENTRIES}
LABELS = {entry.module: entry.label for entry in ENTRIES}


def draw(sections: Sequence[Section], folder: Path) -> list[Path]:
    """PNG files in the folder, by the sections' names."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for section in sections:
        if section.name in PLOTS:
            canvas = PLOTS[section.name](section.data)
            written.append(folder / f"{section.name}.png")
            canvas.savefig(written[-1], dpi=110)
            plt.close(canvas)
    return written


def _read(data: dict[str, Any]) -> Canvas:
    canvas, axes = plt.subplots(1, 2, figsize=(12, 4.8), sharey=True, layout="constrained")
    names = sorted(data, key=lambda name: data[name]["in order"]["median"])
    for plot, order in zip(axes, ("in order", "shuffled"), strict=True):
        _bars(plot, {name: data[name][order] for name in names}, 1e6)
        plot.set(title=f"Read {order}", xlabel="million tokens a second, one process")
    _legend(axes[1])
    return canvas


def _write(data: dict[str, Any]) -> Canvas:
    canvas, plot = plt.subplots(figsize=(8, 4.5), layout="constrained")
    names = sorted(data, key=lambda name: data[name]["median"])
    _bars(plot, {name: data[name] for name in names}, 1e6)
    plot.set(title="Write, pre-tokenised", xlabel="million tokens a second, one process")
    _legend(plot)
    return canvas


def _resume(data: dict[str, Any]) -> Canvas:
    canvas, plot = plt.subplots(figsize=(8, 4), layout="constrained")
    names = sorted(data, key=lambda name: -data[name]["at 50 %"]["median"])
    points = ("at 90 %", "at 50 %", "at 1 %")  # bars are drawn from below
    for number, point in enumerate(points):
        offset, shade = (number - 1) * 0.27, 1 - 0.3 * number
        values = {name: data[name][point] for name in names}
        _bars(plot, values, 1e-3, offset=offset, height=0.25, alpha=shade, text=point)
    plot.set(title="Resume in mid-epoch", xlabel="milliseconds to the first batch")
    plot.set_xlim(right=plot.get_xlim()[1] * 3)
    return canvas


def _bars(
    plot: Axes,
    figures: dict[str, dict[str, Any]],
    unit: float,
    *,
    offset: float = 0,
    height: float = 0.7,
    alpha: float = 1,
    text: str = "",
) -> None:
    """Medians with the spread as whiskers, on a logarithmic scale, each with its number."""
    for row, (name, figure) in enumerate(figures.items()):
        middle, low, high = (figure[key] / unit for key in ("median", "min", "max"))
        y = row + offset
        plot.barh(y, middle, height, color=COLORS[ROLES[name]], alpha=alpha)
        plot.hlines(y, low, high, color="black", linewidth=1)
        label = f"{middle:,.3g}" if middle < 1000 else f"{middle:,.0f}"
        note = f" {label}  {text}".rstrip()
        plot.text(high, y, note, va="center", fontsize=8 if not text else 7)
    plot.set_yticks(range(len(figures)), [LABELS[name] for name in figures])
    plot.set_xscale("log")
    plot.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    plot.set_xlim(right=plot.get_xlim()[1] * 1.6)
    plot.spines[["top", "right"]].set_visible(False)


def _legend(plot: Axes) -> None:
    meanings = {
        LIMIT: "the limit",
        OTHER: "libraries",
        PALE: "formats and loops: no order, no state",
    }
    bars = [Patch(color=color, label=meaning) for color, meaning in meanings.items()]
    plot.legend(handles=bars, frameon=False, loc="lower right", fontsize=8)


def _memory(data: dict[str, Any]) -> Canvas:
    canvas, plot = plt.subplots(figsize=(7, 4), layout="constrained")
    many = [peak for peak in data["peaks"] if not peak["single"]]
    one = [peak for peak in data["peaks"] if peak["single"]]
    label = f"in objects of {data['object_mb']} MB"
    sizes, peaks = ([peak[key] for peak in many] for key in ("mb", "peak_mb"))
    plot.plot(sizes, peaks, "o-", color=OURS, label=label)
    sizes, peaks = ([peak[key] for peak in one] for key in ("mb", "peak_mb"))
    plot.plot(sizes, peaks, "s", color=LIMIT, label="in one object")
    line = [peak["mb"] for peak in many]
    plot.plot(line, line, ":", color=OTHER, label="as large as the input")
    top = max(peak["peak_mb"] for peak in data["peaks"])
    plot.set(xscale="log", ylim=(0, top * 1.5), title="Peak memory of the shard job")
    plot.set(xlabel="input, MB of text", ylabel="all processes, MB")
    plot.set_xticks(line, [f"{mb:,g}" for mb in line])
    plot.minorticks_off()
    plot.legend(frameon=False)
    plot.spines[["top", "right"]].set_visible(False)
    return canvas


def _shuffle(data: dict[str, Any]) -> Canvas:
    canvas, plot = plt.subplots(figsize=(8, 4), layout="constrained")
    styles = {"windowed": (OTHER, 1.5), "true permutation": (LIMIT, 1), "uniform": (OURS, 1)}
    for name, (color, width) in styles.items():
        label = f"{name} (χ² z-score {data[name]['z']:+,.1f})"
        style = {"color": color, "linewidth": width, "label": label, "baseline": None}
        plot.stairs(data[name]["ratio"], data[name]["edges"], **style)
    plot.axhline(1, color="black", linewidth=0.5)
    plot.set(yscale="log", xlim=(0, 1), title="Shuffle: how far neighbours lie apart")
    plot.set(xlabel="distance ÷ samples", ylabel="neighbours ÷ expected")
    plot.set_ylim(0.3, max(3, 1.5 * max(data["windowed"]["ratio"])))
    plot.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    plot.legend(frameon=False)
    plot.spines[["top", "right"]].set_visible(False)
    return canvas


PLOTS: dict[str, Callable[[dict[str, Any]], Canvas]] = {
    "read": _read,
    "write": _write,
    "resume": _resume,
    "memory": _memory,
    "shuffle": _shuffle,
}
