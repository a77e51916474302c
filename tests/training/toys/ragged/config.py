"""A user's own workload, as small as possible; its samples hold unequal numbers of units."""

from pydantic import BaseModel, ConfigDict, Field

from training.workloads import WorkloadSpec


class RaggedConfig(BaseModel):
    """Lists of up to eight small numbers; every number is predicted from its place in the list."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dropout: float = Field(default=0.0, ge=0, lt=1)


SPEC = WorkloadSpec(
    config=RaggedConfig, metrics={"loss": "lower"}, primary_metric="loss", baselines=("uniform",)
)
