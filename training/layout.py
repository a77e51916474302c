"""How the ranks share a training run: settings that change speed and memory, never the result.

No torch here, so that a recipe is checked without it.
"""

from typing import TYPE_CHECKING, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from training.strategy_table import SCHEDULES, STRATEGIES, ScheduleEntry, StrategyEntry

if TYPE_CHECKING:
    Strategy = str  # the actual names are known only at run time
    Schedule = str
else:
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
"""Settings of FSDP2 only; they have torch's names where torch has the setting."""


class Layout(BaseModel):
    """The part of ``TrainConfig`` that distributes the work over ranks, memory and kernels.

    No field is part of a training run's identity, except for models whose result depends on the
    micro-batch size (``training.config.BY_BATCH``).
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    strategy: Strategy = "ddp"
    """How the data-parallel ranks share the work. single: one process. ddp: weights replicated.
    fsdp: weights, gradients and optimizer state sharded (FSDP2). deepspeed: ZeRO. smddp, smp: by
    these libraries, if the container has them."""

    shard_degree: int = Field(default=0, ge=0)
    """Ranks that share one copy of the weights (fsdp and smp); 0 for all data-parallel ranks. A
    smaller number is hybrid: sharded inside a group (a node), replicated between the groups."""

    tensor_parallel: int = Field(default=1, ge=1)
    """Ranks that share each matrix product (ddp and fsdp); best within one node."""

    sequence_parallel: bool = True
    """Share the tensors between the split layers along the sequence as well (Korthikanti et al.
    2022), with tensor_parallel and if the workload can: the same traffic, a share of the
    activations' memory."""

    context_parallel: int = Field(default=1, ge=1)
    """Ranks that share each sequence (ddp and fsdp), for contexts whose activations exceed one
    rank's memory. They hold the same weights, which fsdp shards over them too."""

    pipeline_parallel: int = Field(default=1, ge=1)
    """Ranks that share the model's blocks, one after another (ddp and fsdp)."""

    pipeline_schedule: Schedule = "1f1b"
    """Order in which a rank's stages take micro-batches, forward and backward: torch's schedules.
    1f1b (Narayanan et al. 2019) and gpipe: one stage per rank. interleaved_1f1b (Narayanan et al.
    2021) and looped_bfs (Lamy-Poirier 2023): several; the larger pipeline_stages_per_rank, the less
    a rank waits, and the more is sent."""

    pipeline_stages_per_rank: int = Field(default=0, ge=0)
    """Stages of the model on each rank; 0 for the schedule's default number."""

    zero_stage: int = Field(default=1, ge=1, le=3)
    """State that deepspeed shards. 1: optimizer state, 2: gradients too, 3: weights too."""

    param_dtype: Literal["default", "bfloat16", "float32"] = "default"
    """Type in which weights are gathered and used, for fsdp with precision bfloat16 or float16.
    default: that precision. float32: for a model whose own code cannot take 16-bit weights; doubles
    the traffic."""

    reduce_dtype: Literal["float32", "bfloat16"] = "float32"
    """Type in which gradients are summed over the ranks, for fsdp with precision bfloat16 or
    float16. bfloat16 halves the traffic, and rounds; gradients are kept in float32 either way."""

    reshard_after_forward: Literal["default", "always", "never"] | int = "default"
    """Units that free their gathered weights after the forward pass and gather them again in the
    backward pass (fsdp). default: all but the last, and none under pipeline_parallel, which would
    gather for each micro-batch. A number keeps them sharded over that many ranks (those of a node)
    in between: more memory than always, but the second gather stays in the node."""

    forward_prefetch: int = Field(default=0, ge=0)
    """Units whose weights a unit requests before it computes, in the forward pass (fsdp). 0: each
    requests its own; on a GPU, whose host runs ahead, that is already one early."""

    backward_prefetch: int = Field(default=0, ge=0)
    """Units whose weights a unit requests in advance in the backward pass (fsdp). 0: torch's own
    choice, one."""

    cpu_offload: bool = False
    """Keep weights, gradients and optimizer state in host memory, where the optimizer also runs
    (fsdp); weights are copied to the GPU before they are gathered. Slow."""

    gradient_accumulation: Literal["sharded", "unsharded"] = "sharded"
    """How gradients accumulate over several micro-batches per step (fsdp). sharded: gradients are
    reduce-scattered after each, and a rank keeps its part. unsharded: only after the last one; a
    micro-batch's share of the traffic, but a rank keeps whole float32 gradients of the model until
    then."""

    float8_all_gather: bool = False
    """Cast weights to 8 bits before they are gathered (fsdp with float8 tensorwise): half the
    traffic of 16 bits; the scales, of the whole tensors, are computed once per step for all of
    them. If false, weights are gathered in ``param_dtype`` and each rank casts them."""

    activation_checkpointing: Literal["none", "selective", "full"] = "none"
    """Activations recomputed in the backward pass, block by block, instead of kept. full: all but
    the block's input. selective: all but attention, every second matrix product and sums over
    ranks, which cost most."""

    compile: bool = False
    """Apply torch.compile to each block: minutes at the start, faster steps."""

    export_shard_mb: int = Field(default=5000, ge=1)
    """Largest size of a file of the trained model, in MB of 10⁶ bytes; a larger model is split into
    several files with Hugging Face's index, which many ranks write concurrently."""

    @property
    def entry(self) -> StrategyEntry:
        """The strategy's entry in the table."""
        return STRATEGIES[self.strategy]

    @property
    def split(self) -> int:
        """Number of ranks that share the same samples: tensor × pipeline × context."""
        return self.tensor_parallel * self.context_parallel * self.pipeline_parallel

    @property
    def degrees(self) -> str:
        """The degrees whose product is ``split``, with their names, for messages."""
        context = self.context_parallel
        middle = f"context_parallel {context} × " if context > 1 else ""
        return (
            f"tensor_parallel {self.tensor_parallel} × {middle}"
            f"pipeline_parallel {self.pipeline_parallel}"
        )

    @property
    def schedule_entry(self) -> ScheduleEntry:
        """The pipeline schedule's entry in the table."""
        return SCHEDULES[self.pipeline_schedule]

    @property
    def stages(self) -> int:
        """Number of stages that the model is cut into; 1 without a pipeline."""
        if self.pipeline_parallel == 1:
            return 1
        return self.pipeline_parallel * (
            self.pipeline_stages_per_rank or self.schedule_entry.default_stages
        )

    def count_data_parallel_ranks(self, world: int) -> int:
        """Return how many of ``world`` ranks process different samples: world / ``split``.

        Raises:
            ValueError: the strategy cannot use this many ranks; the message shows the arithmetic.
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
        reshard = self.reshard_after_forward
        if isinstance(reshard, int) and (shards % reshard or reshard in (1, shards)):
            raise ValueError(
                f"reshard_after_forward {reshard}: weights are sharded over {shards} ranks; choose "
                "a divisor of that between 1 and all, or always or never"
            )
        return data

    @model_validator(mode="after")
    def _check_layout(self) -> Self:
        entry = self.entry
        if self.split > 1 and not entry.splits:
            others = " or ".join(name for name, strategy in STRATEGIES.items() if strategy.splits)
            raise ValueError(
                f"strategy {self.strategy} cannot be combined with {self.degrees}; set strategy "
                f"to {others}"
            )
        fields = type(self).model_fields
        changed_fields = [n for n in FSDP if getattr(self, n) != fields[n].default]
        if changed_fields and self.strategy != "fsdp":
            raise ValueError(
                f"{changed_fields[0]} {getattr(self, changed_fields[0])} is for strategy fsdp, not "
                f"{self.strategy}; leave it at {fields[changed_fields[0]].default}"
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
                f"tensor_parallel {self.tensor_parallel}, where whole compiled blocks are "
                "recomputed; set it to full, or compile to false"
            )
        if self.shard_degree and not entry.shards:
            others = " and ".join(name for name, strategy in STRATEGIES.items() if strategy.shards)
            raise ValueError(
                f"shard_degree {self.shard_degree} is for strategies {others}, not "
                f"{self.strategy}; leave it at 0"
            )
        return self

    @model_validator(mode="after")
    def _check_pipeline(self) -> Self:
        name, entry = self.pipeline_schedule, self.schedule_entry
        stage_count = self.pipeline_stages_per_rank
        if self.pipeline_parallel == 1:
            if stage_count or name != "1f1b":
                raise ValueError(
                    f"pipeline_schedule {name}, pipeline_stages_per_rank {stage_count} apply "
                    "only to a pipeline, and pipeline_parallel is 1; raise it, or leave them at "
                    "1f1b and 0"
                )
            return self
        if stage_count and stage_count > (entry.max_stages or stage_count):
            others = " or ".join(n for n, other in SCHEDULES.items() if other.max_stages is None)
            raise ValueError(
                f"pipeline_stages_per_rank {stage_count}: pipeline_schedule {name} has "
                f"{entry.default_stages} per rank; leave it at 0, or set pipeline_schedule to "
                f"{others}"
            )
        return self
