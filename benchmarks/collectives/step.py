"""One step of the real training loop, counted: among real ranks, or as rank 0 of a fake world."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from benchmarks.collectives.cases import VOCABULARY
from benchmarks.collectives.counter import Counting
from training import strategies
from training.config import TrainConfig
from training.loop import Loop
from training.strategies.ranks import Ranks
from training.strategies.single import Single
from training.traffic import Traffic
from training.workloads import load
from training.workloads.language_model.config import LanguageModelConfig
from training.workloads.language_model.traffic import degrees_of, step

WORKLOAD = "language_model"


class Nothing:
    """No checkpoint is there, and none is written."""

    def resume(self, state: Any) -> None:
        """There is none."""


class Samples:
    """Tokens, in the place of ``training.data.ahead.Ahead``."""

    stalled = 0.0

    def __init__(self, config: TrainConfig, length: int, micro_batches: int) -> None:
        self._shape, self._count = (config.micro_batch, length + 1), micro_batches

    def take(self) -> list[Mapping[str, Tensor]]:
        """A step's micro-batches."""
        words = [torch.randint(97, 123, self._shape) for _ in range(self._count)]
        return [{"tokens": one.to(torch.int32)} for one in words]

    def fetch(self) -> None:
        """Nothing: they are made when they are taken."""


def config_of(settings: Mapping[str, Any], world: int, micro_batches: int) -> TrainConfig:
    """Micro-batches of two samples."""
    given = {"max_steps": 10, "learning_rate": 1e-3, "log_interval": 100, "micro_batch": 2}
    draft = TrainConfig(**given, global_batch=2, **settings)
    return draft.model_copy(update={"global_batch": 2 * micro_batches * draft.data_parallel(world)})


def count(config: TrainConfig, model: Mapping[str, Any], ranks: Ranks) -> Traffic:
    """What a step of this rank sends that is not logged; the one before it learns shapes."""
    workload = load(WORKLOAD, dict(model))
    with torch.random.fork_rng():
        strategy = strategies.kind(config)(config, workload, ranks)
        loop = Loop(config, workload, strategy, Nothing(), lambda metrics: None)
        samples = Samples(config, model["context_length"], loop.micro_batches)
        loop.step = 1  # the first step is logged
        loop._train_step(samples, samples)
        with Counting(axes(strategy), _unnamed(config)) as counting:
            loop._train_step(samples, samples)
    return counting.found


def axes(strategy: Single) -> dict[str, str]:
    """A group's own name → the axis that it lies along."""
    if strategy.ranks.world == 1:
        return {}
    found = {dist.group.WORLD.group_name: "world"}
    mesh: DeviceMesh | None = getattr(strategy, "mesh", None)
    for name in mesh.mesh_dim_names or () if mesh is not None else ():
        found[mesh[name].get_group().group_name] = name
        if mesh[name].size() == strategy.ranks.world:  # before 2.9 torch makes it a second group
            found[dist.group.WORLD.group_name] = name
    if experts := getattr(strategy, "expert_mesh", None):
        for name in experts.mesh_dim_names:
            axis = name if name == "expert" else f"expert_{name}"
            found.setdefault(experts[name].get_group().group_name, axis)
    return found


def _unnamed(config: TrainConfig) -> str:
    """What a group is that is no axis of the strategy's mesh."""
    return "reshard" if isinstance(config.reshard_after_forward, int) else "context"


def alike(counted: Traffic, said: Traffic) -> bool:
    """Whether the formulas say what was counted; of an all-to-all they have the mean of the ranks,
    so there its messages are compared."""
    one, other = (
        {key: n[:1] if key[1] == "all_to_all" else n for key, n in found.rows.items()}
        for found in (counted, said)
    )
    return one == other


def in_fake_world(
    world: int, settings: Mapping[str, Any], micro_batches: int, model: Mapping[str, Any]
) -> Traffic:
    """As rank 0 of ``world`` ranks that are not there: torch's fake process group moves nothing."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=world, store=FakeStore())
    try:
        config = config_of(settings, world, micro_batches)
        return count(config, model, Ranks(0, 0, world, torch.device("cpu")))
    finally:
        dist.destroy_process_group()


def expected(
    world: int, settings: Mapping[str, Any], micro_batches: int, model: Mapping[str, Any]
) -> tuple[Traffic, Mapping[str, int]]:
    """(what the formulas say, axis → ranks)."""
    config, shape = config_of(settings, world, micro_batches), LanguageModelConfig(**model)
    degrees = degrees_of(config, world)
    found = step(config, shape, shape.vocabulary or VOCABULARY, world)
    # torch takes the group of all ranks for an axis that has all of them.
    along = next(
        (axis for axis, ranks in degrees.items() if ranks == world and axis != "world"), ""
    )
    renamed = Traffic()
    for (axis, kind, dtype), (count_, size) in found.rows.items():
        key = (along if along and axis == "world" else axis), kind, dtype
        before = renamed.rows.get(key, (0, 0))
        renamed.rows[key] = before[0] + count_, before[1] + size
    meshed = config.strategy == "fsdp" or config.split * config.expert_parallel > 1
    return (renamed if meshed else found), degrees
