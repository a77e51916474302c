"""The strategies that a recipe can name: where each is, and what it can be combined with.

No torch here: recipes are checked with it. What AWS documents of machines, images and launchers
stands in ``steps.train.support``.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyEntry:
    """One strategy."""

    place: str
    """``module.Class`` in ``training.strategies``; imported when it is asked for, because some
    take seconds."""

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

    no_muon: str = ""
    """Why its weights cannot be updated by Muon, as part of a sentence; empty where they can."""

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
        no_muon="which cuts weights without regard to matrices",
        flat_from_stage=3,
    ),
    "horovod": StrategyEntry(
        place="horovod.Horovod",
        no_muon="which makes the optimizer anew from its groups alone",
    ),
    "smddp": StrategyEntry(place="smddp.Smddp"),
    "smp": StrategyEntry(
        place="smp.Smp",
        shards=True,
        keeps_layers=False,
        no_float16="whose machines have bfloat16",
        no_muon="which cuts weights without regard to matrices",
        flat_from_stage=1,
    ),
}
"""Name in a recipe → the strategy."""

SPLIT_PLACE = "mesh.Mesh"
"""What trains when samples or model are split among ranks, whichever strategy is named."""
