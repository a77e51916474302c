"""The training loop's settings. No torch here, so that a recipe is checked without it."""

from typing import Literal, Self, TypeVar

from pydantic import BaseModel, Field, FiniteFloat, ValidationError, model_validator

from training.layout import Layout
from training.strategy_table import STRATEGIES
from trainyard.common.errors import TrainingError

Model = TypeVar("Model", bound=BaseModel)

# Settings that change neither the weights nor their order; changing any other one makes it a
# different training run.
IMMATERIAL = {
    *Layout.model_fields,
    "checkpoint_interval",
    "collective_timeout_seconds",
    "deterministic",
    "keep_checkpoints",
    "loader_threads",
    "log_interval",
    "micro_batch",
    "mlflow_tracking_uri",
    "profile_at",
    "profile_steps",
    "tensorboard",
    "validation_interval",
    "validation_samples",
}

# Those of IMMATERIAL that do affect the weights of a model that draws torch's own random numbers
# (nn.Dropout) or normalises by the micro-batch (BatchNorm).
BY_BATCH = {
    "compile",
    "context_parallel",
    "micro_batch",
    "pipeline_parallel",
    "sequence_parallel",
    "tensor_parallel",
}


class TrainConfig(Layout):
    """Settings of the training loop: each is a hyperparameter of the job and its script's
    argument.
    """

    max_steps: int = Field(ge=1, examples=[300])
    """Optimizer steps of the whole training run."""

    global_batch: int = Field(ge=1, examples=[16])
    """Samples per optimizer step, over all ranks and micro-batches."""

    micro_batch: int = Field(ge=1, examples=[4])
    """Samples that one rank takes through the model at once. It affects the weights of a model with
    BatchNorm, or with dropout other than training.dropout's.
    """

    learning_rate: FiniteFloat = Field(gt=0, examples=[0.001])
    """Peak learning rate, reached at the end of the warm-up."""

    reference_batch: int = Field(default=0, ge=0)
    """Global batch that learning_rate was found with: it is scaled by global_batch /
    reference_batch (Goyal et al. 2017, the linear scaling rule; warm up then). 0: not scaled."""

    schedule: Literal["cosine", "wsd"] = "cosine"
    """Learning rate after the warm-up. cosine: half a cosine. wsd: constant, then a linear decay
    (warm-up, stable, decay: Hu et al. 2024, MiniCPM)."""

    decay_share: FiniteFloat = Field(default=0.1, gt=0, le=1)
    """Share of max_steps at the end over which the learning rate falls; only with wsd."""

    min_learning_rate_ratio: FiniteFloat = Field(default=0.1, ge=0, le=1)
    """Learning rate at the last step, as a share of the peak."""

    warmup_steps: int = Field(default=0, ge=0)
    """Optimizer steps over which the learning rate rises linearly from 0 to its peak; the last step
    of the training run is not one of them.
    """

    optimizer: Literal["adamw", "lamb"] = "adamw"
    """lamb scales AdamW's step to each layer's weights, for very large global batches."""

    weight_decay: FiniteFloat = Field(default=0.1, ge=0)
    """Decoupled weight decay; not applied to parameters with one dimension."""

    beta1: FiniteFloat = Field(default=0.9, ge=0, lt=1)
    """Decay rate of the first moment."""

    beta2: FiniteFloat = Field(default=0.95, ge=0, lt=1)
    """Decay rate of the second moment."""

    ema_decay: FiniteFloat = Field(default=0.0, ge=0, lt=1)
    """Decay per step of a moving average of the weights, which is validated and exported instead of
    them; 0: none. In step n it is at most n / (9 + n), so that a short training run does not export
    its initial weights.
    """

    grad_clip: FiniteFloat = Field(default=1.0, gt=0)
    """Largest global L2 norm of the gradient; a longer one is scaled down to it."""

    precision: Literal["auto", "float64", "float32", "bfloat16", "float16"] = "auto"
    """Type of the matrix products. bfloat16: by autocast, weights and optimizer state stay float32.
    float16: likewise, with dynamic loss scaling; for GPUs before Ampere (V100, T4), which have no
    bfloat16. float64: everything, slow; shows whether two curves differ by rounding or by an error.
    auto: a type in which all machines multiply fast, bfloat16 or float16, otherwise float32; chosen
    when the training starts, recorded with the model, and kept when it is resumed.
    """

    float8: Literal["none", "tensorwise", "rowwise"] = "none"
    """Products of the linear layers in the model's blocks in 8 bits, by torchao, on GPUs from
    compute capability 8.9 on (L4, L40S, H100 and later); elsewhere emulated on a processor, to try
    it. tensorwise: one scale for each factor, fastest. rowwise: one for each row, more exact.
    Weights and optimizer state stay float32; the output layer, norms and attention stay in
    ``precision``. Scales depend on the micro-batch, which therefore affects the weights."""

    deterministic: bool = False
    """Use only deterministic kernels, even if slower; an operation that has none raises an
    error."""

    seed: int = Field(default=0, ge=0, lt=2**32)
    """Seed of the initial weights and of the order of the samples."""

    shuffle: Literal["uniform", "windowed"] = "uniform"
    """Order of the samples in an epoch. uniform: a permutation of the whole dataset; for disks and
    file systems (File, FSxLustre). windowed: whole shards in a shuffled order, samples shuffled
    within windows of shards, every rank reading every shard from front to back; for FastFile."""

    window_samples: int = Field(default=65536, ge=1)
    """Samples per window, with windowed. Each rank keeps two windows of shards in memory."""

    loader_threads: int = Field(default=0, ge=0)
    """Threads per rank that decode and augment, if the workload does so (images). 0: one per core
    of the rank."""

    log_interval: int = Field(default=10, ge=1)
    """Optimizer steps between two metric lines."""

    validation_interval: int = Field(default=100, ge=1)
    """Optimizer steps between two validations; the last step is always validated."""

    validation_samples: int = Field(default=256, ge=1)
    """Maximum number of validation samples used."""

    checkpoint_interval: int = Field(default=500, ge=1)
    """Optimizer steps between two checkpoints: the maximum that an interruption loses."""

    keep_checkpoints: int = Field(default=2, ge=1)
    """Newest complete checkpoints to keep; older ones are deleted, except the one with the best
    validation loss."""

    tensorboard: bool = False
    """Write TensorBoard's event files, which SageMaker copies to S3 while the job runs. Off by
    default: AWS's images lack the package, so each start would install it."""

    mlflow_tracking_uri: str = Field(default="environment", pattern=r"^\S+$")
    """Destination of MLflow's metrics: a URI, or the ARN of a managed tracking server. local: a
    file in the job's output. environment: as MLFLOW_TRACKING_URI says, nowhere without it. off:
    nowhere."""

    profile_steps: int = Field(default=0, ge=0, le=100)
    """Optimizer steps that rank 0 records in a torch.profiler trace; 0: none."""

    profile_at: int = Field(default=10, ge=1)
    """First step that is traced."""

    collective_timeout_seconds: int = Field(default=120, ge=1)
    """A rank that waits longer than this for the others ends the job instead of hanging it."""

    @property
    def half_precision(self) -> str | None:
        """The 16-bit type of the matrix products, or None if they use a wider one."""
        return self.precision if self.precision in ("bfloat16", "float16") else None

    @property
    def gather_dtype(self) -> str:
        """Type in which the fsdp strategy gathers weights."""
        if not self.half_precision:
            return self.precision
        return self.half_precision if self.param_dtype == "default" else self.param_dtype

    def count_micro_batches(self, world: int) -> int:
        """Return the number of micro-batches that a data-parallel rank processes per optimizer
        step.

        Raises:
            ValueError: the global batch cannot be shared evenly; the message shows the arithmetic.
        """
        data = self.count_data_parallel_ranks(world)
        share = self.micro_batch * data
        if self.global_batch % share:
            split = "" if data == world else f" data-parallel ({world} in all)"
            raise ValueError(
                f"global_batch {self.global_batch} cannot be shared by {data}{split} ranks in "
                f"micro-batches of {self.micro_batch}: {self.micro_batch} × {data} = {share} does "
                "not divide it; choose a multiple of that"
            )
        count, ranks = self.global_batch // share, self.pipeline_parallel
        if ranks > 1 and (
            refusal := self.schedule_entry.explain_unfit_micro_batches(count, ranks, self.stages)
        ):
            raise ValueError(
                f"pipeline_parallel {ranks}, {self.pipeline_schedule}: {refusal}; "
                f"global_batch {self.global_batch} / (micro_batch {self.micro_batch} × "
                f"{data} data-parallel ranks) = {count}: lower micro_batch or raise global_batch"
            )
        return count

    @model_validator(mode="after")
    def _check_field_combinations(self) -> Self:
        if self.global_batch % self.micro_batch:
            raise ValueError(
                f"global_batch {self.global_batch} is not a multiple of micro_batch "
                f"{self.micro_batch}; choose global_batch = micro_batch × ranks × a whole number"
            )
        if self.profile_steps and self.profile_at + self.profile_steps - 1 > self.max_steps:
            raise ValueError(
                f"profile_at {self.profile_at} + profile_steps {self.profile_steps} goes beyond "
                f"max_steps {self.max_steps}: the trace would never be written; lower one of them"
            )
        entry = self.entry
        if self.optimizer == "lamb" and not entry.keeps_layers:
            raise ValueError(
                f"optimizer lamb cannot be used with strategy {self.strategy}, which cuts weights "
                "without regard to layers; set strategy to fsdp"
            )
        if self.precision == "float64" and not entry.float64:
            raise ValueError(
                f"precision float64 cannot be used with strategy {self.strategy}, which keeps "
                "float32; set precision to float32, or strategy to fsdp"
            )
        if self.precision == "float16" and entry.no_float16:
            raise ValueError(
                f"precision float16 cannot be used with strategy {self.strategy}, "
                f"{entry.no_float16}; set strategy to ddp or fsdp, or precision to bfloat16"
            )
        if self.precision == "float16" and self.param_dtype == "bfloat16":
            raise ValueError(
                "param_dtype bfloat16 does not go with precision float16; leave it at default, or "
                "set it to float32"
            )
        if refusal := self._explain_unfit_float8():
            raise ValueError(refusal)
        if self.ema_decay and self.zero_stage >= entry.flat_from_stage:
            stage = f" zero_stage {self.zero_stage}" if entry.flat_from_stage > 1 else ""
            raise ValueError(
                f"ema_decay {self.ema_decay} cannot be used with strategy {self.strategy}{stage}, "
                "which keeps no whole weights between steps; set strategy to fsdp, or ema_decay 0"
            )
        return self

    def _explain_unfit_float8(self) -> str | None:
        """Return why the linear layers cannot multiply in 8 bits, or None if they can."""
        if self.float8_all_gather and self.float8 != "tensorwise":
            return (
                "float8_all_gather gathers weights with one scale for each: it needs float8 "
                f"tensorwise, but float8 is {self.float8}; change one of the two"
            )
        if self.float8 == "none":
            return None
        if not self.entry.float8:
            others = " or ".join(name for name, strategy in STRATEGIES.items() if strategy.float8)
            return (
                f"float8 {self.float8} cannot be used with strategy {self.strategy}; set strategy "
                f"to {others}, or float8 to none"
            )
        if self.precision not in ("auto", "bfloat16", "float32"):
            return (
                f"float8 {self.float8} cannot be used with precision {self.precision}; set "
                "precision to bfloat16 (or float32, to compare curves), or float8 to none"
            )
        if self.float8_all_gather and self.cpu_offload:
            return (
                "float8_all_gather casts weights on the GPU before they are gathered, and "
                "cpu_offload keeps them on the host: set one of the two to false"
            )
        if self.float8_all_gather and isinstance(self.reshard_after_forward, int):
            return (
                f"reshard_after_forward {self.reshard_after_forward} cannot be combined with "
                "float8_all_gather, whose weights torch does not reshard to fewer ranks; set it to "
                "default, always or never"
            )
        return None


def parse_hyperparameter(kind: type[Model], name: str, text: str) -> Model:
    """Parse the JSON value of the job's hyperparameter ``name``.

    Raises:
        TrainingError: the value is malformed; names the field.
    """
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, (name, *first["loc"])))
        raise TrainingError(f"hyperparameter {field}: {first['msg']}: {first['input']!r}") from None
