"""How much faster a training becomes with more ranks of this machine.

python -m training.scaling --world 1,2,4 [--weak] [--set strategy=fsdp] [--out scaling]

Starts the train job under torchrun with each number of ranks, all over the loopback interface, and
reads the metric lines that it leaves. The runs of a round alternate, so that a machine that slows
down slows all of them down. Writes <out>/scaling.json and <out>/scaling.png.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from rich.console import Console
from rich.progress import track
from rich.table import Table

from training.command_line import Settings, assigned, explained, run
from training.config import TrainConfig
from training.data.shard_writer import write_dataset
from training.workloads import load_packing, read_settings
from training.workloads.language_model.packing import Packing
from trainyard.common.errors import TrainingError

JOB = Path(__file__).parents[1] / "steps/train/job.py"
SMALL = '{"context_length": 128, "layers": 4, "heads": 4, "dim": 256}'
PARTS = ("data", "forward_backward", "communication", "optimizer")
SYNTHETIC = 512  # samples of random tokens, read repeatedly
console = Console()


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Results for one number of ranks: medians over the steps after the warm-up, of all rounds."""

    world: int
    global_batch: int
    steps: int
    """Number of steps measured."""

    units_per_second: float
    quartiles: tuple[float, float]
    """Quartiles of the units per second of single steps."""

    speed_up: float
    """Units per second, relative to the smallest world size."""

    efficiency: float
    """Speed-up ÷ (ranks / fewest ranks): 1 if twice the ranks do twice the work."""

    step_seconds: float
    shares: dict[str, float]
    """Part of a step (see ``training.watching.clock``) → its share of the time."""

    memory_mb: float
    mfu: float | None


def main(
    world: Annotated[str, typer.Option(help="Numbers of ranks: a,b,…")] = "1,2",
    weak: Annotated[
        bool, typer.Option(help="--global-batch is one rank's: more ranks, more work.")
    ] = False,
    global_batch: Annotated[int, typer.Option(min=1, help="Samples per step.")] = 32,
    micro_batch: Annotated[int, typer.Option(min=1, help="Samples a rank takes at once.")] = 8,
    steps: Annotated[int, typer.Option(min=1, help="Steps measured in each run.")] = 20,
    warm_up: Annotated[int, typer.Option(min=1, help="Steps before them.")] = 5,
    rounds: Annotated[int, typer.Option(min=1, help="Runs with each number of ranks.")] = 3,
    threads: Annotated[
        int, typer.Option(min=1, help="CPU threads per rank; one must not use what four share.")
    ] = 1,
    workload: Annotated[str, typer.Option(help="Workload, as in a recipe.")] = "language_model",
    workload_config: Annotated[str, typer.Option(help="The workload's settings as JSON.")] = SMALL,
    data: Annotated[
        Path | None, typer.Option(help="Holds train/ and validation/; else random tokens.")
    ] = None,
    settings: Settings = None,
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("scaling"),
) -> None:
    """Measure throughput, speed-up and efficiency against the number of ranks."""
    given = {
        "max_steps": warm_up + steps,
        "micro_batch": micro_batch,
        "learning_rate": 1e-4,
        "validation_interval": warm_up + steps,
        "validation_samples": 1,
        "checkpoint_interval": warm_up + steps,
        **assigned(settings),
        "log_interval": 1,
    }
    worlds = _numbers(world)
    configs = {
        ranks: _checked(ranks, {**given, "global_batch": global_batch * (ranks if weak else 1)})
        for ranks in worlds
    }
    _warn(worlds[-1], threads)
    job = ["--workload", workload, "--workload_config", workload_config]
    lines: dict[int, list[dict[str, float]]] = {ranks: [] for ranks in worlds}
    with tempfile.TemporaryDirectory(prefix="scaling-") as scratch:
        inputs = data or synthetic(Path(scratch) / "data", workload, workload_config)
        runs = [(number, ranks) for number in range(rounds) for ranks in worlds]
        for number, ranks in track(runs, "training", console=console, transient=True):
            root = Path(scratch) / f"{number}-{ranks}"
            found = measured(root, inputs.absolute(), ranks, threads, [*job, *configs[ranks]])
            lines[ranks] += [one for one in found if "loss" in one and one["step"] > warm_up]
    batches = {ranks: global_batch * (ranks if weak else 1) for ranks in worlds}
    points = summarised(lines, batches)
    out.mkdir(parents=True, exist_ok=True)
    mode = "weak" if weak else "strong"
    result = {
        "mode": mode,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "cores": len(os.sched_getaffinity(0)),
        "threads_per_rank": threads,
        "workload": workload,
        "workload_config": read_settings(workload_config),
        "settings": {name: str(value) for name, value in given.items()},
        "rounds": rounds,
        "points": [asdict(point) for point in points],
    }
    (out / "scaling.json").write_text(json.dumps(result, indent=1))
    draw(points, mode, _places(), out / "scaling.png")
    console.print(table(points, mode))
    console.print(f"wrote {out / 'scaling.json'} and {out / 'scaling.png'}")


