"""Settings of the tune step: the ranges to search, and the budget of the search."""

from typing import Annotated, Literal, Self

from pydantic import Discriminator, Field, FiniteFloat, Tag, model_validator

from steps.config import Section

MOST_RANGES, MOST_VALUES, MOST_TRAININGS, MOST_PARALLEL = 30, 30, 750, 100
"""Limits of a tuning job (developer guide, automatic-model-tuning-limits), and of the inputs of the
processing job that evaluates the best model."""

Value = str | bool | int | FiniteFloat


class Range(Section):
    """A range of numbers, including its ends."""

    min: int | FiniteFloat = Field(examples=[0.0001])
    """Smallest value."""

    max: int | FiniteFloat = Field(examples=[0.01])
    """Largest value."""

    scale: Literal["linear", "log"] = "linear"
    """Whether equal differences (linear) or equal ratios (log) are equally likely. Use log for a
    learning rate."""

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.min >= self.max:
            raise ValueError(f"min {self.min} is not below max {self.max}; swap them")
        if self.scale == "log" and self.min <= 0:
            raise ValueError(f"min {self.min} has no logarithm; set it above 0, or scale to linear")
        return self


# Discriminated by type, so that an error is only about the form that was used. The tags do not
# appear in the error's field name.
SearchedValues = Annotated[
    Annotated[Range, Tag("<range>")] | Annotated[tuple[Value, ...], Tag("<values>")],
    Discriminator(lambda value: "<values>" if isinstance(value, list | tuple) else "<range>"),
]


class TuneConfig(Section):
    """A search for better hyperparameters before the training, as a SageMaker tuning job."""

    ranges: dict[str, SearchedValues] = Field(min_length=1, max_length=MOST_RANGES)
    """Name → {min, max, scale} or a list of values. A name is a field of ``train.loop``, a field of
    ``workload.config`` after ``workload_config_``, or a name in ``train.arguments``. The recipe's
    own value must be in the range."""

    strategy: Literal["bayesian", "random", "hyperband", "grid"] = "bayesian"
    """How values are chosen. hyperband: at random, and training jobs that fall behind are stopped.
    grid: every combination of the lists. bayesian: AWS's own method; a run on the laptop uses
    another Bayesian search."""

    trainings: int = Field(default=10, ge=2, le=MOST_TRAININGS)
    """Maximum number of training jobs; grid: their exact number."""

    parallel: int = Field(default=1, ge=1, le=MOST_PARALLEL)
    """Training jobs at a time. A Bayesian search learns more if there are fewer at a time."""

    max_hours: float | None = Field(default=None, gt=0, le=720)
    """Hours after which the search ends and its running training jobs are stopped; null: no limit.
    """

    stop_early: bool = False
    """Stop a training job whose validation loss is worse than the median of the earlier ones'
    average at the same point (SageMaker's Auto); hyperband stops by itself.
    """

    seed: int = Field(default=0, ge=0, le=2**31 - 1)
    """Seed of the search."""

    metric: str | None = None
    """Name in ``train.metrics`` by which a script's training jobs are compared. The loop's are
    compared by the validation loss.
    """

    goal: Literal["minimize", "maximize"] = "minimize"
    """Whether a lower or a higher ``metric`` is better."""

    @model_validator(mode="after")
    def _check_field_combinations(self) -> Self:
        for name, values in self.ranges.items():
            if isinstance(values, Range):
                if self.strategy == "grid":
                    raise ValueError(f"ranges.{name}: strategy grid takes lists of values only")
            elif not 1 <= len(values) <= MOST_VALUES or len({*map(str, values)}) != len(values):
                raise ValueError(f"ranges.{name}: expected 1 to {MOST_VALUES} different values")
        if self.strategy == "grid" and (count := self.combinations) != self.trainings:
            raise ValueError(
                f"trainings: is {self.trainings}, but the grid has {count} "
                f"combinations; set trainings to {count}"
            )
        if self.strategy == "hyperband" and self.stop_early:
            raise ValueError("stop_early: strategy hyperband stops trainings itself; remove it")
        if self.parallel > self.trainings:
            raise ValueError(f"parallel: is {self.parallel}, more than trainings {self.trainings}")
        return self

    def allows(self, name: str, value: object) -> bool:
        """Return whether ``value`` is in the range ``name``."""
        search_range = self.ranges[name]
        if isinstance(search_range, Range):
            return isinstance(value, int | float) and search_range.min <= value <= search_range.max
        return value in search_range

    @property
    def combinations(self) -> int:
        """Return the number of combinations of the values in all lists."""
        count = 1
        for values in self.ranges.values():
            count *= 1 if isinstance(values, Range) else len(values)
        return count
