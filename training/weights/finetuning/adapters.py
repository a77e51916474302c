"""Which weights are trained, if not all: LoRA adapters, or those that are not frozen.

No torch here, because recipes are checked with this module.
"""

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from training.config import TrainConfig, parse_hyperparameter
from training.strategy_table import STRATEGIES

PACKAGES = ("peft",)
"""Packages that training with adapters needs in addition."""

NO_BASE = (
    "need an existing model: set train.start_from to a model_package, model or hugging_face "
    "folder (an interrupted training resumes its own checkpoints automatically)"
)
FROZEN_TWICE = "freeze {} and adapters are both set: adapters freeze all else; leave freeze out"


class Adapters(BaseModel):
    """Low-rank adapters beside frozen linear layers (Hu et al. 2021, LoRA), with the library peft:
    W x becomes W x + alpha / rank × B A x, and only A and B are trained, saved and exported.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    rank: int = Field(default=8, ge=1)
    """Columns of B and rows of A."""

    alpha: FiniteFloat = Field(default=16.0, gt=0)
    """Numerator of the adapters' scale, alpha / rank."""

    dropout: FiniteFloat = Field(default=0.0, ge=0, lt=1)
    """Share of an adapter's inputs that are dropped in training; the mask depends on the sample
    only."""

    targets: tuple[str, ...] = ()
    """Linear layers that get an adapter, by the end of their names (qkv, feed_forward.up). Empty:
    every linear layer of the workload's blocks."""

    merge: bool = False
    """Add the adapters to the model, so that model.tar.gz holds all of it, as an endpoint needs. If
    false, the archive holds only the adapters, and evaluate adds them to the base that
    ``start_from`` names."""

    @property
    def scale(self) -> float:
        """Factor that B A is multiplied by."""
        return self.alpha / self.rank


class Tuning(BaseModel):
    """Adapters and frozen weights; passed to the training job as one hyperparameter."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    adapters: Adapters | None = None
    freeze: tuple[str, ...] = ()

    @property
    def part(self) -> dict[str, Any] | None:
        """The settings that are part of the training's identity; None if all weights are
        trained.
        """
        settings = self.model_dump(mode="json", exclude={"adapters": {"merge"}})
        return settings if self.adapters or self.freeze else None

    @model_validator(mode="after")
    def _check_mode(self) -> Self:
        if self.adapters and self.freeze:
            raise ValueError(FROZEN_TWICE.format(", ".join(self.freeze)))
        return self


def explain_impossible_adapters(config: TrainConfig) -> str | None:
    """Return why adapters cannot be trained with these settings, or None if they can."""
    strategies = [name for name, strategy in STRATEGIES.items() if strategy.adapters]
    if config.strategy not in strategies:
        return (
            f"adapters cannot be trained by strategy {config.strategy}: set loop.strategy to one "
            f"of {', '.join(strategies)}"
        )
    if config.float8 != "none":
        return (
            f"adapters cannot be trained with float8 {config.float8}, which has no products for "
            "their few columns: set loop.float8 to none"
        )
    if config.split > 1:
        return (
            f"adapters cannot be split by {config.degrees}: set all to 1, and loop.strategy to "
            "fsdp where the model is too large for one rank"
        )
    return None


def parse_tuning(text: str) -> Tuning:
    """Parse the hyperparameter ``tuning``; empty if all weights are trained."""
    return parse_hyperparameter(Tuning, "tuning", text or "{}")
