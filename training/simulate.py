r"""Computes how much memory a training takes on GPUs that are not here.

python -m training.simulate --world 64 --workload-config '{"layers": 32, …}' --set strategy=fsdp \
    --set micro_batch=1 [--plot memory.png] [--json]

Runs two steps of the strategy's own code on tensors without contents, in a process group of the
true world size whose collectives do nothing, once for a rank of each pipeline stage. Nothing is
fitted: each allocation and its end is counted. A step has ``--accumulation`` micro-batches.
"""

import json
import sys
from bisect import bisect_left, insort
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from time import process_time
from typing import Annotated, Any

import typer
from rich.console import Console

from training.command_line import Settings, assigned, explained, run
from training.config import TrainConfig
from training.simulation import simulation_report
from training.simulation.allocations import Event, peak, rounded, timeline
from training.simulation.simulated_step import Described, simulated
from training.workloads import load, read_settings


def main(
    world: Annotated[int, typer.Option(min=1, help="Number of ranks.")],
    workload: Annotated[str, typer.Option(help="Workload, as in a recipe.")] = "language_model",
    workload_config: Annotated[str, typer.Option(help="The workload's settings as JSON.")] = "{}",
    settings: Settings = None,
    accumulation: Annotated[int, typer.Option(min=1, help="Micro-batches per step and rank.")] = 1,
    json_: Annotated[bool, typer.Option("--json", help="Bytes as JSON, a line per rank.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Plot the fullest rank's steps here.")] = None,
) -> None:
    """Print the peak memory of a rank of each pipeline stage, by category."""
    config = configured(world, accumulation, assigned(settings))
    if config.compile:
        print("compile: simulated as eager; compiled blocks keep less", file=sys.stderr)
    found = simulate(config, workload, read_settings(workload_config), world)
    if json_:
        for one in found:
            print(json.dumps({name: value for name, value in one.items() if name != "moments"}))
    else:
        title = f"{workload} on {world} ranks, GiB"
        Console(width=None if sys.stdout.isatty() else 120).print(
            simulation_report.table(found, title)
        )
    if plot:
        fullest = max(found, key=lambda one: one["peak_bytes"])
        title = f"memory of rank {fullest['rank']} of {world} over two steps"
        simulation_report.draw(fullest["moments"], title, plot)


def configured(world: int, accumulation: int, given: dict[str, Any]) -> TrainConfig:
    """Return the loop's settings, with a global batch of ``accumulation`` micro-batches.

    Raises:
        TrainingError: a setting is wrong, or ``world`` ranks cannot share the work with these
            settings.
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
    """Return for each pipeline stage's first rank its peak by category and the reserved bytes.

    ``moments`` holds the live bytes after each event (``allocations.timeline``), ``cpu_seconds``
    the cost of the simulation. Each rank has a process of its own, since torch keeps process
    groups' names beyond their end.
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


# What programs call "memory" is usually this (``torch.cuda.max_memory_reserved``). It is
# more than what is alive, because a freed block is kept, and because a large allocation may find
# only small ones free. The rules and constants are those of c10/cuda/CUDACachingAllocator.cpp; of
# its streams one is simulated.


MIB = 2**20
SMALL = MIB  # kSmallSize: an allocation up to it comes from the small pool
PAGE = {"small": 2 * MIB, "large": 20 * MIB}  # kSmallBuffer, kLargeBuffer
LONE = 10 * MIB  # kMinLargeAlloc: from it on a segment is as large as asked for
ROUND_LARGE = 2 * MIB  # kRoundLarge


@dataclass
class Pool:
    """Free and reserved blocks of one kind.

    Attributes:
        free: (size, address) of free blocks, smallest first.
    """

    kind: str
    expandable: bool
    reserved: int = 0
    free: list[tuple[int, int]] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)  # a free block's end → its beginning
    begins: dict[int, int] = field(default_factory=dict)  # a free block's beginning → its end
    top: int = 0  # end of the addresses given out so far

    def take(self, size: int) -> int:
        """Return the address of ``size`` bytes, in the smallest sufficient free block or new
        memory.
        """
        place = bisect_left(self.free, (size, -1))
        if place == len(self.free):
            self._grow(size)
            place = bisect_left(self.free, (size, -1))
        length, address = self.free[place]
        self._remove(address, address + length)
        least = 512 if self.kind == "small" else SMALL + 1
        if length - size >= least or self.expandable and length > size:
            self._add(address + size, address + length)
        else:
            size = length
        self._taken[address] = size
        return address

    def give(self, address: int) -> None:
        """End the allocation at ``address``; free neighbours are merged into one block."""
        begin, end = address, address + self._taken.pop(address)
        if begin in self.ends:
            before = self.ends[begin]
            self._remove(before, begin)
            begin = before
        if end in self.begins:
            after = self.begins[end]
            self._remove(end, after)
            end = after
        self._add(begin, end)

    def __post_init__(self) -> None:
        self._taken: dict[int, int] = {}

    def _grow(self, size: int) -> None:
        begin = self.top
        if self.expandable:  # one segment: what is free at its end is a part of the allocation
            begin = self.ends.get(self.top, self.top)
            if begin != self.top:
                self._remove(begin, self.top)
            pages = -(-(size - (self.top - begin)) // PAGE[self.kind])
            more = pages * PAGE[self.kind]
            self._add(begin, self.top + more)
        else:
            more = PAGE[self.kind]
            if self.kind == "large" and size >= LONE:
                more = -(-size // ROUND_LARGE) * ROUND_LARGE
            self.top = begin = begin + 1  # a gap: segments are not neighbours
            self._add(begin, begin + more)
        self.top += more
        self.reserved += more

    def _add(self, begin: int, end: int) -> None:
        insort(self.free, (end - begin, begin))
        self.begins[begin], self.ends[end] = end, begin

    def _remove(self, begin: int, end: int) -> None:
        del self.free[bisect_left(self.free, (end - begin, begin))]
        del self.begins[begin], self.ends[end]


def reserved(events: Sequence[Event], *, expandable: bool = True) -> int:
    """Return the bytes reserved at the end of the events; they only grow.

    Args:
        expandable: as with ``PYTORCH_ALLOC_CONF=expandable_segments:True``, under which a pool is
            one segment that grows, page by page.
    """
    pools = {kind: Pool(kind, expandable) for kind in PAGE}
    places: dict[int, tuple[Pool, int]] = {}
    for event in events:
        size = rounded(abs(event.size))
        if event.size > 0:
            pool = pools["small" if size <= SMALL else "large"]
            places[event.life] = pool, pool.take(size)
        else:
            pool, address = places.pop(event.life)
            pool.give(address)
    return sum(pool.reserved for pool in pools.values())


if __name__ == "__main__":
    run(main)
