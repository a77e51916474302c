"""A model that is fine-tuned: parts of it are frozen, unused, tied, normalised by the batch."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from training.workloads import WorkloadSpec


class TunedConfig(BaseModel):
    """Each field is something that models out there have."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tied: bool = False
    """``head.weight = embedding.weight``."""

    frozen: Literal["", "embedding", "body", "all"] = ""
    """What does not require gradients; body: all but the last block and the head."""

    unused: bool = False
    """Weights that no forward pass uses."""

    norm: Literal["", "batch", "frozen batch"] = ""
    """BatchNorm in each block; frozen: in evaluation mode from the start."""

    dropout: float = Field(default=0.0, ge=0, lt=1)
    kind: Literal["ours", "torch", "functional"] = "ours"
    """Whose dropout."""

    said: bool = False
    """Whether the workload says that it draws."""

    splits: bool = True
    """Whether tensor-parallel ranks split what is tied alike."""


SPEC = WorkloadSpec(
    config=TunedConfig,
    metrics={"loss": "lower"},
    primary_metric="loss",
    baselines=("uniform",),
    refuse_split=lambda config, tensor, pipeline: None,
)
