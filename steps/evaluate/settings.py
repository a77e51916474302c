"""Settings of the recipe that are passed to the evaluate job.

This is a separate module because step and job read them.
"""

from pydantic import Field

from steps.job_arguments import Settings


class EvaluateSettings(Settings):
    """Settings in the recipe's section ``evaluate`` that are also arguments of the job."""

    baseline_units: int = Field(default=50_000_000, ge=1)
    """Maximum number of units (tokens, rows) of the train split on which the baselines are fitted.
    """

    processes: int | None = Field(default=None, ge=1)
    """Number of processes that score the test split, each a share of it, with a copy of the model
    on its own GPU. None: one per GPU, or without GPUs one per four cores; fewer if the split is
    small. The scores do not depend on it.
    """

    slices: tuple[str, ...] = ()
    """Parts of the test split that the gate may check one by one: the tabular workload's
    categories, and ``source``, which is each of data.inputs (and then need not be listed) or the
    first folder of the raw data (shard.by_folder).
    """
