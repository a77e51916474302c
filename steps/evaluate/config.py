"""The evaluate step's settings."""

from typing import Literal

from pydantic import Field, field_validator

from steps.config import ProcessingCompute
from steps.evaluate.settings import EvaluateSettings
from steps.train.script import checked_channels


class EvaluateConfig(EvaluateSettings, ProcessingCompute):
    """The trained model, and the baselines, on the held-out test split."""

    script: str | None = None
    """With train.script: an evaluation script of your own (.py), relative to the recipe, that
    writes what the model in $SM_MODEL_DIR scores for each example into $SM_OUTPUT_DATA_DIR."""

    channels: dict[str, str] = Field(default_factory=dict, max_length=6)
    """Name → S3 prefix: the script finds its objects in the folder $SM_CHANNEL_<NAME>. Where the
    recipe has a data section, the shards are its channels train and test besides."""

    metrics: dict[str, Literal["lower", "higher"]] = Field(default_factory=dict)
    """Metric that the script gives → which values are better; the first one is the primary."""

    @field_validator("channels")
    @classmethod
    def _are_channels(cls, given: dict[str, str]) -> dict[str, str]:
        return checked_channels(given)
