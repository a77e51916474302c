"""A model that is fine-tuned: parts of it are frozen, unused, tied, normalised by the batch."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from training.workloads import WorkloadSpec


class TunedConfig(BaseModel):
    """Settings for features that real models have."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tied: bool = False
    """Set ``head.weight = embedding.weight``."""

    frozen: Literal["", "embedding", "body", "all"] = ""
    """Weights that do not require gradients; body: all but the last block and the head."""

    unused: bool = False
    """Add weights that no forward pass uses."""

    norm: Literal["", "batch", "frozen batch"] = ""
    """BatchNorm in each block; frozen: in evaluation mode from the start."""

    dropout: float = Field(default=0.0, ge=0, lt=1)
    kind: Literal["ours", "torch", "functional"] = "ours"
    """Implementation of dropout."""

    said: bool = False
    """Set it if the workload declares that it draws."""

    splits: bool = True
    """Set it if tensor-parallel ranks split tied weights in the same way."""


SPEC = WorkloadSpec(
    config=TunedConfig,
    metrics={"loss": "lower"},
    primary_metric="loss",
    baselines=("uniform",),
    refuse_split=lambda config, tensor, pipeline: None,
)
