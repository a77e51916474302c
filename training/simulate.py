"""How much memory a training takes on GPUs that are not here.

python -m training.simulate --world 64 --workload-config '{"layers": 32, …}' --set strategy=fsdp \\
    --set micro_batch=1 [--plot memory.png] [--json]

Runs two steps of the strategy's own code on tensors without contents, in a process group of the
true world size whose collectives do nothing, once for a rank of each pipeline stage. Nothing is
fitted: each allocation and its end is counted. ``--accumulation`` micro-batches make a step.
"""

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from time import process_time
from typing import Annotated, Any

import typer
from rich.console import Console

from training.command_line import Settings, assigned, explained, run
from training.config import TrainConfig
from training.simulation import report
from training.simulation.allocator import reserved
from training.simulation.boundaries import Described
from training.simulation.peak import peak, timeline
from training.simulation.step import simulated
from training.workloads import load, read_settings


def main(
    world: Annotated[int, typer.Option(min=1, help="Number of ranks.")],
    workload: Annotated[str, typer.Option(help="As in a recipe.")] = "language_model",
    workload_config: Annotated[str, typer.Option(help="Its settings as JSON.")] = "{}",
    settings: Settings = None,
    accumulation: Annotated[int, typer.Option(min=1, help="Micro-batches a step and rank.")] = 1,
    json_: Annotated[bool, typer.Option("--json", help="Bytes as JSON, a line a rank.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Picture of the fullest rank's steps.")] = None,
) -> None:
    """Peak memory of a rank of each pipeline stage, by what it is for."""
    config = configured(world, accumulation, assigned(settings))
    if config.compile:
        print("compile: simulated as eager; compiled blocks keep less", file=sys.stderr)
    found = simulate(config, workload, read_settings(workload_config), world)
    if json_:
        for one in found:
            print(json.dumps({name: value for name, value in one.items() if name != "moments"}))
    else:
        title = f"{workload} on {world} ranks, GiB"
        Console(width=None if sys.stdout.isatty() else 120).print(report.table(found, title))
    if plot:
        fullest = max(found, key=lambda one: one["peak_bytes"])
        title = f"memory of rank {fullest['rank']} of {world} over two steps"
        report.draw(fullest["moments"], title, plot)


def configured(world: int, accumulation: int, given: dict[str, Any]) -> TrainConfig:
    """The loop's settings, with a global batch that so many micro-batches make.

    Raises:
        TrainingError: one is wrong, or ``world`` ranks cannot share the work so.
    """
    size = given.get("micro_batch", 1)
    known = {"max_steps": 2, "learning_rate": 1e-4, "micro_batch": size, "global_batch": size}
    with explained(world):
        config = TrainConfig.model_validate({**known, **given})
        batch = config.micro_batch * accumulation * config.data_parallel(world)
        config = TrainConfig.model_validate({**known, **given, "global_batch": batch})
        config.micro_batches(world)
    return config


def simulate(
    config: TrainConfig, workload: str, workload_config: dict[str, Any], world: int
) -> list[dict[str, Any]]:
    """Each pipeline stage's first rank: its peak by category and what would be reserved, in bytes.

    ``moments`` is what is alive after each event (``simulation.peak.timeline``), ``cpu_seconds``
    what it took to find out. Each rank has a process of its own, since torch keeps process groups'
    names beyond their end.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload([simulated.__module__])  # torch is imported once
    found: list[dict[str, Any]] = []
    stream: Described = []
    for stage in range(config.pipeline_parallel):
        rank = stage * (world // config.pipeline_parallel)
        with ProcessPoolExecutor(1, mp_context=context) as alone:
            given = (config, workload, workload_config, rank, world, stream)
            one, stream = alone.submit(_simulate, *given).result()
        found.append({"rank": rank, "stage": stage, "world": world} | one)
    return found


def _simulate(
    config: TrainConfig,
    workload: str,
    workload_config: dict[str, Any],
    rank: int,
    world: int,
    stream: Described,
) -> tuple[dict[str, Any], Described]:
    record = simulated(config, load(workload, workload_config), rank, world, stream)
    moments = timeline(record)
    most = peak(moments)
    sizes = {"peak": most.bytes, "peak_bytes": most.total, "reserved": reserved(record.events)}
    return sizes | {"moments": moments, "cpu_seconds": process_time()}, stream


if __name__ == "__main__":
    run(main)
