"""``below_baseline``: the model beats a baseline of its workload."""

from typing import Any

from conditions.check_table import Demands, Field, GateCheck
from conditions.gate_check import (
    Check,
    Direction,
    compare_with_threshold,
    find_number,
    to_finite_number,
)
from conditions.gate_documents import Evidence


def check_against_baseline(
    evaluation: Any, metric: str, direction: Direction, baseline: str, margin: float
) -> Check:
    """Check that the metric is better than the baseline's by ``margin``, in the metric's unit."""
    reference = find_number(evaluation, "baselines", baseline, metric)
    sign = -1 if direction == "lower" else 1
    threshold = None if reference is None else to_finite_number(reference + sign * margin)
    by = f" by at least {margin:g}" if margin else ""
    reference_text = "missing" if reference is None else f"{reference:.4g}"
    return compare_with_threshold(
        kind="baseline",
        name=f"beats_{baseline}",
        metric=metric,
        direction=direction,
        value=find_number(evaluation, "metrics", metric, "value"),
        threshold=threshold,
        demand=f"it must beat the {baseline} baseline's {reference_text}{by}",
        missing=f"{metric} of the model or of the {baseline} baseline is missing or not finite",
        strict=True,
    )


def _judge_baseline(evidence: Evidence, demands: Demands) -> list[Check]:
    """Return the row that compares the primary metric with the recipe's baseline."""
    metric = demands.primary_metric
    direction = demands.directions[metric]
    baseline, margin = demands["below_baseline"], demands["baseline_margin"]
    return [check_against_baseline(evidence.evaluation, metric, direction, baseline, margin)]


CHECKS = (
    GateCheck(
        kind="baseline",
        fields=(
            Field(
                name="below_baseline",
                value_type=str,
                doc="A baseline of the workload that the primary metric must beat; None for no "
                "such check.",
            ),
            Field(
                name="baseline_margin",
                default=0.0,
                ge=0,
                doc="By how much, in the primary metric's unit, the baseline must be beaten.",
            ),
        ),
        judge=_judge_baseline,
        picture="metrics",
        order=20,
        display_order=20,
    ),
)
