"""How long the ranks of a pipeline wait, by schedule: python -m benchmarks.pipelines [--ranks 4]
[--micro-batches 16]

The order of each rank's work is torch's own; no clock is read. A stage's forward pass takes a tick
over the stages on a rank, its backward pass two. Sending
takes none. What a rank waits, as a share of the step, stands beside the formula of the paper.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from training.strategy_table import SCHEDULES

Key = tuple[int, str, int]
"""Stage, F (forward) or B (backward), batch."""

KINDS = {"FORWARD": "F", "FULL_BACKWARD": "B"}
TICKS = {"F": 1, "B": 2}


def main(ranks: int = 4, micro_batches: int = 16) -> None:
    table = Table("schedule", "stages per rank", "waiting", "formula", "activations at most")
    for name, entry in SCHEDULES.items():
        stages = entry.usual
        if refused := entry.refuse(micro_batches, ranks, ranks * stages):
            table.add_row(name, str(stages), refused, "", "")
            continue
        order = orders(name, ranks, micro_batches, stages)
        waits = waiting(order, ranks * stages)
        expected = formula(ranks, micro_batches, stages)
        table.add_row(
            name,
            str(stages),
            f"{float(waits):.1%}",
            f"{float(expected):.1%}",
            str(activations(order)),
        )
    Console().print(table)


def orders(name: str, ranks: int, micro_batches: int, stages: int) -> list[list[Key]]:
    """Each rank's work, one after the other, as torch's schedule has it."""
    from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

    if name == "1f1b":  # torch's list of it counts the last rank's forward passes from 1
        return [_one_by_one(rank, ranks, micro_batches) for rank in range(ranks)]
    found = get_schedule_ops(name.replace("_", ""), ranks, micro_batches, stages)
    return [[key for action in row if action for key in _keys(action)] for row in found]


def _one_by_one(rank: int, ranks: int, micro_batches: int) -> list[Key]:
    """What torch's Schedule1F1B does: as many forward passes as there are stages to come, first."""
    first = min(micro_batches, ranks - rank)
    found: list[Key] = [(rank, "F", batch) for batch in range(first)]
    for batch in range(micro_batches):
        found.append((rank, "B", batch))
        if first + batch < micro_batches:
            found.append((rank, "F", first + batch))
    return found


def _keys(action: Any) -> list[Key]:
    """A pair that overlaps is one after the other here; what is no computation is left out."""
    if action.sub_actions:
        return [key for one in action.sub_actions for key in _keys(one)]
    kind = KINDS.get(action.computation_type.name)
    return [(action.stage_index, kind, action.microbatch_index)] if kind else []


def waiting(order: Sequence[Sequence[Key]], stages: int) -> Fraction:
    """The ranks' mean share of the step in which they have nothing to do."""
    ends: dict[Key, int] = {}
    clock, done = [0] * len(order), [0] * len(order)
    while any(count < len(row) for count, row in zip(done, order, strict=True)):
        before = sum(done)
        for rank, row in enumerate(order):
            while done[rank] < len(row):
                needed = [ends.get(key) for key in _needs(row[done[rank]], stages)]
                if None in needed:
                    break
                begin = max([clock[rank], *(one for one in needed if one is not None)])
                clock[rank] = ends[row[done[rank]]] = begin + TICKS[row[done[rank]][1]]
                done[rank] += 1
        if sum(done) == before:
            raise ValueError(f"no rank can go on after {before} computations")
    busy = sum(TICKS[kind] for row in order for _, kind, _ in row)
    return 1 - Fraction(busy, max(clock) * len(order))


def _needs(key: Key, stages: int) -> list[Key]:
    """What has to be through before."""
    stage, kind, batch = key
    if kind == "F":
        return [(stage - 1, "F", batch)] if stage else []
    return [(stage, "F", batch), *([(stage + 1, "B", batch)] if stage + 1 < stages else [])]


def activations(order: Sequence[Sequence[Key]]) -> int:
    """Forward passes whose backward pass is still to come, at most, on any rank."""
    most = 0
    for row in order:
        held = 0
        for _, kind, _ in row:
            held += {"F": 1, "B": -1}[kind]
            most = max(most, held)
    return most


def formula(ranks: int, micro_batches: int, stages: int) -> Fraction:
    """The share that a rank waits by the schedule's paper, of equal stages.

    Narayanan et al. 2021, section 2.2: (p − 1) / v of m micro-batches' time is waited beside them.
    Lamy-Poirier 2023: the same.
    """
    waits = Fraction(ranks - 1, stages)
    return waits / (micro_batches + waits)


if __name__ == "__main__":
    typer.run(main)
