"""``min_examples``, ``min_groups``: the test split is large enough to judge by."""

from conditions.check_table import Demands, Field, GateCheck, list_compared_metrics
from conditions.gate_check import Check, is_at_least, to_finite_number
from conditions.gate_documents import Evidence


def _check_minimum(check: GateCheck, unit: str, count: float, minimum: float) -> Check:
    """Return the row that checks that ``count`` is at least ``minimum``, up to rounding."""
    return check.make_row(
        unit,
        minimum,
        value=to_finite_number(count),
        passed=is_at_least(count, minimum),
        reason=f"the test split has {count:.6g} {unit.replace('_', ' ')}, the recipe demands at "
        f"least {minimum:g}",
    )


def _check_effective_groups(evidence: Evidence, demands: Demands) -> list[Check]:
    """Check the number of effective groups: the smallest one of all compared metrics."""
    group_count = min(
        comparison.improvement.effective_groups for comparison in evidence.comparisons.values()
    )
    return [_check_minimum(GROUPS, "effective_groups", group_count, demands["min_groups"])]


EXAMPLES: GateCheck = GateCheck(
    kind="sample_size",
    fields=(
        Field(
            name="min_examples", value_type=int, ge=1, doc="Examples that the test split must have."
        ),
    ),
    judge=lambda evidence, demands: [
        _check_minimum(EXAMPLES, "examples", evidence.sums.examples, demands["min_examples"])
    ],
    needs=frozenset({"scores"}),
    expected_rows=lambda demands: [("examples", demands["min_examples"])],
    direction="higher",
    name="min_{metric}",
    picture="budgets",
    order=30,
    display_order=60,
)
GROUPS: GateCheck = GateCheck(
    kind="sample_size",
    judge=_check_effective_groups,
    is_declared=lambda check, values: bool(list_compared_metrics(values)),
    needs=frozenset({"scores", "champion"}),
    expected_rows=lambda demands: [("effective_groups", demands["min_groups"])],
    direction="higher",
    name="min_{metric}",
    picture="budgets",
    order=100,
    display_order=105,
)
CHECKS = (EXAMPLES, GROUPS)
