"""Faults that are seeded into real trainings, and the rule that has to name each.

A fault's function runs in the place of a rank: it breaks something, and then trains.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.training.trainings import SETTINGS
from tests.training.watching.healthy import Case
from tests.training.worlds import run_rank

Rank = Callable[[list[str], dict[str, str], Path, int], None]

LEARNS = SETTINGS | {
    **{"strategy": "single", "max_steps": 120, "learning_rate": 0.003, "warmup_steps": 5},
    **{"validation_interval": 20, "validation_samples": 200, "checkpoint_interval": 50},
}
"""A training that is healthy without its fault."""


@dataclass(frozen=True)
class Fault:
    """``rule`` is what has to fire; others may, too, where they see the same."""

    rule: str
    what: str
    settings: dict[str, Any] = field(default_factory=dict)
    rank: Rank = run_rank
    world: int = 1

    def case(self, number: int) -> Case:
        return Case(f"fault-{number:02d}", "language_model", self.world, LEARNS | self.settings)


def rate_times_1000(given: list[str], environment: dict[str, str], root: Path, rank: int) -> None:
    """From the 61st step on: a schedule that was changed in the middle."""
    from training import loop

    rate = loop.compute_learning_rate
    loop.compute_learning_rate = lambda config, step: (
        rate(config, step) * (1000 if step >= 60 else 1)
    )
    run_rank(given, environment, root, rank)


def sleeping_rank(given: list[str], environment: dict[str, str], root: Path, rank: int) -> None:
    from training.strategies.single import Strategy

    outputs = Strategy.compute_outputs

    def late(self: Any, model: Any, batch: Any) -> Any:
        time.sleep(0.3 * (rank == 1))
        return outputs(self, model, batch)

    Strategy.compute_outputs = late
    run_rank(given, environment, root, rank)


def slow_reader(given: list[str], environment: dict[str, str], root: Path, rank: int) -> None:
    """Each read of the data waits, as a throttled file system has it."""
    from training.data.dataset import Dataset

    read = Dataset.read
    Dataset.read = lambda self, indices: time.sleep(0.4 * len(indices) / 8) or read(self, indices)
    run_rank(given, environment, root, rank)


def full_disk(given: list[str], environment: dict[str, str], root: Path, rank: int) -> None:
    """The process that writes checkpoints can write no file of more than 100 kB."""
    import resource

    from training.checkpoint.save import Writer

    begin = Writer.__init__

    def begin_with_limit(self: Any, *given: Any) -> None:
        begin(self, *given)
        resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (100_000, 100_000))

    Writer.__init__ = begin_with_limit
    run_rank(given, environment, root, rank)


FAULTS = (
    Fault("loss_not_falling", "learning rate × 1000", settings={"learning_rate": 3.0}),
    Fault("loss_not_falling", "learning rate × 1000 from step 61 on", rank=rate_times_1000),
    Fault("loss_not_falling", "weights as good as frozen", settings={"learning_rate": 1e-12}),
    Fault("stalled_rank", "rank 1 of 2 sleeps", rank=sleeping_rank, world=2,
          settings={"strategy": "ddp", "global_batch": 16, "max_steps": 60}),
    Fault("data_bottleneck", "each read sleeps", rank=slow_reader),
    Fault("checkpoint_failing", "no file beyond 100 kB", rank=full_disk),
    Fault("cost_beyond_plan", "planned for a hundredth of a second",
          settings={"watch": '{"cost_beyond_plan": {"minutes": 0.0002}}'}),
)  # fmt: skip
