"""Show a dataset: counts, splits, balance, sample records, fingerprint.

python -m steps.shard.inspect FOLDER [--verify] [--samples 3]

FOLDER contains one split, or the folders of several splits, as the shard step writes them.
"""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table

from training.command_line import run
from training.data.dataset import Dataset
from training.data.verify import verify_shards
from trainyard.common.errors import DataError

console = Console(soft_wrap=True)


def main(
    folder: Annotated[Path, typer.Argument(help="A split, or the folder of several splits.")],
    check: Annotated[bool, typer.Option("--verify", help="Recompute every hash.")] = False,
    samples: Annotated[int, typer.Option(min=0, help="Sample records shown per split.")] = 2,
) -> None:
    """Show a dataset; with --verify, exit with 1 if a byte of it has changed."""
    datasets = open_splits(folder)
    console.print(build_counts_table(datasets))
    for name, dataset in datasets.items():
        console.print(f"\n[bold]{name}[/] {dataset.fingerprint}", highlight=False)
        show_samples(dataset, samples)
    if check and not all([verify_split(name, dataset) for name, dataset in datasets.items()]):
        raise typer.Exit(1)


def open_splits(folder: Path) -> dict[str, Dataset]:
    """Return the dataset of each split, by the split's name.

    Raises:
        DataError: there is no dataset, or one is damaged.
    """
    if any(folder.glob("manifest-*.json")):
        dataset = Dataset(folder)
        return {dataset.manifests.split: dataset}
    folders = sorted({path.parent for path in folder.glob("*/manifest-*.json")})
    if not folders:
        raise DataError(
            f"{folder}: neither it nor a folder in it contains a manifest-*.json; "
            "name the output folder of a finished shard step"
        )
    datasets = sorted(map(Dataset, folders), key=len, reverse=True)
    return {dataset.manifests.split: dataset for dataset in datasets}


def build_counts_table(datasets: dict[str, Dataset]) -> Table:
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
    """Print a few samples, evenly spread over the split, with each field shortened to one line."""
    indices = np.linspace(0, len(dataset) - 1, min(count, len(dataset)), dtype=np.int64)
    for index in indices:
        sample = dataset.read([index])
        for name, field in dataset.fields.items():
            values = sample[name] if field.shape is None else sample[name][0]
            text = np.array2string(
                np.asarray(values), threshold=24, edgeitems=12, max_line_width=10**6
            )
            console.print(f"  {index:>9,}  {name}  {text}", markup=False, highlight=False)


def verify_split(name: str, dataset: Dataset) -> bool:
    """Check the hash of every file of the split; return whether no file has changed."""
    folder = dataset.folder
    assert isinstance(folder, Path)  # ``open_splits`` created it
    columns = (
        TextColumn(f"verifying {name}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    )  # fmt: skip
    with Progress(*columns, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=int(dataset.manifests.bytes.sum()))
        damages = list(
            verify_shards(folder, dataset.manifests, lambda size: progress.advance(task, size))
        )
    for damage in damages:
        console.print(f"[red]damaged[/] {damage.file}: {damage.reason}")
    if not damages:
        console.print(f"{name}: {dataset.manifests.bytes.size:,} files, every hash matches")
    return not damages


if __name__ == "__main__":
    run(main)
