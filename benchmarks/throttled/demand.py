"""What a recipe's training asks of its file system, from the recipe and foresight."""

from dataclasses import dataclass
from pathlib import Path

from pipelines.advice.training_setting import of_recipe
from pipelines.recipe.read_recipe import load
from trainyard.foresight.step_time import foresee

TOKEN = 2
"""Bytes of a token of up to 65,536 (docs/shards.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Of one rank."""

    step_seconds: float
    """Foreseen, the middle of its spread."""

    ranks: int
    share: int
    """Samples a rank takes in a step."""

    sample_bytes: int

    @property
    def uniform(self) -> float:
        """Samples a second: a rank reads those that it takes."""
        return self.share / self.step_seconds

    @property
    def windowed(self) -> float:
        """Bytes a second: a rank reads all shards whole, and takes its samples of them."""
        return self.uniform * self.ranks * self.sample_bytes


def of(recipe: Path) -> Demand:
    """The demand of a recipe for a language model.

    Raises:
        RecipeError: it is not valid.
        ForesightError: its training cannot be foreseen.
    """
    ours = of_recipe(load(recipe))
    setting = ours.setting
    ranks = setting.gpus
    return Demand(
        step_seconds=foresee(setting).step_seconds.p50,
        ranks=ranks,
        share=ours.loop.global_batch // ranks,
        sample_bytes=TOKEN * (setting.sequence + 1),
    )
