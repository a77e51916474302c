"""The gate's settings."""

from pydantic import ConfigDict, Field, FiniteFloat

from steps.config import ProcessingCompute


class GateConfig(ProcessingCompute):
    """What a model must reach to be registered.

    Besides the fields below, ``max_<metric>`` and ``min_<metric>`` set a ceiling or a floor, in the
    metric's own unit, for any metric of the recipe's workload: ``max_bits_per_byte: 2.5``.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, FiniteFloat] = Field(init=False)

    below_baseline: str | None = None
    """A baseline of the workload that the primary metric must beat; None for no such check."""

    baseline_margin: FiniteFloat = Field(default=0.0, ge=0)
    """By how much, in the primary metric's unit, the baseline must be beaten."""

    @property
    def thresholds(self) -> dict[str, float]:
        """``max_<metric>`` or ``min_<metric>`` → the threshold, in the recipe's order."""
        return dict(self.__pydantic_extra__)
