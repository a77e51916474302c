"""The shard step's settings."""

from typing import Self

from pydantic import Field, model_validator

from steps.config import ProcessingCompute


class ShardConfig(ProcessingCompute):
    """Raw records become shards: split by key, tokenised, packed, with a manifest."""

    validation_share: float = Field(default=0.05, gt=0, lt=0.5)
    """Share of the keys that go to the validation split."""

    test_share: float = Field(default=0.05, gt=0, lt=0.5)
    """Share of the keys that go to the test split, which training never sees."""

    samples_per_shard: int = Field(default=4096, ge=1)
    """Samples in one shard file; the last one of an instance may hold fewer."""

    @model_validator(mode="after")
    def _some_training_data(self) -> Self:
        if self.validation_share + self.test_share >= 0.8:
            raise ValueError(
                f"validation_share {self.validation_share} + test_share {self.test_share} leave "
                "less than 20 % of the data to train on; lower one of them"
            )
        return self
