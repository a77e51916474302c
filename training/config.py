"""The training loop's settings. No torch here: a recipe is checked without it."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator


class TrainConfig(BaseModel):
    """Each field is a hyperparameter of the training job, and an argument of its script."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    strategy: Literal["single", "ddp"] = "ddp"
    """How the ranks share the work: one process, or data parallel with replicated weights."""

    max_steps: int = Field(ge=1)
    """Optimizer steps of the whole training."""

    global_batch: int = Field(ge=1)
    """Samples per optimizer step, over all ranks and micro-batches."""

    micro_batch: int = Field(ge=1)
    """Samples that one rank takes through the model at once."""

    learning_rate: FiniteFloat = Field(gt=0)
    """Peak learning rate, reached at the end of the warm-up."""

    min_learning_rate_ratio: FiniteFloat = Field(default=0.1, ge=0, le=1)
    """Learning rate at the last step, as a share of the peak."""

    warmup_steps: int = Field(default=0, ge=0)
    """Optimizer steps over which the learning rate rises linearly from 0 to its peak."""

    weight_decay: FiniteFloat = Field(default=0.1, ge=0)
    """AdamW's decoupled weight decay; not applied to parameters with one dimension."""

    beta1: FiniteFloat = Field(default=0.9, ge=0, lt=1)
    """AdamW's decay rate of the first moment."""

    beta2: FiniteFloat = Field(default=0.95, ge=0, lt=1)
    """AdamW's decay rate of the second moment."""

    grad_clip: FiniteFloat = Field(default=1.0, gt=0)
    """Largest global L2 norm of the gradient; a longer one is scaled down to it."""

    precision: Literal["float32", "bfloat16"] = "bfloat16"
    """Type of the matrix products (autocast); weights and optimizer state stay float32."""

    seed: int = Field(default=0, ge=0, lt=2**32)
    """Seed of the initial weights and of the order of the samples."""

    shuffle: Literal["uniform", "windowed"] = "uniform"
    """Order of the samples in an epoch. uniform: a permutation of the whole dataset; for disks and
    file systems (File, FSxLustre). windowed: whole shards in a shuffled order, samples shuffled
    within windows of shards, every rank reading every shard from front to back; for FastFile."""

    window_samples: int = Field(default=65536, ge=1)
    """With windowed: samples in a window. Each rank keeps two windows of shards in memory."""

    log_interval: int = Field(default=10, ge=1)
    """Optimizer steps between two metric lines."""

    validation_interval: int = Field(default=100, ge=1)
    """Optimizer steps between two looks at the validation split; the last step always looks."""

    validation_samples: int = Field(default=256, ge=1)
    """Samples of the validation split that are looked at, at most."""

    checkpoint_interval: int = Field(default=500, ge=1)
    """Optimizer steps between two checkpoints: what an interruption costs at most."""

    keep_checkpoints: int = Field(default=2, ge=1)
    """Complete checkpoints that are kept; older ones are deleted."""

    collective_timeout_seconds: int = Field(default=120, ge=1)
    """A rank that waits longer than this for the others ends the job instead of hanging it."""

    @model_validator(mode="after")
    def _batches_fit(self) -> Self:
        if self.global_batch % self.micro_batch:
            raise ValueError(
                f"global_batch {self.global_batch} is no multiple of micro_batch "
                f"{self.micro_batch}; choose global_batch = micro_batch × ranks × a whole number"
            )
        return self
