"""What the counted work costs on this machine, none of which is a training.

Each call is made alone, with the training's sizes, strides and types, by as many processes at the
same time as the training has ranks; what a collective takes is the probe's, by its kind and size;
and the fresh pages that a step makes the kernel clear are counted by asking malloc for the step's
blocks in their order (``training.probing.pages``).
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from benchmarks.foresight.here.measure import IMPORTED
from benchmarks.foresight.here.settings import Here
from benchmarks.foresight.here.work import Call, Rank
from training.probing import alone, pages
from trainyard.common import whole_file

TYPES = ("float32", "bfloat16")
"""Of collectives that the probe has; any other's price is the first's."""

ALONE = 200
"""Calls that are priced at a time; what is known is then written."""

COLLECTIVES = {
    "reduce_scatter": ("reduce_scatter", 1.5),
    "allgather": ("all_gather", 1.5),
    "all_gather": ("all_gather", 1.5),
    "ddp::reduce": ("all_reduce", 1.0),
    "allreduce": ("all_reduce", 2.0),
    "all_reduce": ("all_reduce", 2.0),
    "send": ("send", 1.0),
}
"""Part of an operator's name → the probe's kind, and its counted bytes over those of the whole
tensor, of two ranks. A ``recv_`` is in the ``send`` of the probe, ``wait_tensor`` in all."""

Counted = Mapping[Here, Sequence[Rank]]


@dataclass(frozen=True)
class Prices:
    """CPU seconds on one thread.

    Attributes:
        call: of a call on almost nothing.
        page: of a byte of fresh pages.
        alone: ranks → a call's ``key`` → of that call.
        fresh: a setting's name → bytes of fresh pages a step, of each rank.
        sent: kind of collective, type → bytes of the whole tensor → of a rank.
    """

    call: float
    page: float
    alone: Mapping[int, Mapping[str, float]]
    fresh: Mapping[str, Sequence[float]]
    sent: Mapping[tuple[str, str], Callable[[float], float]]

    def of(self, call: Call, ranks: int) -> float:
        """Of one call, where so many ranks compute at the same time."""
        if call.kind != "collective":
            return self.alone[ranks][key(call)] if call.given else 0.0
        for part, (kind, share) in COLLECTIVES.items():
            if part in call.name:
                dtype = call.dtype if call.dtype in TYPES else "float32"
                return self.sent[kind, dtype](max(call.bytes / share, 1))
        return 0.0


def key(call: Call) -> str:
    """A call by its operator and its arguments."""
    return f"{call.name} {call.given}"


def prices(probe: Mapping[str, Any], counted: Counted, cache: Path) -> Prices:
    """All that ``counted`` asks for; what ``cache`` does not know is measured, and kept there.

    Raises:
        RuntimeError: a call cannot be made alone.
    """
    known = json.loads(cache.read_text()) if cache.exists() else {"alone": {}, "fresh": {}}
    os.environ["OMP_NUM_THREADS"] = "1"  # read by the processes when they import torch

    def keep() -> None:
        whole_file.write(cache, json.dumps(known).encode())

    for ranks in sorted({setting.ranks for setting in counted}):
        _alone(known["alone"].setdefault(str(ranks), {}), _calls(counted, ranks), ranks, keep)
    _fresh(known["fresh"], counted, keep)
    measured = probe["measured"]
    return Prices(
        call=float(np.mean([one["call"]["forward_seconds"] for one in measured])),
        page=float(np.mean([one["page_seconds"] for one in measured])),
        alone={int(ranks): found for ranks, found in known["alone"].items()},
        fresh=known["fresh"],
        sent={
            (kind, dtype): _line(measured, kind, dtype)
            for (kind, _), dtype in product(COLLECTIVES.values(), TYPES)
        },
    )


def _calls(counted: Counted, ranks: int) -> Iterable[Call]:
    of = (each for setting, each in counted.items() if setting.ranks == ranks)
    every = (call for each in of for rank in each for call in rank.calls if call.given)
    return {key(call): call for call in every}.values()


def _alone(
    known: dict[str, float], calls: Iterable[Call], ranks: int, keep: Callable[[], None]
) -> None:
    lacking = [call for call in calls if key(call) not in known]
    with _processes(ranks, begin=alone.ready) as processes:
        for first in track(range(0, len(lacking), ALONE), f"pricing, {ranks} at a time"):
            asked = lacking[first : first + ALONE]
            given = [[(call.name, call.given) for call in asked]] * ranks
            found = zip(*processes.map(alone.priced, given), strict=True)
            for call, each in zip(asked, found, strict=True):
                known[key(call)] = float(np.mean(each))
            keep()


def _fresh(known: dict[str, list[float]], counted: Counted, keep: Callable[[], None]) -> None:
    with _processes(1, tasks=1) as processes:  # each in one of its own: malloc remembers
        for setting in track([one for one in counted if one.name not in known], "pages"):
            ranks = counted[setting]
            alike = ranks[:1] if all(one.during == ranks[0].during for one in ranks) else ranks
            given = [one.before for one in alike], [one.during for one in alike]
            found = [*processes.map(pages.fresh, *given)]
            known[setting.name] = found * (len(ranks) // len(alike))
            keep()


def _processes(
    count: int, tasks: int | None = None, begin: Callable[[], None] | None = None
) -> ProcessPoolExecutor:
    context = get_context("forkserver")
    context.set_forkserver_preload([*IMPORTED])
    return ProcessPoolExecutor(count, context, begin, max_tasks_per_child=tasks)


def _line(ranks: Sequence[Mapping[str, Any]], *asked: str) -> Callable[[float], float]:
    """Size → seconds, between measured sizes by a power law, beyond them in proportion."""
    every = [row for one in ranks for row in one["collective"]]
    rows = [row for row in every if (row["kind"], row["dtype"]) == asked]
    sizes = sorted({row["bytes"] for row in rows})
    means = [np.mean([row["seconds"] for row in rows if row["bytes"] == one]) for one in sizes]
    x, y = np.log(sizes), np.log(means)

    def priced(size: float) -> float:
        beyond = max(0.0, float(np.log(size)) - x[-1])
        return float(np.exp(np.interp(np.log(size), x, y) + beyond))

    return priced
