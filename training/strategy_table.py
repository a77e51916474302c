"""The strategies that a recipe can name: where each is, what it can be combined with, and the least
torch that strategies and options need; the schedules of a pipeline.

No torch here: recipes are checked with it. What AWS documents of machines, images and launchers
stands in ``steps.train.library_support``.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

OLDEST_TORCH = "2.8.0"
"""The oldest torch under which the training's tests pass (make test-torch). Under 2.6 FSDP2,
context and pipeline parallelism fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyEntry:
    """One strategy."""

    place: str
    """``module.Class`` in ``training.strategies``; imported when it is asked for, because some
    take seconds."""

    least_torch: str = OLDEST_TORCH
    """The least torch that it needs."""

    one_process: bool = False
    """Whether it takes one process only."""

    splits: bool = False
    """Whether it can be combined with tensor, context and pipeline parallelism."""

    shards: bool = False
    """Whether it takes a ``shard_degree``."""

    adapters: bool = False
    """Whether it trains adapters beside frozen weights, and keeps these out of checkpoints."""

    float8: bool = False
    """Whether its linear layers can multiply in float8."""

    keeps_layers: bool = True
    """Whether the optimizer sees a layer's weights together, as LAMB needs."""

    float64: bool = True
    """Whether it can train in float64."""

    no_float16: str = ""
    """Why it cannot train in float16, as part of a sentence; empty where it can."""

    flat_from_stage: int = 4
    """The ``zero_stage`` from which on no whole weights are kept between steps; 4: none."""


STRATEGIES = {
    "single": StrategyEntry(place="single.Single", one_process=True, adapters=True, float8=True),
    "ddp": StrategyEntry(place="ddp.Ddp", splits=True, adapters=True, float8=True),
    "fsdp": StrategyEntry(place="mesh.Mesh", splits=True, shards=True, adapters=True, float8=True),
    "deepspeed": StrategyEntry(
        place="deepspeed.DeepSpeed",
        keeps_layers=False,
        float64=False,
        no_float16="whose own loss scaling leaves out other steps than the loop knows of",
        flat_from_stage=3,
    ),
    "smddp": StrategyEntry(place="smddp.Smddp", least_torch="2.4.1"),
    "smp": StrategyEntry(
        place="smp.Smp",
        least_torch="2.4.1",
        shards=True,
        keeps_layers=False,
        no_float16="whose machines have bfloat16",
        flat_from_stage=1,
    ),
}
"""Name in a recipe → the strategy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionEntry:
    """A setting that needs a newer torch than the loop itself."""

    field: str
    """The setting that is changed where torch is too old."""

    least_torch: str
    """The least torch that it needs."""

    asked: Callable[[Any], bool]
    """Whether a training's ``TrainConfig`` asks for it."""


OPTIONS = {
    # torchao 0.18 imports torch.nn.functional.ScalingType.
    "float8": OptionEntry(
        field="float8", least_torch="2.10.0", asked=lambda config: config.float8 != "none"
    ),
    # Under torch 2.8 a rank crashes as such a training ends.
    "FSDP with tensor and context parallelism": OptionEntry(
        field="context_parallel",
        least_torch="2.10.0",
        asked=lambda config: (
            config.strategy == "fsdp" and config.tensor_parallel > 1 and config.context_parallel > 1
        ),
    ),
    # In torch 2.8 a compiled block that is recomputed updates a BatchNorm's statistics twice.
    "compiled recomputation": OptionEntry(
        field="activation_checkpointing",
        least_torch="2.10.0",
        asked=lambda config: config.compile and config.activation_checkpointing != "none",
    ),
    # In torch 2.10 a compiled block that ranks share mixes float64 and float32.
    "compiled tensor parallelism in float64": OptionEntry(
        field="compile",
        least_torch="2.13.0",
        asked=lambda config: (
            config.compile and config.tensor_parallel > 1 and config.precision == "float64"
        ),
    ),
}
"""What is asked for → the entry. Every setting that is not here needs ``OLDEST_TORCH``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleEntry:
    """How one of torch's pipeline schedules shares stages and micro-batches."""

    usual: int = 1
    """Stages on a rank where the recipe does not say it."""

    most: int | None = None
    """Stages on a rank; None: any number."""

    rounds: bool = False
    """Micro-batches go in rounds of as many as there are ranks, or some more; all rounds alike."""

    def refuse(self, micro_batches: int, ranks: int, stages: int) -> str | None:
        """Why so many micro-batches cannot be shared, with the arithmetic; None where they can."""
        if micro_batches < ranks:
            return f"{ranks} ranks need as many micro-batches to be busy"
        rounds = micro_batches // ranks
        if self.rounds and micro_batches % rounds:
            better = micro_batches // ranks * ranks
            return (
                f"{micro_batches} micro-batches make {micro_batches} / {ranks} = {rounds} rounds, "
                f"which are not of equally many; {better} or {better + ranks} would do"
            )
        return None


SCHEDULES = {
    "1f1b": ScheduleEntry(most=1),
    "gpipe": ScheduleEntry(most=1),
    "interleaved_1f1b": ScheduleEntry(usual=2, rounds=True),
    "looped_bfs": ScheduleEntry(usual=2),
}
"""Schedule of torch.distributed.pipelining.schedules, without regard to case and underscores."""

SIMULATION_TORCH = "2.13.0"
"""The least torch of ``training.simulation``, which no image runs: it is for the checkout's own."""


def release(version: str) -> tuple[int, int, int]:
    """``2.10.0+cu128`` → (2, 10, 0)."""
    numbers = [int(number) for number in re.findall(r"\d+", version.partition("+")[0])[:3]]
    major, minor, patch = (*numbers, 0, 0, 0)[:3]
    return major, minor, patch


def needed_torch(config: Any) -> Iterator[tuple[str, str]]:
    """Yield (setting, the least torch that it needs) for each part of a ``TrainConfig``."""
    yield "strategy", config.entry.least_torch
    yield from ((one.field, one.least_torch) for one in OPTIONS.values() if one.asked(config))


def refuse_torch(config: Any, version: str) -> str | None:
    """Why a training with this ``TrainConfig`` cannot run under this torch; None when it can.

    ``validate`` asks this of AWS's images, and the job asks it where it runs.
    """
    field, least = max(needed_torch(config), key=lambda needed: release(needed[1]))
    if release(version) >= release(least):
        return None
    return (
        f"{field} {getattr(config, field)} needs PyTorch {least} or newer, and the training image "
        f"has {version}: choose a newer image, or change {field}"
    )


SPLIT_PLACE = "mesh.Mesh"
"""What trains when samples or model are split among ranks, whichever strategy is named."""
