"""The gate's settings."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, FiniteFloat

from conditions.checks import KINDS, Kind
from steps.config import ProcessingCompute

Margins = dict[str, Annotated[FiniteFloat, Field(ge=0)]]
"""Metric → margin in the metric's own unit."""
Effects = dict[str, Annotated[FiniteFloat, Field(gt=0)]]

# What the gate job needs beyond Python where it reads scores: AWS's PyTorch images lack some of it.
PACKAGES = ("numpy", "pyarrow", "scipy")


def threshold_parameter(threshold: str) -> str:
    """The pipeline parameter of a threshold, where the recipe lists it as overridable:
    ``max_bits_per_byte`` → ``GateMaxBitsPerByte``."""
    return "Gate" + "".join(word.capitalize() for word in threshold.split("_"))


class GateConfig(ProcessingCompute):
    """What a model must reach to be registered; docs/gate.md says what each check means.

    Besides the fields below, ``max_<metric>`` and ``min_<metric>`` set a ceiling or a floor, in the
    metric's own unit, for any metric of the recipe's workload: ``max_bits_per_byte: 2.5``.

    All of them are constants of the pipeline: a run cannot change them, unless the recipe's
    ``pipeline.overridable`` names a threshold.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, FiniteFloat] = Field(init=False)

    below_baseline: str | None = None
    """A baseline of the workload that the primary metric must beat; None for no such check."""

    baseline_margin: FiniteFloat = Field(default=0.0, ge=0)
    """By how much, in the primary metric's unit, the baseline must be beaten."""

    non_inferiority: Effects = {}
    """Metric → margin: the challenger is shown to be worse than the champion by less than that."""

    superiority: Margins = {}
    """Metric → margin: the challenger is shown to be better than the champion by more than that."""

    slice_regression: Margins = {}
    """Metric → margin: on no slice is the challenger shown to be worse by more than that."""

    smallest_effect: Effects = {}
    """Metric → an improvement that the test split must be large enough to show, with ``power``."""

    power: float = Field(default=0.8, gt=0.5, lt=1)
    """Chance with which an improvement of ``smallest_effect`` must be found."""

    confidence: float = Field(default=0.95, ge=0.8, lt=1)
    """One-sided: of models that are no better, however many are tried on one test split against
    one champion, any passes with probability 1 - confidence, as far as docs/gate.md says. Of
    ``slice_regression``: a model without a bad slice is stopped with that."""

    min_groups: int = Field(default=20, ge=2)
    """Effective groups that a comparison with the champion needs: (Σ weight)² / Σ weight²."""

    min_slice_examples: int = Field(default=100, ge=1)
    """Examples that a slice needs to be tested."""

    min_slice_groups: int = Field(default=10, ge=2)
    """Effective groups that a slice needs to be tested."""

    cold_start: Literal["pass", "reject"] = "pass"
    """What the comparisons give while the registry holds no Approved package to compare with. All
    other checks are made as ever, and ``pass`` needs some."""

    min_examples: int | None = Field(default=None, ge=1)
    """Examples that the test split must have."""

    max_group_influence: float | None = Field(default=None, gt=0, lt=1)
    """Share of the variance of an improvement that a single group may have; with ``superiority``,
    ``non_inferiority`` or another comparison. 0.5 refuses what one group decides."""

    max_calibration_error: float | None = Field(default=None, gt=0, lt=1)
    """Upper limit of the expected calibration error of a binary classifier's probabilities."""

    max_leaked_examples: float | None = Field(default=None, ge=0, le=1)
    """Share of test examples whose content is also in train; 0 for none at all."""

    max_leaked_groups: float | None = Field(default=None, ge=0, le=1)
    """Share of test groups that are also in train."""

    max_near_duplicates: float | None = Field(default=None, ge=0, le=1)
    """Share of test examples of which nearly the same is in train: see docs/gate.md."""

    max_latency_p95_ms: FiniteFloat | None = Field(default=None, gt=0)
    """Milliseconds in which 95 of 100 single-example requests are answered."""

    max_artifact_mb: FiniteFloat | None = Field(default=None, gt=0)
    """Size of model.tar.gz in MB."""

    visible_checks: bool = False
    """Whether the Verdict step shows one condition for each kind of check, beside the verdict."""

    @property
    def thresholds(self) -> dict[str, float]:
        """``max_<metric>`` or ``min_<metric>`` → the threshold, in the recipe's order."""
        return dict(self.__pydantic_extra__)

    @property
    def comparisons(self) -> dict[str, dict[str, float]]:
        """Kind of comparison with the champion → metric → margin; of those that are declared."""
        kinds = ("non_inferiority", "superiority", "slice_regression", "smallest_effect")
        return {kind: margins for kind in kinds if (margins := getattr(self, kind))}

    @property
    def absolute(self) -> dict[str, float]:
        """Checks that need no champion and are no threshold on a metric → what they demand."""
        names = (
            "min_examples", "max_calibration_error", "max_leaked_examples", "max_leaked_groups",
            "max_near_duplicates", "max_latency_p95_ms", "max_artifact_mb",
        )  # fmt: skip
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @property
    def reads_scores(self) -> bool:
        """Whether any check needs the scores of single examples."""
        return bool(
            self.comparisons or self.absolute.keys() & {"min_examples", "max_calibration_error"}
        )

    @property
    def packages(self) -> tuple[str, ...]:
        """What the gate's job has to install: nothing, where no scores are read."""
        return PACKAGES if self.reads_scores else ()

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of checks that are declared, as gate.json names them."""
        declared = {
            "threshold": self.thresholds,
            "baseline": self.below_baseline,
            "latency": self.max_latency_p95_ms,
            "artifact_size": self.max_artifact_mb,
            "leakage": self.absolute.keys()
            & {"max_leaked_examples", "max_leaked_groups", "max_near_duplicates"},
            "sample_size": self.comparisons or self.min_examples,
            "power": self.smallest_effect,
            "influence": self.comparisons and self.max_group_influence,
            "calibration": self.max_calibration_error,
        }
        return tuple(kind for kind in KINDS if declared.get(kind) or self.comparisons.get(kind))
