"""Settings of the recipe that are passed to the evaluate job. Apart: step and job read them."""

from pydantic import Field

from steps.job_arguments import Settings


class EvaluateSettings(Settings):
    """Settings in the recipe's section ``evaluate``, each of which is an argument of the job."""

    baseline_units: int = Field(default=50_000_000, ge=1)
    """Maximum units (tokens, rows) of the train split that the baselines are fitted on."""

    processes: int | None = Field(default=None, ge=1)
    """Processes that score the test split, each a share of it, with the model on its own GPU. None:
    one per GPU, or without GPUs one per four cores; fewer where the split is small. The scores are
    the same."""

    slices: tuple[str, ...] = ()
    """Parts of the test split that the gate may look at one by one: the tabular workload's
    categories, and ``source``, which is each of data.inputs (and then need not be listed) or the
    first folder of the raw data (shard.by_folder)."""
