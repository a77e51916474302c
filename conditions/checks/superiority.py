"""``superiority``: the challenger is better than the champion by more than the margin."""

from conditions.champion_comparison import (
    check_lower_limit,
    iter_signed_margins,
    make_margins_field,
)
from conditions.check_table import GateCheck
from conditions.gate_check import Check
from conditions.gate_documents import MetricComparison


def check_superiority(comparison: MetricComparison, margin: float) -> Check:
    """Check that the challenger is better than the champion by more than ``margin`` (may be 0)."""
    return check_lower_limit(SUPERIORITY, comparison, margin)


SUPERIORITY: GateCheck = GateCheck(
    kind="superiority",
    fields=(
        make_margins_field(
            "superiority",
            "Metric → margin: the challenger is shown to be better than the champion by more than "
            "that.",
            ge=0,
        ),
    ),
    judge=lambda evidence, demands: (
        check_superiority(evidence.comparisons[metric], margin)
        for metric, margin in demands["superiority"].items()
    ),
    needs=frozenset({"scores", "champion"}),
    expected_rows=lambda demands: iter_signed_margins(SUPERIORITY, demands, 1),
    direction="higher",
    name="superiority_{metric}",
    limit="low above",
    picture="champion",
    order=120,
    display_order=80,
)
CHECKS = (SUPERIORITY,)
