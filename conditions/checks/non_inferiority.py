"""``non_inferiority``: the challenger is not worse than the champion by the margin or more."""

from conditions.champion_comparison import (
    check_lower_limit,
    iter_signed_margins,
    make_margins_field,
)
from conditions.check_table import GateCheck
from conditions.gate_check import Check
from conditions.gate_documents import MetricComparison


def check_non_inferiority(comparison: MetricComparison, margin: float) -> Check:
    """Check that the challenger is not worse than the champion by ``margin`` or more.

    Passes when the lower limit is above -margin: a one-sided test of H₀ "worse by the margin" at
    α = 1 - confidence (Piaggio et al., CONSORT for non-inferiority trials, JAMA 308, 2012).
    """
    return check_lower_limit(NON_INFERIORITY, comparison, -margin)


NON_INFERIORITY: GateCheck = GateCheck(
    kind="non_inferiority",
    fields=(
        make_margins_field(
            "non_inferiority",
            "Metric → margin: the challenger is shown to be worse than the champion by less than "
            "that.",
            gt=0,
        ),
    ),
    judge=lambda evidence, demands: (
        check_non_inferiority(evidence.comparisons[metric], margin)
        for metric, margin in demands["non_inferiority"].items()
    ),
    needs=frozenset({"scores", "champion"}),
    expected_rows=lambda demands: iter_signed_margins(NON_INFERIORITY, demands, -1),
    direction="higher",
    name="non_inferiority_{metric}",
    limit="low above",
    picture="champion",
    order=110,
    display_order=70,
)
CHECKS = (NON_INFERIORITY,)
