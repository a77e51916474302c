"""What the evaluate job is told of the recipe."""

from pydantic import Field

from steps.job_arguments import Settings


class EvaluateSettings(Settings):
    """Each field is a setting of the recipe's section ``evaluate``, and an argument of the job."""

    baseline_units: int = Field(default=50_000_000, ge=1)
    """Units (tokens, rows) of the train split that the baselines are fitted on, at most."""

    processes: int | None = Field(default=None, ge=1)
    """Processes that score the test split, each a share of it, with the model on a GPU of its own.
    None: one a GPU, without any one for every four cores; fewer where the split is small. The
    scores are the same."""

    slices: tuple[str, ...] = ()
    """Parts of the test split that the gate may look at one by one: the tabular workload's
    categories, and ``source``, which is each of data.inputs, and then need not be listed, or the
    first folder of the raw data (shard.by_folder)."""
