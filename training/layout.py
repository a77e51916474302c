"""How the ranks share a training: what changes its speed and memory, and never its result.

No torch here: a recipe is checked without it.
"""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from training.strategy_table import STRATEGIES, StrategyEntry

Strategy = Literal[tuple(STRATEGIES)]


class Layout(BaseModel):
    """The part of ``TrainConfig`` that lays the work out over ranks, memory and kernels.

    No field of it belongs to a training's identity, but for models that are told apart by the
    micro-batch (``training.config.BY_BATCH``).
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    strategy: Strategy = "ddp"
    """How the data-parallel ranks share the work. single: one process. ddp: weights replicated.
    fsdp: weights, gradients and optimizer state sharded (FSDP2). deepspeed: ZeRO. horovod, smddp,
    smp: by these libraries, where the container has them."""

    shard_degree: int = Field(default=0, ge=0)
    """With fsdp and smp: ranks that share one copy of the weights; 0 for all data-parallel ranks.
    Fewer make it hybrid: sharded inside a group (a node), replicated between the groups."""

    tensor_parallel: int = Field(default=1, ge=1)
    """With ddp and fsdp: ranks that share each matrix product; best within one node."""

    sequence_parallel: bool = True
    """With tensor_parallel, where the workload can: what lies between the split layers is shared
    along the sequence too (Korthikanti et al. 2022), for as much traffic and a share of the
    activations' memory."""

    context_parallel: int = Field(default=1, ge=1)
    """With ddp and fsdp: ranks that share each sequence, for contexts whose activations one rank
    cannot hold. They hold the same weights, over which fsdp shards, too."""

    pipeline_parallel: int = Field(default=1, ge=1)
    """With ddp and fsdp: stages that the model's blocks are cut into, one after another."""

    zero_stage: int = Field(default=1, ge=1, le=3)
    """With deepspeed: what is sharded. 1: optimizer state, 2: gradients too, 3: weights too."""

    activation_checkpointing: bool = False
    """Compute each block's activations anew in the backward pass instead of keeping them."""

    compile: bool = False
    """torch.compile each block: minutes at the start, faster steps."""

    @property
    def entry(self) -> StrategyEntry:
        """What the table says of the strategy."""
        return STRATEGIES[self.strategy]

    @property
    def split(self) -> int:
        """Ranks that take the same samples: tensor × pipeline × context."""
        return self.tensor_parallel * self.context_parallel * self.pipeline_parallel

    @property
    def degrees(self) -> str:
        """Those degrees by name, for messages."""
        context = self.context_parallel
        middle = f"context_parallel {context} × " if context > 1 else ""
        return (
            f"tensor_parallel {self.tensor_parallel} × {middle}"
            f"pipeline_parallel {self.pipeline_parallel}"
        )

    def data_parallel(self, world: int) -> int:
        """How many of ``world`` ranks see different samples: world / ``split``.

        Raises:
            ValueError: the strategy has no use for so many ranks; with the arithmetic.
        """
        split = self.split
        if self.entry.one_process and world > 1:
            raise ValueError(
                f"strategy {self.strategy} cannot use {world} ranks; set train.loop.strategy to "
                "ddp, or train.instance_count and train.processes_per_node to 1"
            )
        if world % split:
            raise ValueError(
                f"{world} ranks cannot be shared by {self.degrees} = {split}: choose a multiple "
                "of it"
            )
        data = world // split
        if data % (self.shard_degree or data):
            raise ValueError(
                f"shard_degree {self.shard_degree} does not divide the {data} data-parallel ranks "
                f"({world} ranks / {split}): choose a divisor of {data}, or 0 for all"
            )
        return data

    @model_validator(mode="after")
    def _layout_is_possible(self) -> Self:
        entry = self.entry
        if self.split > 1 and not entry.splits:
            others = " or ".join(name for name, one in STRATEGIES.items() if one.splits)
            raise ValueError(
                f"strategy {self.strategy} cannot be combined with {self.degrees}; set strategy "
                f"to {others}"
            )
        if self.shard_degree and not entry.shards:
            others = " and ".join(name for name, one in STRATEGIES.items() if one.shards)
            raise ValueError(
                f"shard_degree {self.shard_degree} is for strategies {others}, not "
                f"{self.strategy}; leave it at 0"
            )
        return self
