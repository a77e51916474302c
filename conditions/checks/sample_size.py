"""``min_examples``, ``min_groups``: the test split is large enough to judge by."""

from conditions.check_table import Field, GateCheck, compared_metrics
from conditions.demands import Demands
from conditions.gate_check import Check, number, reaches
from conditions.gate_evidence import Evidence


def _at_least(check: GateCheck, what: str, found: float, least: float) -> Check:
    return check.row(
        what,
        least,
        value=number(found),
        passed=reaches(found, least),
        reason=f"the test split has {found:.6g} {what.replace('_', ' ')}, the recipe demands at "
        f"least {least:g}",
    )


def _examples(evidence: Evidence, demands: Demands) -> list[Check]:
    """Check the number of examples in the test split."""
    return [_at_least(EXAMPLES, "examples", evidence.sums.examples, demands["min_examples"])]


def _groups(evidence: Evidence, demands: Demands) -> list[Check]:
    """Check the number of effective groups in the test split, on each metric that is compared."""
    least = min(found.improvement.effective_groups for found in evidence.compared.values())
    return [_at_least(GROUPS, "effective_groups", least, demands["min_groups"])]


EXAMPLES: GateCheck = GateCheck(
    kind="sample_size",
    fields=(
        Field(
            name="min_examples",
            of=int,
            ge=1,
            doc="Examples that the test split must have.",
        ),
    ),
    judge=_examples,
    needs=frozenset({"scores"}),
    expected=lambda demands: [("examples", demands["min_examples"])],
    direction="higher",
    name="min_{metric}",
    picture="budgets",
    order=30,
    shown=60,
)
GROUPS: GateCheck = GateCheck(
    kind="sample_size",
    judge=_groups,
    declared=lambda check, values: bool(compared_metrics(values)),
    needs=frozenset({"scores", "champion"}),
    expected=lambda demands: [("effective_groups", demands["min_groups"])],
    direction="higher",
    name="min_{metric}",
    picture="budgets",
    order=100,
    shown=105,
)
CHECKS = (EXAMPLES, GROUPS)
