"""Measure how long a training waits for data on FastFile and on FSx, as slow as those are.

python -m benchmarks.throttled [--only FSx] [--ranks 1] [--times 10] [--rounds 3] [--json FILE]

Shards lie behind a file system that answers late (FUSE: ``read`` and ``mmap`` wait alike); our
loader feeds ranks whose step takes a fixed time, at the rate of recipes/prod.yaml and multiples of
it, and in turn with it torch's DataLoader with a map-style dataset over the same files. Each case
has a mount of its own, so that nothing is in the kernel's cache. Needs root and /dev/fuse.
"""

import multiprocessing
import statistics
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.progress import track

from benchmarks.harness import JsonFile, keep, show_table
from benchmarks.throttled.mount import Slow, mounted, refuse
from benchmarks.throttled.ranks import Rank, Waited, train
from pipelines.advice.training_setting import of_recipe
from pipelines.recipe.read_recipe import load
from training.data.shard_writer import write_dataset
from training.workloads import load_packing
from trainyard.foresight.step_time import foresee

TOKEN = 2
"""Bytes of a token of up to 65,536 (docs/shards.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Demand of one rank on the file system, as foresight has it for a recipe."""

    step_seconds: float
    """Foreseen, the middle of its spread."""

    ranks: int
    share: int
    """Samples a rank takes in a step."""

    sample_bytes: int

    @property
    def uniform(self) -> float:
        """Samples a second: a rank reads those that it takes."""
        return self.share / self.step_seconds

    @property
    def windowed(self) -> float:
        """Bytes a second: a rank reads all shards whole, and takes its samples of them."""
        return self.uniform * self.ranks * self.sample_bytes


def demand_of(recipe: Path) -> Demand:
    """The demand of a recipe for a language model.

    Raises:
        RecipeError: it is not valid.
        ForesightError: its training cannot be foreseen.
    """
    ours = of_recipe(load(recipe))
    setting = ours.setting
    ranks = setting.gpus
    return Demand(
        step_seconds=foresee(setting).step_seconds.p50,
        ranks=ranks,
        share=ours.loop.global_batch // ranks,
        sample_bytes=TOKEN * (setting.sequence + 1),
    )


RECIPE = Path(__file__).parents[2] / "recipes/prod.yaml"
SHARD_MB = {"windowed": 1, "uniform": 64}
"""A window's shards are small, so that a short run sees several windows: each costs a first byte,
so that is harder than prod.yaml's 256 MB. Uniform order has large ones, so that its samples lie
apart as they do there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A file system: what AWS says of it."""

    first_byte: float
    stream: float
    total: float
    """Bytes a second of all of ``ranks`` ranks; a case has its ranks' share of it."""

    ranks: int
    kept: bool

    def slow(self, ranks: int) -> Slow:
        share = self.total * ranks / self.ranks
        return Slow(first_byte=self.first_byte, stream=self.stream, total=share, kept=self.kept)


