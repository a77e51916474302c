"""``slice_regression``: on no slice is the challenger shown to be worse than the champion."""

from collections.abc import Iterator

from conditions.champion_comparison import iter_signed_margins, make_margins_field
from conditions.check_table import Demands, GateCheck
from conditions.gate_check import Check
from conditions.gate_documents import Evidence


def _judge_slice_regression(evidence: Evidence, demands: Demands) -> Iterator[Check]:
    """Yield one row per metric; also append the judged slices to ``evidence.slices``."""
    from conditions.slices import judge_slices  # imports numpy, so only if slices are judged

    for metric, margin in demands["slice_regression"].items():
        check, judged_slices = judge_slices(
            SLICE_REGRESSION,
            list(evidence.sums.iter_slices(metric)),
            metric,
            margin,
            confidence=demands["confidence"],
            min_examples=demands["min_slice_examples"],
            min_groups=demands["min_slice_groups"],
        )
        evidence.slices += judged_slices
        yield check


SLICE_REGRESSION: GateCheck = GateCheck(
    kind="slice_regression",
    fields=(
        make_margins_field(
            "slice_regression",
            "Metric → margin: on no slice is the challenger shown to be worse by more than that.",
            ge=0,
        ),
    ),
    judge=_judge_slice_regression,
    needs=frozenset({"scores", "champion", "slices"}),
    expected_rows=lambda demands: iter_signed_margins(SLICE_REGRESSION, demands, -1),
    direction="higher",
    name="slice_regression_{metric}",
    limit="high above",
    picture="champion",
    order=130,
    display_order=90,
)
CHECKS = (SLICE_REGRESSION,)
