"""Settings of the recipe that are passed to the shard job.

This is a separate module because both step and job read them.
"""

from typing import Self

from pydantic import Field, model_validator

from steps.job_arguments import Settings


class ShardSettings(Settings):
    """Settings in the recipe's section ``shard`` that are also arguments of the job."""

    validation_share: float = Field(default=0.05, gt=0, lt=0.5)
    """Share of the keys that go to the validation split."""

    test_share: float = Field(default=0.05, gt=0, lt=0.5)
    """Share of the keys that go to the test split, which is never used for training."""

    shard_mb: float = Field(default=64, gt=0, le=4096)
    """Size of the largest shard, in MB (10^6 bytes). No shard is smaller than half of it unless
    there is too little data. A core needs about 12 times as much memory."""

    max_bad_share: float = Field(default=0.001, ge=0, le=1)
    """Share of the records that may be bad before the step fails. Bad records are quarantined."""

    key: str | None = None
    """Column whose value decides the split: equal values are always in the same split. None: the
    whole record decides."""

    processes: int | None = Field(default=None, ge=1)
    """Raw objects, or units of records, that an instance processes at once. None: one per core."""

    unique: tuple[str, ...] | None = None
    """Columns in which two duplicates are equal; one of them is kept across all raw objects. None:
    the workload's default. []: duplicates are kept."""

    by_folder: bool = False
    """True if the first folder below data.input is a part of a record, so that no sample contains
    records of two folders and an evaluation can be sliced by ``source``. False: the folder of a
    record does not matter."""

    @model_validator(mode="after")
    def _check_training_share(self) -> Self:
        if self.validation_share + self.test_share >= 0.8:
            raise ValueError(
                f"validation_share {self.validation_share} + test_share {self.test_share} leave "
                "less than 20 % of the data to train on; lower one of them"
            )
        return self
