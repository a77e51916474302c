"""What a setting's ranks do in a step and have in memory, counted on tensors without contents.

The strategy's own code runs (``training.simulation``); what it calls and what it allocates is
counted, and priced elsewhere. DistributedDataParallel's reducer is no operation of torch's: what it
sends is known in closed form (``training.traffic``).
"""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.progress import track

from benchmarks.foresight.here.settings import Here
from training.config import TrainConfig
from training.simulation.operations import Calls
from training.simulation.peak import peak, timeline
from training.simulation.step import simulated
from training.traffic import replicated
from training.workloads import load
from trainyard.common import whole_file


@dataclass(frozen=True, slots=True)
class Call:
    """Calls of one kind and size: ``training.simulation.operations.Operation``, and how many."""

    kind: str
    dtype: str
    flops: int
    bytes: int
    sizes: tuple[int, ...]
    count: int


@dataclass(frozen=True, slots=True)
class Rank:
    """A rank's step: its calls, and the bytes that are alive at its peak."""

    calls: Sequence[Call]
    peak_bytes: int

    def told(self) -> dict[str, Any]:
        """As JSON."""
        calls = [[c.kind, c.dtype, c.flops, c.bytes, c.sizes, c.count] for c in self.calls]
        return {"calls": calls, "peak_bytes": self.peak_bytes}


def works(settings: Sequence[Here], cache: Path) -> dict[Here, list[Rank]]:
    """Each setting's ranks; those that ``cache`` has are not counted again."""
    lines = cache.read_text().splitlines() if cache.exists() else []
    known = [json.loads(line) for line in lines]
    found = {Here(**one["setting"]): [*map(_rank, one["ranks"])] for one in known}
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__, "training.strategies.mesh"])
    with ProcessPoolExecutor(1, context, max_tasks_per_child=1) as alone:
        for setting in track([one for one in settings if one not in found], "counting"):
            found[setting] = alone.submit(work, setting).result()
            said = {"setting": setting.told(), "ranks": [one.told() for one in found[setting]]}
            lines.append(json.dumps(said))
            whole_file.write(cache, "\n".join(lines).encode() + b"\n")
    return {one: found[one] for one in settings}


def work(setting: Here) -> list[Rank]:
    """A rank's step for each rank of the setting; in a process of its own, as groups have names."""
    config = TrainConfig.model_validate(setting.loop(2))
    workload = load("language_model", setting.model)
    stream: list[list[int]] = []
    different = 2 if setting.layout == "pipeline" else 1
    found = []
    for number in range(different):
        calls = Calls()
        record = simulated(config, workload, number, setting.ranks, stream, calls)
        kinds = [
            Call(one.kind, one.dtype, one.flops, one.bytes, one.sizes, count)
            for one, count in calls.found.items()
        ]
        if setting.layout == "ddp":
            kinds += _reduced([tuple(one.shape) for one in workload.model().parameters()])
        most = peak(timeline(record)).total
        found.append(Rank(kinds, most))
    return found * (setting.ranks // different)


def _reduced(shapes: Sequence[tuple[int, ...]]) -> Iterator[Call]:
    for (_, _, dtype), (count, size) in replicated(shapes).rows.items():
        yield Call("collective", dtype, 0, size // count, (), count)


def _rank(told: dict[str, Any]) -> Rank:
    calls = [Call(k, d, f, b, tuple(s), n) for k, d, f, b, s, n in told["calls"]]
    return Rank(calls, told["peak_bytes"])
