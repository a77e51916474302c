"""``max_latency_p95_ms``: single requests are answered in time."""

from typing import Any

from conditions.check_table import Field, GateCheck
from conditions.gate_check import Check, check_maximum, find_number


def check_latency(evaluation: Any, budget_ms: float) -> Check:
    """Check that 95 of 100 single-example requests are answered within the budget, in milliseconds.

    The latency is that of the evaluating machine; the endpoint's instance type may have another
    one. A busy machine answers later, never sooner: a latency within the budget is certain.
    """
    return check_maximum(
        kind="latency",
        metric="latency_p95_ms",
        value=find_number(evaluation, "latency", "p95_ms"),
        most=budget_ms,
        demand=f"the recipe demands at most {budget_ms:g}",
        missing="latency.p95_ms is missing from the evaluation, or not finite",
    )


CHECKS = (
    GateCheck(
        kind="latency",
        fields=(
            Field(
                name="max_latency_p95_ms",
                gt=0,
                doc="Milliseconds in which 95 of 100 single-example requests are answered.",
            ),
        ),
        judge=lambda evidence, demands: [
            check_latency(evidence.evaluation, demands["max_latency_p95_ms"])
        ],
        picture="budgets",
        order=80,
        display_order=30,
    ),
)
