"""What the steps since the last metric line came to."""

import logging
import socket
import time

from training import devices, stragglers
from training.clock import PARTS, Clock
from training.config import TrainConfig
from training.data.mixture import MixtureOrder
from training.data.order import Order
from training.numbers import Step
from training.stragglers import Stragglers, Table
from training.strategies.ranks import Ranks
from training.watching import updates

log = logging.getLogger(__name__)

RANKS = 64
"""Ranks whose own seconds stand in a line, at most: the first. The slowest of all is in the
``straggler_ratio``, and in the log by name."""


class Progress:
    """Counts steps, samples and units, and makes the line of them.

    Args:
        flops: operations of a unit, forward and backward, of the whole model.
    """

    def __init__(self, config: TrainConfig, ranks: Ranks, clock: Clock, flops: float) -> None:
        self._config, self._ranks, self._clock = config, ranks, clock
        self._flops, self._peak = flops, devices.peak(ranks.device)
        self._began, self._steps, self._units = 0.0, 0, 0.0
        self._stalled = 0.0  # seconds, of all steps before the last line
        self._stragglers = Stragglers(config.pipeline_parallel)
        self._hosts: list[str] = []

    def begin(self) -> None:
        """The first step comes next; every rank takes part."""
        self._hosts = self._ranks.gather(socket.gethostname())
        self._began = time.perf_counter()
        self._clock.skip()

    def pause(self, seconds: float) -> None:
        """So long nothing was trained."""
        self._began += seconds

    def step(self) -> None:
        """One more step is on its way."""
        self._steps += 1

    def count(self, units: float) -> None:
        """So many units more are known of."""
        self._units += units

    def own(self) -> list[float]:
        """What a rank tells the others of its part: seconds of each part, and its memory."""
        return [*self._clock.read().values(), devices.peak_memory(self._ranks.device)]

    def line(
        self, numbers: Step, rate: float, stalled: float, order: Order | None
    ) -> dict[str, float]:
        """The metrics since the last one, of what all ranks told.

        Args:
            numbers: each rank told what ``own`` says, and what ``updates.measured`` does.
            stalled: seconds that the loader let this rank wait, since the beginning.
        """
        now, world = time.perf_counter(), self._ranks.world
        elapsed, steps = now - self._began, self._steps
        units, samples = self._units / elapsed, steps * self._config.global_batch
        *seconds, memory = zip(*(row[: -updates.COUNT] for row in numbers.told), strict=True)
        metrics = {
            "step": numbers.number,
            "loss": numbers.loss / numbers.units,
            "learning_rate": rate,
            **self._of_gradient(numbers),
            "samples_per_second": samples / elapsed,
            "units_per_second": units,
            "units_per_second_per_rank": units / world,
            "step_seconds": elapsed / steps,
            **{f"{p}_seconds": sum(s) / world / steps for p, s in zip(PARTS, seconds, strict=True)},
            **self._slowest(numbers.told, steps),
            "data_stall": (stalled - self._stalled) / elapsed,
            "memory_mb": max(memory),
            **_seen(order, numbers.number * self._config.global_batch),
        }
        if self._peak:
            metrics["mfu"] = devices.utilisation(units, self._flops, world, self._peak)
        self._began, self._steps, self._units, self._stalled = now, 0, 0.0, stalled
        return metrics

    def _of_gradient(self, numbers: Step) -> dict[str, float]:
        """Its norm and what it has changed: nothing, where the step was left out; and in float16
        what the loss was scaled by, and the steps so far that were left out."""
        told = [row[-updates.COUNT :] for row in numbers.told]
        counts = {"grad_norm": numbers.norm, **updates.metrics(told)}
        scaled = {"loss_scale": int(numbers.scale), "skipped_steps": numbers.skipped}
        return ({} if numbers.left_out else counts) | (scaled if numbers.scale else {})

    def _slowest(self, table: Table, steps: int) -> dict[str, float]:
        """How slow the slowest rank is, where any do the same work, and the seconds of each rank's
        own work in a step; a rank that is slow persistently is logged."""
        stages = self._config.pipeline_parallel
        if self._ranks.world == stages:
            return {}
        for one in self._stragglers.add(table):
            if self._ranks.rank == 0:
                log.warning("%s", stragglers.told(one, self._hosts[one.rank], steps))
        own, found = stragglers.own_seconds(table)[:RANKS], stragglers.ratios(table, stages)
        each = {f"own_seconds.rank{rank}": seconds / steps for rank, seconds in enumerate(own)}
        worst = max(found)
        return {"straggler_ratio": worst, "straggler_rank": found.index(worst), **each}


def _seen(order: Order | None, position: int) -> dict[str, float]:
    """Samples of each input of a mixture that were taken so far, and how many epochs it is."""
    if not isinstance(order, MixtureOrder):
        return {}
    found: dict[str, float] = {}
    for one, count in zip(order.inputs, order.seen(position).tolist(), strict=True):
        found |= {f"samples.{one.name}": count, f"epochs.{one.name}": count / one.samples}
    return found
