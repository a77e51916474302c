"""How the ranks share a training: what changes its speed and memory, and never its result.

No torch here: a recipe is checked without it.
"""

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from training.strategy_table import SCHEDULES, STRATEGIES, ScheduleEntry, StrategyEntry
from training.workloads.former_settings import without

Strategy = Literal[tuple(STRATEGIES)]
Schedule = Literal[tuple(SCHEDULES)]
FSDP = (
    "param_dtype",
    "reduce_dtype",
    "reshard_after_forward",
    "forward_prefetch",
    "backward_prefetch",
    "cpu_offload",
    "gradient_accumulation",
    "float8_all_gather",
)
"""The settings of FSDP2 alone; under the names that torch has for them, where it has."""


class Layout(BaseModel):
    """The part of ``TrainConfig`` that lays the work out over ranks, memory and kernels.

    No field of it belongs to a training's identity, but for models that are told apart by the
    micro-batch (``training.config.BY_BATCH``).
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    strategy: Strategy = "ddp"
    """How the data-parallel ranks share the work. single: one process. ddp: weights replicated.
    fsdp: weights, gradients and optimizer state sharded (FSDP2). deepspeed: ZeRO. smddp, smp:
    by these libraries, where the container has them."""

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
    """With ddp and fsdp: ranks that share the model's blocks, one after another."""

    pipeline_schedule: Schedule = "1f1b"
    """In which order a rank's stages take micro-batches, forward and backward: torch's schedules.
    1f1b (Narayanan et al. 2019) and gpipe: one stage a rank. interleaved_1f1b (Narayanan et al.
    2021) and looped_bfs (Lamy-Poirier 2023): several; the larger pipeline_stages_per_rank, the less
    a rank waits, and the more is sent."""

    pipeline_stages_per_rank: int = Field(default=0, ge=0)
    """Stages that a rank has of the model; 0 for the schedule's usual number."""

    zero_stage: int = Field(default=1, ge=1, le=3)
    """With deepspeed: what is sharded. 1: optimizer state, 2: gradients too, 3: weights too."""

    param_dtype: Literal["default", "bfloat16", "float32"] = "default"
    """With fsdp and precision bfloat16 or float16: type in which weights are gathered and meet
    activations. default: that precision. float32 is for a model whose own code cannot take weights
    in 16 bits; twice the traffic."""

    reduce_dtype: Literal["float32", "bfloat16"] = "float32"
    """With fsdp and precision bfloat16 or float16: type in which gradients are added up over the
    ranks. bfloat16 halves the traffic, and rounds; they are kept in float32 either way."""

    reshard_after_forward: Literal["default", "always", "never"] | int = "default"
    """With fsdp: which units free their gathered weights after the forward pass and gather them
    again in the backward pass. default: all but the last, and none under pipeline_parallel, which
    would gather for each micro-batch. A number keeps them sharded over so many ranks (those of a
    node) in between: more memory than always, and the second gather stays in the node."""

    forward_prefetch: int = Field(default=0, ge=0)
    """With fsdp: units whose weights a unit asks for before it computes, in the forward pass. 0:
    each asks for its own; on a GPU, whose host runs ahead, that is one early already."""

    backward_prefetch: int = Field(default=0, ge=0)
    """The same in the backward pass. 0: torch's own, one."""

    cpu_offload: bool = False
    """With fsdp: keep weights, gradients and optimizer state in the host's memory, where the
    optimizer runs, too; weights are copied to the GPU before they are gathered. Slow."""

    gradient_accumulation: Literal["sharded", "unsharded"] = "sharded"
    """With fsdp and several micro-batches a step. sharded: gradients are reduce-scattered after
    each, and a rank keeps its part. unsharded: after the last one only, a micro-batch's share of
    the traffic, and a rank keeps whole float32 gradients of the model until then."""

    float8_all_gather: bool = False
    """With fsdp and float8 tensorwise: cast weights to 8 bits before they are gathered, half the
    traffic of 16 bits; their scales, of the whole tensors, are found once a step for all of them.
    Without it weights are gathered in ``param_dtype`` and each rank casts them."""

    activation_checkpointing: Literal["none", "selective", "full"] = "none"
    """What is computed anew in the backward pass, block by block, instead of being kept. full: all
    but the block's input. selective: all but attention, every second matrix product and what ranks
    have added up, which cost most. true and false of older recipes are full and none."""

    compile: bool = False
    """torch.compile each block: minutes at the start, faster steps."""

    export_shard_mb: int = Field(default=5000, ge=1)
    """Size of a file of the trained model, at most, in MB of 10⁶ bytes; a larger model is several
    files, with Hugging Face's index, which many ranks write at a time."""

    health_check: Literal["off", "warn", "stop"] = "warn"
    """Some seconds at the start in which GPUs multiply and exchange, beside each other, and
    EFA's settings are looked at (docs/scale.md). warn: the log names what is slow or wrong. stop:
    it ends the job. Nothing is measured on a CPU. Experimental: no GPU has run it."""

    @field_validator("activation_checkpointing", mode="before")
    @classmethod
    def _as_older_recipes_have_it(cls, value: Any) -> Any:
        return {"true": "full", "false": "none"}.get(str(value).lower(), value)

    @model_validator(mode="before")
    @classmethod
    def _without_former_settings(cls, given: Any) -> Any:
        return without(given)

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

    @property
    def schedule_entry(self) -> ScheduleEntry:
        """What the table says of the pipeline's schedule."""
        return SCHEDULES[self.pipeline_schedule]

    @property
    def stages(self) -> int:
        """Stages that the model is cut into; 1 without a pipeline."""
        if self.pipeline_parallel == 1:
            return 1
        return self.pipeline_parallel * (self.pipeline_stages_per_rank or self.schedule_entry.usual)

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
        shards = (self.shard_degree or data) * self.context_parallel
        kept = self.reshard_after_forward
        if isinstance(kept, int) and (shards % kept or kept in (1, shards)):
            raise ValueError(
                f"reshard_after_forward {kept}: weights are sharded over {shards} ranks; choose a "
                "divisor of that between 1 and all, or always or never"
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
        fields = type(self).model_fields
        given = [n for n in FSDP if getattr(self, n) != fields[n].default]
        if given and self.strategy != "fsdp":
            raise ValueError(
                f"{given[0]} {getattr(self, given[0])} is for strategy fsdp, not {self.strategy}; "
                f"leave it at {fields[given[0]].default}"
            )
        if isinstance(self.reshard_after_forward, int) and self.tensor_parallel > 1:
            raise ValueError(
                f"reshard_after_forward {self.reshard_after_forward} cannot be combined with "
                f"tensor_parallel {self.tensor_parallel}, whose weights torch does not reshard to "
                "fewer ranks; set it to default, always or never"
            )
        if (
            self.activation_checkpointing == "selective"
            and self.compile
            and self.tensor_parallel > 1
        ):
            raise ValueError(
                f"activation_checkpointing selective cannot be combined with compile under "
                f"tensor_parallel {self.tensor_parallel}, where whole compiled blocks are computed "
                "anew; set it to full, or compile to false"
            )
        if self.shard_degree and not entry.shards:
            others = " and ".join(name for name, one in STRATEGIES.items() if one.shards)
            raise ValueError(
                f"shard_degree {self.shard_degree} is for strategies {others}, not "
                f"{self.strategy}; leave it at 0"
            )
        return self

    @model_validator(mode="after")
    def _pipeline_is_possible(self) -> Self:
        name, entry, asked = (
            self.pipeline_schedule,
            self.schedule_entry,
            self.pipeline_stages_per_rank,
        )
        if self.pipeline_parallel == 1:
            if asked or name != "1f1b":
                raise ValueError(
                    f"pipeline_schedule {name}, pipeline_stages_per_rank {asked} are of a "
                    "pipeline, and pipeline_parallel is 1; raise it, or leave them at 1f1b and 0"
                )
            return self
        if asked and asked > (entry.most or asked):
            others = " or ".join(n for n, other in SCHEDULES.items() if other.most is None)
            raise ValueError(
                f"pipeline_stages_per_rank {asked}: pipeline_schedule {name} has {entry.usual} on "
                f"a rank; leave it at 0, or set pipeline_schedule to {others}"
            )
        return self
