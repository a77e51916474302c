"""Settings of the tabular workload. It imports no torch."""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from training.workloads import WorkloadSpec

Share = Annotated[float, Field(ge=0, lt=1)]


class TabularConfig(BaseModel):
    """Rows → category hashes and numbers → embeddings, normalised numbers → an MLP → one logit."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    categories: tuple[str, ...] = ()
    """Columns whose values are names (strings, integers, booleans); a missing one is a value."""

    numbers: tuple[str, ...] = ()
    """Columns whose values are quantities; a missing one becomes the mean, and a flag."""

    label: str
    """Column of numbers that decides the class; a row without it is bad."""

    label_above: FiniteFloat = 0.0
    """A row is positive when its label is greater than this, in the label's unit."""

    group: str | None = None
    """Column whose equal values mark related rows (flights of one day): standard errors and the
    choice of the baselines' settings count groups, not rows. None: rows are independent."""

    group_ordered: bool = False
    """Set it if successive groups are similar, as days are: the gate then compares models as if
    there were fewer groups. The values must be whole numbers, dates or times (ISO 8601, one
    zone)."""

    min_count: int = Field(default=10, ge=1)
    """Category values in fewer rows of the training split than this share one embedding with unseen
    ones."""

    embedding: int = Field(default=8, ge=1)
    """Width of each category's embedding."""

    hidden: tuple[Annotated[int, Field(ge=1)], ...] = (512,)
    """Widths of the hidden layers."""

    dropout: Share = 0.5
    """Share of the hidden units that are dropped in training."""

    embedding_dropout: Share = 0.2
    """Share of the embeddings' elements that are dropped in training."""

    clip: FiniteFloat = Field(default=4.0, gt=0)
    """Number of standard deviations from the mean at which normalised numbers are cut off."""

    @model_validator(mode="after")
    def _check_columns_distinct(self) -> Self:
        names = [*self.categories, *self.numbers, self.label]
        if len(names) == 1:
            raise ValueError(
                "categories and numbers are both empty: name the columns to learn from"
            )
        for name in names:
            if names.count(name) > 1:
                raise ValueError(
                    f"column {name!r} is named twice among categories, numbers and label; "
                    "the label must not be learned from, and a column has one kind"
                )
        if self.group in (*self.numbers, self.label):
            raise ValueError(f"group {self.group!r} is a number; name a category column")
        if self.group_ordered and self.group is None:
            raise ValueError("group_ordered is set, but no group: name the column of the groups")
        return self


SPEC = WorkloadSpec(
    config=TabularConfig,
    metrics={"log_loss": "lower", "auc": "higher", "accuracy": "higher", "brier": "lower"},
    primary_metric="log_loss",
    baselines=("boosted_trees", "logistic_regression", "base_rate"),
    baselines_scored=True,
    packed_with=("categories", "numbers", "label", "label_above", "group", "group_ordered"),
    ranges={"accuracy": 1.0, "brier": 1.0},
    compared_in=("log_loss", "accuracy", "brier"),
    slices=lambda config: (*config.categories, "source"),
    answer_numbers=("probability",),
    has_summary=True,
    folder_slice="source",
)
