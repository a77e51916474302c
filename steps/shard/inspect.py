"""Show a dataset: counts, splits, balance, sample records, histograms, fingerprint.

python -m steps.shard.inspect FOLDER [--verify] [--plot shards.png] [--samples 3]

FOLDER holds one split, or the folders of several, as the shard step writes them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table

from training.command_line import run
from training.data.dataset import Dataset
from training.data.verify import Damage, litter, verify
from trainyard.common.errors import DataError

LOOKED_AT = 64 * 2**20  # maximum bytes of samples that the histograms are drawn from

console = Console(soft_wrap=True)


def main(
    folder: Annotated[Path, typer.Argument(help="A split, or the folder of several splits.")],
    check: Annotated[bool, typer.Option("--verify", help="Recompute every hash.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw histograms and balance here.")] = None,
    samples: Annotated[int, typer.Option(min=0, help="Sample records shown per split.")] = 2,
) -> None:
    """Show a dataset; with --verify exit 1 when a byte of it has changed."""
    datasets = open_splits(folder)
    console.print(counts_table(datasets))
    for name, dataset in datasets.items():
        console.print(f"\n[bold]{name}[/] {dataset.fingerprint}", highlight=False)
        show_samples(dataset, samples)
    if plot:
        samples_by_split = {name: sample_split(dataset) for name, dataset in datasets.items()}
        draw(datasets, samples_by_split, plot)
        console.print(f"\nwritten: {plot}")
    if check and not all([verify_split(name, dataset) for name, dataset in datasets.items()]):
        raise typer.Exit(1)


def open_splits(folder: Path) -> dict[str, Dataset]:
    """Return split → its dataset.

    Raises:
        DataError: there is no dataset, or one is damaged.
    """
    if any(folder.glob("manifest-*.json")):
        dataset = Dataset(folder)
        return {dataset.manifests.split: dataset}
    folders = sorted({path.parent for path in folder.glob("*/manifest-*.json")})
    if not folders:
        raise DataError(
            f"{folder}: neither it nor a folder in it holds a manifest-*.json; "
            "name the output folder of a finished shard step"
        )
    datasets = sorted(map(Dataset, folders), key=len, reverse=True)
    return {dataset.manifests.split: dataset for dataset in datasets}


def counts_table(datasets: dict[str, Dataset]) -> Table:
    """Return a table with one row per split."""
    table = Table(box=None, pad_edge=False)
    columns = ("split", "samples", "records", "raw objects", "duplicates", "quarantined", "shards")
    for column in (*columns, "MB", "largest ÷ mean"):
        table.add_column(column, justify="left" if column == "split" else "right")
    for name, dataset in datasets.items():
        merged_manifests = dataset.manifests
        size = merged_manifests.bytes.sum(axis=1)
        left_out = [sum(merged_manifests.raw[name]) for name in ("duplicates", "quarantined")]
        counts = [len(dataset), dataset.records, len(merged_manifests.raw["name"]), *left_out]
        counts.append(len(merged_manifests.files))
        balance = f"{size.max() / size.mean():.2f}"
        table.add_row(
            name, *(f"{count:,}" for count in counts), f"{size.sum() / 1e6:,.1f}", balance
        )
    return table


def show_samples(dataset: Dataset, count: int) -> None:
    """Print a few samples, evenly spread over the split, every field shortened to a line."""
    indices = np.linspace(0, len(dataset) - 1, min(count, len(dataset)), dtype=np.int64)
    for index in indices:
        sample = dataset.read([index])
        for name, field in dataset.fields.items():
            values = sample[name] if field.shape is None else sample[name][0]
            text = np.array2string(
                np.asarray(values), threshold=24, edgeitems=12, max_line_width=10**6
            )
            console.print(f"  {index:>9,}  {name}  {text}", markup=False, highlight=False)


def sample_split(dataset: Dataset) -> dict[str, np.ndarray]:
    """Return samples spread evenly over the split, about 64 MiB at most."""
    count = max(1, LOOKED_AT * len(dataset) // int(dataset.manifests.bytes.sum()))
    indices = np.linspace(0, len(dataset) - 1, min(count, len(dataset)), dtype=np.int64)
    return dataset.read(indices)


def verify_split(name: str, dataset: Dataset) -> bool:
    """Hash every file of the split with a progress bar; return False when one has changed."""
    folder = dataset.folder
    assert isinstance(folder, Path)  # open_splits gave it
    columns = (
        TextColumn(f"verifying {name}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    )  # fmt: skip
    with Progress(*columns, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=int(dataset.manifests.bytes.sum()))
        damages: list[Damage] = list(
            verify(folder, dataset.manifests, lambda size: progress.advance(task, size))
        )
    for damage in damages:
        console.print(f"[red]damaged[/] {damage.file}: {damage.reason}")
    for file in litter(folder, dataset.manifests):
        console.print(f"[yellow]not part of the dataset[/] {file}: no manifest names it")
    if not damages:
        console.print(f"{name}: {dataset.manifests.bytes.size:,} files, every hash is right")
    return not damages


COLOURS = ("#2563eb", "#d97706", "#16a34a", "#dc2626")
FEW = 64  # distinct values that are drawn one by one
MOST = 24  # most panels


def draw(
    datasets: Mapping[str, Dataset],
    samples_by_split: Mapping[str, Mapping[str, np.ndarray]],
    path: Path,
) -> None:
    """Draw one panel for every column of every field, splits over each other, and the shards'
    sizes.
    """
    panels = _panels(samples_by_split)
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


def _panels(
    samples_by_split: Mapping[str, Mapping[str, np.ndarray]],
) -> dict[str, dict[str, np.ndarray]]:
    """Return title → split → values; a field of a few columns has a panel for each of them."""
    panels: dict[str, dict[str, np.ndarray]] = {}
    for split, samples in samples_by_split.items():
        for name, values in samples.items():
            if name.endswith("_offsets") and name.removesuffix("_offsets") in samples:
                panels.setdefault(f"{name.removesuffix('_offsets')}: width", {})[split] = np.diff(
                    values
                )
            elif values.ndim == 2 and values.shape[1] <= FEW:
                for column in range(values.shape[1]):
                    panels.setdefault(f"{name}[{column}]", {})[split] = values[:, column]
            else:
                panels.setdefault(name, {})[split] = values.ravel()
    return dict(list(panels.items())[:MOST])


def _histogram(axis: Axes, splits: Mapping[str, np.ndarray]) -> None:
    all_values = np.concatenate(list(splits.values()))
    distinct = np.unique(all_values)
    if all_values.dtype.kind == "f":
        _ranges(axis, splits, np.nanmin(all_values), np.nanmax(all_values))
    elif len(distinct) <= FEW and abs(distinct).max() < 10**6:
        _bars(axis, splits, distinct)
    elif abs(distinct).max() < 2**32:
        _ranges(axis, splits, distinct[0], distinct[-1])
        axis.set_yscale("log")
    else:
        # Numbers this large are most likely hashes.
        _ranks(axis, splits)


def _ranges(axis: Axes, splits: Mapping[str, np.ndarray], low: float, high: float) -> None:
    for colour, (split, values) in zip(COLOURS, splits.items(), strict=False):
        # The shares are of all values: those that are not finite count, and are in no bar.
        finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
        share = np.full(len(finite), 1 / max(1, len(values)))
        limits = (low, high)
        axis.hist(
            finite, bins=60, range=limits, weights=share, histtype="step", color=colour, label=split
        )
    axis.set_ylabel("share")


def _bars(axis: Axes, splits: Mapping[str, np.ndarray], distinct: np.ndarray) -> None:
    width = 0.8 / len(splits)
    for index, (split, values) in enumerate(splits.items()):
        share = [(values == value).mean() for value in distinct]
        positions = np.arange(len(distinct)) + (index - (len(splits) - 1) / 2) * width
        axis.bar(positions, share, width, color=COLOURS[index % len(COLOURS)], label=split)
    step = -(-len(distinct) // 12)
    axis.set_xticks(np.arange(len(distinct))[::step], distinct[::step])
    axis.set_ylabel("share")


def _ranks(axis: Axes, splits: Mapping[str, np.ndarray]) -> None:
    """Draw hashes by how often each occurs, since their values mean nothing."""
    for colour, (split, values) in zip(COLOURS, splits.items(), strict=False):
        counts = np.sort(np.unique(values, return_counts=True)[1])[::-1]
        axis.loglog(np.arange(1, len(counts) + 1), counts / len(values), color=colour, label=split)
    axis.set(xlabel="rank", ylabel="share")


def _balance(axis: Axes, datasets: Mapping[str, Dataset]) -> None:
    for colour, (split, dataset) in zip(COLOURS, datasets.items(), strict=False):
        sizes = np.sort(dataset.manifests.bytes.sum(axis=1))[::-1] / 1e6
        axis.plot(np.linspace(0, 1, len(sizes)), sizes, color=colour, label=split, marker=".")
    axis.set_ylim(bottom=0)
    axis.set(ylabel="MB", xlabel="share of the shards, largest first")
    axis.set_title("size of the shards", loc="left", fontsize=10)


if __name__ == "__main__":
    run(main)