SYSTEMS = {
    # S3 answers after 100 to 200 ms, and gives 85 to 90 MB/s to one request (S3's user guide,
    # "Best practices design patterns"). AWS has no figure for FastFile: half of that is assumed of
    # a stream, and 400 MB/s of a node, a hundredth of an ml.p4d.24xlarge's network.
    "FastFile": System(first_byte=0.1, stream=40e6, total=400e6, ranks=8, kept=False),
    # SCRATCH_2, 200 MB/s a TiB, "sub-ms" (FSx for Lustre's user guide, "Performance characteristics
    # of SSD and HDD storage classes"): the smallest, 1.2 TiB, for all 32 ranks of prod.yaml.
    "FSx": System(first_byte=0.001, stream=240e6, total=240e6, ranks=32, kept=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A case that is measured: a file system, an order and a rate."""

    system: str
    loader: str
    ranks: int
    times: int


def cases(only: str, ranks: list[int], times: list[int]) -> Iterator[Case]:
    """What is measured, ours and the peer one after the other. The peer has one rank."""
    for system in SYSTEMS:
        for loader in ("windowed", "uniform", "DataLoader"):
            for world in ranks:
                for multiple in times:
                    peer = loader == "DataLoader" and world > 1
                    if only in f"{system} {loader}" and not peer:
                        yield Case(system=system, loader=loader, ranks=world, times=multiple)


def main(
    only: Annotated[str, typer.Option(help="Rows whose name has this.")] = "",
    ranks: Annotated[list[int], typer.Option(min=1, help="Give it several times.")] = [1, 2],  # noqa: B006
    times: Annotated[
        list[int], typer.Option(min=1, help="Multiples of prod.yaml's rate; several times.")
    ] = [1, 10, 40],  # noqa: B006
    seconds: Annotated[float, typer.Option(min=0, help="Of each case.")] = 8.0,
    megabytes: Annotated[int, typer.Option(min=8, help="Of the data.")] = 512,
    rounds: Annotated[int, typer.Option(min=1, help="All rows once in each; medians.")] = 1,
    json_file: JsonFile = None,
) -> None:
    refuse()
    if not (chosen := list(cases(only, ranks, times))):
        raise typer.BadParameter(f"--only {only}: no row has that; there are {', '.join(SYSTEMS)}")
    needs = demand_of(RECIPE)
    with tempfile.TemporaryDirectory(prefix="throttled-") as scratch:
        folder = Path(scratch)
        for order in SHARD_MB:
            write(folder / order, order, megabytes)
        found = [
            (case, measure(case, folder, needs, seconds))
            for case in track(chosen * rounds, "reading", transient=True)
        ]
    rows = [summary(case, [row for one, row in found if one == case]) for case in chosen]
    show(rows, needs)
    keep(json_file, {"needs": asdict(needs), "rows": rows})


def write(folder: Path, order: str, megabytes: int) -> None:
    """Random bytes as the tokens of a language model with prod.yaml's context."""
    packing = load_packing(
        "language_model", {"context_length": 2048, "layers": 1, "heads": 2, "dim": 8}
    )
    size = SHARD_MB[order] << 20
    rows = np.random.default_rng(0).integers(0, 256, (megabytes * 10**6 // 4098, 2049), np.uint16)
    write_dataset(folder, {"tokens": rows}, packing.fields, shard_bytes=size, workload=packing.info)


def measure(case: Case, scratch: Path, needs: Demand, seconds: float) -> dict:
    """One case on a mount of its own; what the slowest of its ranks waited."""
    order = "windowed" if case.loader == "windowed" else "uniform"
    rate = needs.uniform * case.times
    if case.loader == "windowed":  # all shards, whatever the ranks: as much as each of prod.yaml's
        rate *= needs.ranks / case.ranks
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="at-", dir=scratch) as at:
        slow = SYSTEMS[case.system].slow(case.ranks)
        with (
            mounted(scratch / order, Path(at), slow) as told,
            ProcessPoolExecutor(case.ranks, context) as pool,
        ):
            ranks = [
                Rank(
                    folder=Path(at), loader=case.loader, rank=rank, world=case.ranks,
                    share=needs.share, rate=rate, seconds=seconds,
                )
                for rank in range(case.ranks)
            ]  # fmt: skip
            found: list[Waited] = list(pool.map(train, ranks))
    consumed = sum(one.samples for one in found) * needs.sample_bytes
    return {
        "samples_per_second": rate,
        "megabytes_per_second": rate * needs.sample_bytes / 1e6
        * (case.ranks if case.loader == "windowed" else 1),
        "cold_seconds": max(one.cold for one in found),
        "stall": max(one.stall for one in found),
        "worst_seconds": max(one.worst for one in found),
        "read_per_consumed": told["read"] / consumed,
        "jumps": told["jumps"],
    }  # fmt: skip


def summary(case: Case, found: list[dict]) -> dict:
    """A case's medians over the rounds, and the spread of its stall."""
    row = {name: statistics.median(one[name] for one in found) for name in found[0]}
    stalls = [one["stall"] for one in found]
    return {**asdict(case), **row, "stall_spread": (min(stalls), max(stalls))}


def show(rows: list[dict], needs: Demand) -> None:
    """What is asked for, and the rows."""
    print(
        f"prod.yaml, a rank: a step of {needs.step_seconds:.2f} s, {needs.uniform:.1f} samples/s; "
        f"{needs.windowed / 1e6:.2f} MB/s windowed"
    )
    columns = ("file system", "loader", "ranks", "×", "MB/s a rank", "stall %", "worst s", "cold s",
               "read ÷ taken")  # fmt: skip
    show_table(columns, map(_cells, rows), "", 150)


def _cells(row: dict) -> list[object]:
    low, high = row["stall_spread"]
    return [
        *(row[name] for name in ("system", "loader", "ranks", "times")),
        f"{row['megabytes_per_second']:.2f}",
        f"{100 * row['stall']:.2f} ({100 * low:.2f}–{100 * high:.2f})",
        f"{row['worst_seconds']:.3f}",
        f"{row['cold_seconds']:.2f}",
        f"{row['read_per_consumed']:.1f}",
    ]


if __name__ == "__main__":
    typer.run(main)
