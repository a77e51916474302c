"""``max_<metric>`` and ``min_<metric>``: a ceiling or a floor of a metric, in its own unit."""

from collections.abc import Iterator
from typing import Any

from conditions.check_table import Demands, Field, GateCheck
from conditions.gate_arguments import BOUNDS
from conditions.gate_check import (
    Check,
    Direction,
    compare_with_threshold,
    find_number,
    to_finite_number,
)
from conditions.gate_documents import Evidence


def check_against_threshold(
    evaluation: Any, metric: str, direction: Direction, threshold: float
) -> Check:
    """Check that the metric is at most (lower) or at least (higher) the recipe's threshold."""
    demand = "at most" if direction == "lower" else "at least"
    return compare_with_threshold(
        kind="threshold",
        name=f"{'max' if direction == 'lower' else 'min'}_{metric}",
        metric=metric,
        direction=direction,
        value=find_number(evaluation, "metrics", metric, "value"),
        threshold=to_finite_number(threshold),
        demand=f"the recipe demands {demand} {threshold:g}",
        missing=f"{metric} is missing from the evaluation, or not finite",
    )


def _judge_thresholds(evidence: Evidence, demands: Demands) -> Iterator[Check]:
    """Yield one row for each ``max_<metric>`` and ``min_<metric>`` of the recipe."""
    for name, threshold in demands["threshold"].items():
        bound, _, metric = name.partition("_")
        yield check_against_threshold(evidence.evaluation, metric, BOUNDS[bound], threshold)


CHECKS = (
    GateCheck(
        kind="threshold",
        fields=(Field(name="threshold", form="thresholds", doc=__doc__),),
        judge=_judge_thresholds,
        picture="metrics",
        order=10,
        display_order=10,
    ),
)
