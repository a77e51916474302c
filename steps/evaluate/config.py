"""The evaluate step's settings."""

from pydantic import Field

from steps.config import ProcessingCompute


class EvaluateConfig(ProcessingCompute):
    """The trained model, and the baselines, on the held-out test split."""

    baseline_units: int = Field(default=50_000_000, ge=1)
    """Units (tokens, rows) of the train split that the baselines are fitted on, at most."""

    slices: tuple[str, ...] = ()
    """Parts of the test split that the gate may look at one by one. A language model knows
    ``source`` (the first folder of the raw data: shard.by_folder), the tabular workload its
    categories."""
