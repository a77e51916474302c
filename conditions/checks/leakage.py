"""``max_leaked_…``: the test examples were not trained on."""

from typing import Any

from conditions.check_table import Field, GateCheck
from conditions.gate_check import Check, check_maximum, find_number


def check_leakage(evaluation: Any, leak_kind: str, limit: float) -> Check:
    """Check that at most a share ``limit`` of the test split is also in the train split.

    ``leak_kind``: ``examples``, which are found by the hash of their content, or ``groups``, which
    are found by their key. A metric on examples that were trained on says nothing about new ones.
    """
    leak_count = find_number(evaluation, "leakage", leak_kind)
    searched_count = find_number(evaluation, "leakage", f"checked_{leak_kind}")
    share, demand = None, f"the share of test {leak_kind} that were trained on"
    if leak_count is not None and searched_count and 0 <= leak_count <= searched_count:
        share = leak_count / searched_count
        demand = f"{demand} ({leak_count:g} of {searched_count:g}) may be at most {limit:g}"
    return check_maximum(
        kind="leakage",
        metric=f"leaked_{leak_kind}",
        value=share,
        most=limit,
        demand=demand,
        missing=f"the evaluation does not say which test {leak_kind} are in train, or it checked "
        f"no {leak_kind.removesuffix('s')}",
    )


CHECKS = (
    GateCheck(
        kind="leakage",
        fields=(
            Field(
                name="max_leaked_examples",
                ge=0,
                le=1,
                doc="Share of test examples whose content is also in train; 0 for none at all.",
            ),
        ),
        judge=lambda evidence, demands: [
            check_leakage(evidence.evaluation, "examples", demands["max_leaked_examples"])
        ],
        picture="budgets",
        order=50,
        display_order=50,
    ),
    GateCheck(
        kind="leakage",
        fields=(
            Field(
                name="max_leaked_groups",
                ge=0,
                le=1,
                doc="Share of test groups that are also in train.",
            ),
        ),
        judge=lambda evidence, demands: [
            check_leakage(evidence.evaluation, "groups", demands["max_leaked_groups"])
        ],
        picture="budgets",
        order=60,
        display_order=50,
    ),
)
