"""``max_artifact_mb``: model.tar.gz is small enough."""

from typing import Any

from conditions.check_table import Field, GateCheck
from conditions.gate_check import Check, check_maximum, find_number


def check_artifact_size(evaluation: Any, budget_mb: float) -> Check:
    """Check that model.tar.gz has at most ``budget_mb`` MB of 10⁶ bytes."""
    size = find_number(evaluation, "artifact", "bytes")
    return check_maximum(
        kind="artifact_size",
        metric="artifact_mb",
        value=None if size is None else size / 1e6,
        most=budget_mb,
        demand=f"the recipe demands at most {budget_mb:g}",
        missing="artifact.bytes is missing from the evaluation, or not finite",
    )


CHECKS = (
    GateCheck(
        kind="artifact_size",
        fields=(Field(name="max_artifact_mb", gt=0, doc="Size of model.tar.gz in MB."),),
        judge=lambda evidence, demands: [
            check_artifact_size(evidence.evaluation, demands["max_artifact_mb"])
        ],
        picture="budgets",
        order=90,
        display_order=40,
    ),
)
