"""The picture of a dataset: what values its fields hold, and how even its shards are."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from training.data.dataset import Dataset

COLOURS = ("#2563eb", "#d97706", "#16a34a", "#dc2626")
FEW = 64  # distinct values that are drawn one by one
MOST = 24  # panels


def draw(
    datasets: Mapping[str, Dataset], looked: Mapping[str, Mapping[str, np.ndarray]], path: Path
) -> None:
    """One panel for every column of every field, splits over each other, and the shards' sizes."""
    panels = _panels(looked)
    columns = min(4, len(panels) + 1)
    rows = -(-(len(panels) + 1) // columns)
    figure = Figure(figsize=(4 * columns, 2.8 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, (title, values) in zip(axes, panels.items(), strict=False):
        _histogram(axis, values)
        axis.set_title(title, loc="left", fontsize=10)
    _balance(axes[len(panels)], datasets)
    for axis in axes[len(panels) + 1 :]:
        axis.set_visible(False)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)


def _panels(looked: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, dict[str, np.ndarray]]:
    """Title → split → values; a field of a few columns has a panel for each of them."""
    found: dict[str, dict[str, np.ndarray]] = {}
    for split, samples in looked.items():
        for name, values in samples.items():
            if name.endswith("_offsets") and name.removesuffix("_offsets") in samples:
                found.setdefault(f"{name.removesuffix('_offsets')}: width", {})[split] = np.diff(
                    values
                )
            elif values.ndim == 2 and values.shape[1] <= FEW:
                for column in range(values.shape[1]):
                    found.setdefault(f"{name}[{column}]", {})[split] = values[:, column]
            else:
                found.setdefault(name, {})[split] = values.ravel()
    return dict(list(found.items())[:MOST])


def _histogram(axis: Axes, splits: Mapping[str, np.ndarray]) -> None:
    together = np.concatenate(list(splits.values()))
    distinct = np.unique(together)
    if together.dtype.kind == "f":
        _ranges(axis, splits, np.nanmin(together), np.nanmax(together))
    elif len(distinct) <= FEW and abs(distinct).max() < 10**6:
        _bars(axis, splits, distinct)
    elif abs(distinct).max() < 2**32:
        _ranges(axis, splits, distinct[0], distinct[-1])
        axis.set_yscale("log")
    else:
        _ranks(axis, splits)


def _ranges(axis: Axes, splits: Mapping[str, np.ndarray], low: float, high: float) -> None:
    for colour, (split, values) in zip(COLOURS, splits.items(), strict=False):
        finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
        share = np.full(len(finite), 1 / max(1, len(values)))
        axis.hist(
            finite, 60, (low, high), weights=share, histtype="step", color=colour, label=split
        )
    axis.set_ylabel("share")


def _bars(axis: Axes, splits: Mapping[str, np.ndarray], distinct: np.ndarray) -> None:
    width = 0.8 / len(splits)
    for index, (split, values) in enumerate(splits.items()):
        share = [(values == value).mean() for value in distinct]
        where = np.arange(len(distinct)) + (index - (len(splits) - 1) / 2) * width
        axis.bar(where, share, width, color=COLOURS[index % len(COLOURS)], label=split)
    step = -(-len(distinct) // 12)
    axis.set_xticks(np.arange(len(distinct))[::step], distinct[::step])
    axis.set_ylabel("share")


def _ranks(axis: Axes, splits: Mapping[str, np.ndarray]) -> None:
    """Hashes: not the values say something, but how often each occurs."""
    for colour, (split, values) in zip(COLOURS, splits.items(), strict=False):
        counts = np.sort(np.unique(values, return_counts=True)[1])[::-1]
        axis.loglog(np.arange(1, len(counts) + 1), counts / len(values), color=colour, label=split)
    axis.set(xlabel="rank", ylabel="share")


def _balance(axis: Axes, datasets: Mapping[str, Dataset]) -> None:
    for colour, (split, dataset) in zip(COLOURS, datasets.items(), strict=False):
        sizes = np.sort(dataset.merged.bytes.sum(axis=1))[::-1] / 1e6
        axis.plot(np.linspace(0, 1, len(sizes)), sizes, color=colour, label=split, marker=".")
    axis.set_ylim(bottom=0)
    axis.set(ylabel="MB", xlabel="share of the shards, largest first")
    axis.set_title("size of the shards", loc="left", fontsize=10)
