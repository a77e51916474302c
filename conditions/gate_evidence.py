"""Evidence that the gate's checks look at."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from conditions.gate_check import Slice
from trainyard.common.errors import GateError

if TYPE_CHECKING:  # numpy, pyarrow and SciPy: not where no scores are read
    from conditions.improvement import Improvement
    from conditions.score_tables import ScoreTables


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricComparison:
    """A metric of the two models on the same examples."""

    metric: str
    challenger: float
    champion: float
    improvement: "Improvement"
    confidence: float
    """Confidence of each of the improvement's limits."""
    in_order: bool = False
    """True if the groups have an order, and neighbours count as alike."""
    likeness: float = 0.0
    """Correlation of neighbours in the order of the rows, where no order is declared; 0 where it
    may be chance."""


@dataclass(slots=True, kw_only=True)
class Evidence:
    """Inputs of the checks, and the slices that they add beside their rows."""

    evaluation: Any
    """Content of evaluation.json, unchecked."""
    scores: "ScoreTables | None" = None
    """The scores of single examples; None where no check needs them."""
    comparisons: Mapping[str, MetricComparison] = field(default_factory=dict)
    """Metric → comparison of the two models; for checks that need ``champion``."""
    full: Mapping[str, MetricComparison] = field(default_factory=dict)
    """Metric → comparison of the int8 version with the full model; for checks that need
    ``int8``."""
    slices: list[Slice] = field(default_factory=list)
    """Judged slices, for gate.json."""

    @property
    def sums(self) -> "ScoreTables":
        """The scores of single examples.

        Raises:
            GateError: the asking check has not declared that it needs ``scores``.
        """
        if self.scores is None:
            raise GateError("a check looks at the scores, but its entry does not say so in needs")
        return self.scores