def _numbers(text: str) -> list[int]:
    numbers = sorted({int(part) if part.isdecimal() else 0 for part in text.split(",")})
    if not numbers[0]:
        raise TrainingError(f"--world {text}: expected numbers of ranks from 1 on, like 1,2,4")
    return numbers


def _checked(world: int, given: Mapping[str, object]) -> list[str]:
    """Return the loop's settings as the job's arguments.

    Raises:
        TrainingError: a setting is wrong, or ``world`` ranks cannot share the batch.
    """
    with explained(world):
        TrainConfig.model_validate(given).micro_batches(world)
    return [part for name, value in given.items() for part in (f"--{name}", str(value))]


def _places() -> int:
    """Return the number of ranks that can have their own device, or core, here."""
    return torch.cuda.device_count() or len(os.sched_getaffinity(0))


def _warn(most: int, threads: int) -> None:
    needed = most if torch.cuda.is_available() else most * threads
    if needed > _places():
        what = "GPUs" if torch.cuda.is_available() else "cores"
        console.print(
            f"{most} ranks need {needed} {what}, this machine has {_places()}: what they share "
            "makes them slower, which says nothing about the strategy",
            style="yellow",
        )


def synthetic(folder: Path, workload: str, workload_config: str) -> Path:
    """Write shards of uniformly random tokens; speed does not depend on the text.

    Raises:
        TrainingError: the workload's samples are not tokens.
    """
    packing = load_packing(workload, read_settings(workload_config))
    if workload != "language_model" or packing.info["tokenizer"] != "bytes":
        raise TrainingError(
            f"--data is missing: there are random samples for workload language_model with "
            f"tokenizer bytes only, not for {workload}; name a folder with train/ and validation/ "
            "as the shard step writes them"
        )
    assert isinstance(packing, Packing)  # it is that of the language model
    random = np.random.default_rng(0)
    for split, count in (("train", SYNTHETIC), ("validation", 64)):
        place = folder / split
        place.mkdir(parents=True)
        shape = (count, packing.width)
        tokens = random.integers(0, packing.tokenizer.size, shape).astype(packing.dtype)
        write_dataset(
            place,
            {"tokens": tokens},
            packing.fields,
            shard_bytes=64 << 20,
            split=split,
            workload=packing.info,
        )
    return folder


