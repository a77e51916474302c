"""The recipe's section ``deploy``: the endpoint that serves the group's model."""

import math
from typing import Literal, Self

from pydantic import Field, model_validator

from steps.config import InstanceType, Section

LATENCY_MINUTES = 3
"""Least minutes between shifts in which an alarm on the latency of two minutes can go off."""


class Comparison(Section):
    """Sequential comparison of the new model with the serving one while both answer.

    It may be looked at any time: whatever the number of looks, an equal model is rolled back with
    at most the probability ``error``.
    """

    quality: str | None = Field(default=None, pattern=r"^\w+(\.\w+)*$", examples=["bits_per_byte"])
    """Number in the model's JSON answer that says how good it is, as bits_per_byte; a dot leads
    into an object. Default: only errors are compared."""

    better: Literal["lower", "higher"] = "lower"
    """Whether an answer with a lower or a higher ``quality`` is the better one."""

    error: float = Field(default=0.05, gt=0, lt=0.5)
    """Probability of a false roll-back, of errors and quality together."""


class Deploy(Section):
    """The endpoint of the recipe's model, and how a new model comes into service."""

    endpoint: str = Field(pattern=r"^[a-zA-Z0-9](-*[a-zA-Z0-9]){0,32}$", examples=["my-endpoint"])
    """Name of the endpoint; of at most 33 characters, since configurations are named after it."""

    instance_type: InstanceType = "ml.m5.large"
    """Type of the instances."""

    instance_count: int = Field(default=2, ge=1)
    """Number of instances."""

    shift: Literal["canary", "linear", "all_at_once"] = "canary"
    """How requests come to a new model: a share first, then all; in equal steps; or all at once."""

    share: float = Field(default=0.5, ge=0.1, le=0.5)
    """Share of the capacity that a canary, or each linear step, has."""

    bake_minutes: float = Field(default=10, gt=0, le=60)
    """Minutes after each shift in which an alarm rolls back."""

    max_error_share: float | None = Field(default=0.05, gt=0, lt=1)
    """Share of requests of a minute that end with a server error (5XX), beyond which an alarm goes
    off; null for none."""

    max_p95_ms: float | None = Field(default=None, gt=0)
    """95th percentile of the model's latency in a minute, beyond which in two minutes in a row an
    alarm goes off: a process's first request is slow, whatever the model."""

    compare: Comparison | None = None
    """Sequential comparison with the serving model."""

    capture_share: float = Field(default=0.0, ge=0, le=1)
    """Share of the requests that are captured, with their answers, below the pipeline's prefix."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        canary = math.ceil(self.share * self.instance_count)
        if self.shift != "all_at_once" and canary > self.instance_count / 2:
            raise ValueError(
                f"share: {self.share:g} of {self.instance_count} instances is {canary}, more than "
                "half; take more instances, or shift: all_at_once"
            )
        if self.max_p95_ms and self.bake_minutes < LATENCY_MINUTES:
            raise ValueError(
                f"bake_minutes: {self.bake_minutes:g} is too short for max_p95_ms, whose alarm "
                f"looks at two minutes in a row; take {LATENCY_MINUTES} or more"
            )
        if self.compare and self.compare.quality and not self.capture_share:
            raise ValueError("compare.quality: is read from captured answers; set capture_share")
        if self.compare and self.shift == "all_at_once":
            raise ValueError("compare: needs both models to answer; set shift to canary or linear")
        return self
