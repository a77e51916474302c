"""The strategies that a recipe can name: their modules, possible combinations, and the oldest torch
that strategies and options need; the schedules of a pipeline.

No torch here, because recipes are checked with this module. What AWS documents about machines,
images and launchers is in ``steps.train.config``.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

OLDEST_TORCH = "2.8.0"
"""Oldest torch with which the training's tests pass (make test-torch). With 2.6 FSDP2, context
and pipeline parallelism fail.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyEntry:
    """Properties of one strategy."""

    class_path: str
    """``module.Class`` in ``training.strategies``; imported on demand, because some imports take
    seconds.
    """

    least_torch: str = OLDEST_TORCH
    """Oldest torch that it supports."""

    one_process: bool = False
    """True if it runs in one process only."""

    splits: bool = False
    """True if it can be combined with tensor, context and pipeline parallelism."""

    shards: bool = False
    """True if it accepts a ``shard_degree``."""

    adapters: bool = False
    """True if it can train adapters next to frozen weights, and omit the frozen weights from
    checkpoints.
    """

    float8: bool = False
    """True if its linear layers can multiply in float8."""

    keeps_layers: bool = True
    """True if the optimizer has a layer's weights as one tensor, which LAMB needs."""

    float64: bool = True
    """True if it can train in float64."""

    no_float16: str = ""
    """Reason why it cannot train in float16, as part of a sentence; empty if it can."""

    flat_from_stage: int = 4
    """Lowest ``zero_stage`` at which no whole weights are kept between steps; 4 if they always
    are.
    """


STRATEGIES = {
    "single": StrategyEntry(
        class_path="single.Strategy", one_process=True, adapters=True, float8=True
    ),
    "ddp": StrategyEntry(class_path="ddp.Ddp", splits=True, adapters=True, float8=True),
    "fsdp": StrategyEntry(
        class_path="mesh.Mesh", splits=True, shards=True, adapters=True, float8=True
    ),
    "deepspeed": StrategyEntry(
        class_path="deepspeed.DeepSpeed",
        keeps_layers=False,
        float64=False,
        no_float16="whose own loss scaling skips steps that the loop does not know of",
        flat_from_stage=3,
    ),
    "smddp": StrategyEntry(class_path="smddp.Smddp", least_torch="2.4.1"),
    "smp": StrategyEntry(
        class_path="smp.Smp",
        least_torch="2.4.1",
        shards=True,
        keeps_layers=False,
        no_float16="whose machines have bfloat16",
        flat_from_stage=1,
    ),
}
"""Mapping of the name in a recipe to the strategy's entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionEntry:
    """A setting that needs a newer torch than the training loop itself."""

    field: str
    """Setting to change if torch is too old."""

    least_torch: str
    """Oldest torch that the option needs."""

    is_used: Callable[[Any], bool]
    """Predicate on ``TrainConfig``: true if the training uses the option."""


OPTIONS = {
    # torchao 0.18 imports torch.nn.functional.ScalingType.
    "float8": OptionEntry(
        field="float8", least_torch="2.10.0", is_used=lambda config: config.float8 != "none"
    ),
    # With torch 2.8 a rank crashes when such a training run ends.
    "FSDP with tensor and context parallelism": OptionEntry(
        field="context_parallel",
        least_torch="2.10.0",
        is_used=lambda config: (
            config.strategy == "fsdp" and config.tensor_parallel > 1 and config.context_parallel > 1
        ),
    ),
    # With torch 2.8 a compiled block that is recomputed updates a BatchNorm's statistics twice.
    "compiled recomputation": OptionEntry(
        field="activation_checkpointing",
        least_torch="2.10.0",
        is_used=lambda config: config.compile and config.activation_checkpointing != "none",
    ),
    # With torch 2.10 a compiled block that is split over ranks mixes float64 and float32.
    "compiled tensor parallelism in float64": OptionEntry(
        field="compile",
        least_torch="2.13.0",
        is_used=lambda config: (
            config.compile and config.tensor_parallel > 1 and config.precision == "float64"
        ),
    ),
}
"""Mapping of an option's name to its entry. Every setting not listed here needs
``OLDEST_TORCH``.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleEntry:
    """How one of torch's pipeline schedules shares stages and micro-batches."""

    default_stages: int = 1
    """Stages per rank if the recipe does not set them."""

    max_stages: int | None = None
    """Largest number of stages per rank; None for any number."""

    rounds: bool = False
    """True if micro-batches run in rounds of at least as many as there are ranks, with equally
    many in each round.
    """

    def explain_unfit_micro_batches(
        self, micro_batches: int, ranks: int, stages: int
    ) -> str | None:
        """Return why the schedule cannot run this number of micro-batches, or None if it can."""
        if micro_batches < ranks:
            return f"{ranks} ranks need at least as many micro-batches to be busy"
        rounds = micro_batches // ranks
        if self.rounds and micro_batches % rounds:
            better = micro_batches // ranks * ranks
            return (
                f"{micro_batches} micro-batches make {micro_batches} / {ranks} = {rounds} rounds, "
                f"which are not equally large; use {better} or {better + ranks}"
            )
        return None


SCHEDULES = {
    "1f1b": ScheduleEntry(max_stages=1),
    "gpipe": ScheduleEntry(max_stages=1),
    "interleaved_1f1b": ScheduleEntry(default_stages=2, rounds=True),
    "looped_bfs": ScheduleEntry(default_stages=2),
}
"""Mapping of the schedule's name in a recipe to its entry; the names are those of
torch.distributed.pipelining.schedules, ignoring case and underscores.
"""


def parse_release(version: str) -> tuple[int, int, int]:
    """Return the numbers of a version: ``2.10.0+cu128`` → (2, 10, 0)."""
    numbers = [int(number) for number in re.findall(r"\d+", version.partition("+")[0])[:3]]
    major, minor, patch = (*numbers, 0, 0, 0)[:3]
    return major, minor, patch


def iter_torch_requirements(config: Any) -> Iterator[tuple[str, str]]:
    """Yield (setting, oldest torch that it needs) for each such setting of a ``TrainConfig``."""
    yield "strategy", config.entry.least_torch
    yield from (
        (option.field, option.least_torch) for option in OPTIONS.values() if option.is_used(config)
    )


def explain_unfit_torch(config: Any, version: str) -> str | None:
    """Return why this ``TrainConfig`` cannot run with this torch, or None if it can.

    ``validate`` checks AWS's images with it, and the job checks its own torch.
    """
    field, min_version = max(
        iter_torch_requirements(config), key=lambda requirement: parse_release(requirement[1])
    )
    if parse_release(version) >= parse_release(min_version):
        return None
    return (
        f"{field} {getattr(config, field)} needs PyTorch {min_version} or newer, and the training "
        "image "
        f"has {version}: choose a newer image, or change {field}"
    )


SPLIT_PLACE = "mesh.Mesh"
"""Class that trains when samples or the model are split among ranks, whichever strategy is
named.
"""