def measured(
    root: Path, data: Path, world: int, threads: int, arguments: Sequence[str]
) -> list[dict[str, float]]:
    """Return the metric lines of one run of the train job.

    Raises:
        TrainingError: the run failed; with its own reason.
    """
    (root / "input").mkdir(parents=True)
    (root / "input/data").symlink_to(data)
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={world}"]
    done = subprocess.run(
        [sys.executable, *launcher, str(JOB), "--root", str(root), *arguments],
        env={
            **os.environ,
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": str(threads),
            "PYTHONPATH": os.pathsep.join([str(JOB.parents[2]), os.environ.get("PYTHONPATH", "")]),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        failure = root / "output/failure"
        reason = failure.read_text() if failure.is_file() else done.stdout[-2000:]
        raise TrainingError(f"{world} ranks: {reason}")
    return [json.loads(line) for line in (root / "model/history.jsonl").read_text().splitlines()]


def summarised(
    lines: Mapping[int, Sequence[Mapping[str, float]]], batches: Mapping[int, int]
) -> list[Point]:
    """Summarise world size → its steps' metric lines as points, relative to the smallest world."""
    points: list[Point] = []
    for world, found in sorted(lines.items()):
        rates = [line["units_per_second"] for line in found]
        rate, step = statistics.median(rates), _median(found, "step_seconds")
        first = points[0] if points else None
        speed_up = rate / first.units_per_second if first else 1.0
        points.append(
            Point(
                world=world,
                global_batch=batches[world],
                steps=len(found),
                units_per_second=rate,
                quartiles=(float(np.quantile(rates, 0.25)), float(np.quantile(rates, 0.75))),
                speed_up=speed_up,
                efficiency=speed_up * (first.world if first else world) / world,
                step_seconds=step,
                shares={part: _median(found, f"{part}_seconds") / step for part in PARTS},
                memory_mb=max(line["memory_mb"] for line in found),
                mfu=_median(found, "mfu") if "mfu" in found[0] else None,
            )
        )
    return points


def _median(lines: Sequence[Mapping[str, float]], name: str) -> float:
    return statistics.median(line[name] for line in lines)


def table(points: Sequence[Point], mode: str) -> Table:
    """Return a table with a row for each number of ranks."""
    found = Table(box=None, pad_edge=False, title=f"{mode} scaling", title_justify="left")
    names = ["ranks", "batch", "units/s", "speed-up", "efficiency"]
    names += ["data", "fwd+bwd", "comm", "optim", "MB"]
    known = points[0].mfu is not None
    names += ["MFU"] if known else []
    for name in names:
        found.add_column(name, justify="right", no_wrap=True)
    for point in points:
        found.add_row(
            str(point.world),
            str(point.global_batch),
            f"{point.units_per_second:,.0f}",
            f"{point.speed_up:.2f}",
            f"{point.efficiency:.0%}",
            *(f"{point.shares[part]:.0%}" for part in PARTS),
            f"{point.memory_mb:,.0f}",
            *([f"{point.mfu:.1%}"] if known else []),
        )
    return found


def draw(points: Sequence[Point], mode: str, places: int, path: Path) -> None:
    """Plot throughput and efficiency against ranks, each with the ideal line, as a PNG."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    worlds = [point.world for point in points]
    rates = [point.units_per_second for point in points]
    ideal = [rates[0] / worlds[0] * world for world in worlds]
    below = [point.units_per_second - point.quartiles[0] for point in points]
    above = [point.quartiles[1] - point.units_per_second for point in points]
    left.plot(worlds, ideal, "--", color="#94a3b8", label="ideal")
    left.errorbar(
        worlds,
        rates,
        [below, above],
        fmt="o-",
        color="#2563eb",
        capsize=3,
        label="median step (bars: quartiles)",
    )
    left.set(ylabel="units per second, all ranks", ylim=(0, None), title=f"{mode} scaling")
    left.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    right.plot(worlds, [1] * len(worlds), "--", color="#94a3b8")
    right.plot(worlds, [p.efficiency for p in points], "o-", color="#2563eb")
    top = max(1.1, *(point.efficiency * 1.05 for point in points))
    right.set(ylabel="efficiency", ylim=(0, top), title="speed-up ÷ ranks")
    right.yaxis.set_major_formatter(PercentFormatter(1))
    for axes in (left, right):
        _finish(axes, worlds, places)
    figure.legend(
        *left.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False
    )
    figure.savefig(path, dpi=150)


def _finish(axes: Axes, worlds: Sequence[int], places: int) -> None:
    """Label ranks with whole numbers; shade the region where they share cores or GPUs."""
    axes.set_xticks(worlds)
    axes.set_xlabel("ranks")
    if worlds[-1] > places:
        end = worlds[-1] + 0.3
        axes.axvspan(places + 0.05, end, color="#e2e8f0", label="ranks share cores or GPUs")
        axes.set_xlim(worlds[0] - 0.3, end)
    axes.grid(color="#cbd5e1")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    run(main)
