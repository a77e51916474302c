"""What a setting's ranks do in a step and have in memory, counted on tensors without contents.

The strategy's own code runs (``training.simulation``); what it calls and what it allocates is
counted, and priced elsewhere. DistributedDataParallel's reducer is no operation of torch's: what it
sends is known in closed form (``_reduced``).
"""

import json
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.progress import track

from benchmarks.foresight.here.settings import Here
from training.config import TrainConfig
from training.cores import cores
from training.simulation.operations import Calls
from training.simulation.peak import peak, timeline
from training.simulation.step import simulated
from training.simulation.storages import Record
from training.workloads import load
from trainyard.common import whole_file

FIELDS = ("name", "kind", "dtype", "flops", "bytes", "sizes", "made", "given")
"""Of an operation, which a call has as well."""


@dataclass(frozen=True, slots=True)
class Call:
    """Calls of one kind and size: ``training.simulation.operations.Operation``, and how many."""

    name: str
    kind: str
    dtype: str
    flops: int
    bytes: int
    sizes: tuple[int, ...]
    made: int
    given: str
    count: int


@dataclass(frozen=True, slots=True)
class Rank:
    """A rank's step: its calls, the bytes that are alive at its peak, and what comes and goes.

    Attributes:
        before: bytes of what is there when the step begins, in the order of its making.
        during: of the step, in order: bytes that are taken, or, negative, a block's number that
            ends, from 1 on, those before the step counted first.
    """

    calls: Sequence[Call]
    peak_bytes: int
    before: Sequence[int]
    during: Sequence[int]

    def told(self) -> dict[str, Any]:
        """As JSON."""
        calls = [[getattr(one, name) for name in (*FIELDS, "count")] for one in self.calls]
        memory = {"before": self.before, "during": self.during}
        return {"calls": calls, "peak_bytes": self.peak_bytes} | memory


def works(settings: Sequence[Here], cache: Path) -> dict[Here, list[Rank]]:
    """Each setting's ranks; those that ``cache`` has are not counted again."""
    lines = cache.read_text().splitlines() if cache.exists() else []
    known = [json.loads(line) for line in lines]
    found = {Here(**one["setting"]): [*map(_rank, one["ranks"])] for one in known}
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__, "training.strategies.mesh"])
    lacking = [one for one in settings if one not in found]
    with ProcessPoolExecutor(cores(), context, max_tasks_per_child=1) as processes:
        made = zip(lacking, processes.map(work, lacking), strict=True)
        for setting, ranks in track(made, "counting", total=len(lacking)):
            found[setting] = ranks
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
            Call(*(getattr(one, name) for name in FIELDS), count)
            for one, count in calls.found.items()
        ]
        if setting.layout == "ddp":
            kinds += _reduced([tuple(one.shape) for one in workload.model().parameters()])
        most = peak(timeline(record)).total
        found.append(Rank(kinds, most, *blocks(record)))
    return found * (setting.ranks // different)


def blocks(record: Record) -> tuple[list[int], list[int]]:
    """``Rank.before`` and ``Rank.during`` of the last step."""
    first, last = record.events[: record.last], record.events[record.last :]
    ended = {event.life for event in first if event.size < 0}
    there = [event.life for event in first if event.size > 0 and event.life not in ended]
    numbers = {life: number for number, life in enumerate(there, 1)}
    during = []
    for event in last:
        if event.size > 0:
            numbers[event.life] = len(numbers) + 1
            during.append(event.size)
        else:
            during.append(-numbers[event.life])
    return [record.lives[life].size for life in there], during


def _reduced(shapes: Sequence[tuple[int, ...]]) -> Iterator[Call]:
    """DistributedDataParallel (Li et al. 2020, section 3.2): one all-reduce a bucket, of
    gradients in the reverse order of the weights; and one that says which weights were used.

    torch closes a bucket once it holds 1 MiB, if it is the first, or 25 MiB
    (``_compute_bucket_assignment_by_size``, ``_DEFAULT_FIRST_BUCKET_BYTES``).
    """
    buckets, filled, limit = list[int](), 0, 2**20
    for shape in reversed(shapes):
        filled += 4 * math.prod(shape)
        if filled >= limit:
            buckets.append(filled)
            filled, limit = 0, 25 * 2**20
    buckets += [filled] if filled else []
    count = len(buckets)
    mean = sum(buckets) // count
    yield Call("ddp::reduce", "collective", "float32", 0, mean, (), 0, "", count)
    yield Call("ddp::reduce", "collective", "int32", 0, 4 * len(shapes), (), 0, "", 1)


def _rank(told: dict[str, Any]) -> Rank:
    calls = [Call(*map(_hashable, one)) for one in told["calls"]]
    return Rank(calls, told["peak_bytes"], told["before"], told["during"])


def _hashable(one: Any) -> Any:
    return tuple(one) if isinstance(one, list) else one
