"""``max_leaked_…``: the test examples were not trained on."""

from typing import Any

from conditions.check_table import Field, GateCheck
from conditions.gate_check import Check, at_most, measured


def without_leakage(evaluation: Any, what: str, allowed: float) -> Check:
    """Check that at most ``allowed`` (a share) of the test split's ``what`` is in the train split.

    ``what``: ``examples``, found by the hash of their content, or ``groups``, found by their key. A
    metric on examples that were trained on says nothing about new ones.
    """
    leaked = measured(evaluation, "leakage", what)
    checked = measured(evaluation, "leakage", f"checked_{what}")
    share, demand = None, f"the share of test {what} that were trained on"
    if leaked is not None and checked and 0 <= leaked <= checked:
        share = leaked / checked
        demand = f"{demand} ({leaked:g} of {checked:g}) may be at most {allowed:g}"
    return at_most(
        kind="leakage",
        metric=f"leaked_{what}",
        value=share,
        most=allowed,
        demand=demand,
        missing=f"the evaluation does not say which test {what} are in train, or looked at no "
        f"{what.removesuffix('s')}",
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
        judge=lambda found, asked: [
            without_leakage(found.evaluation, "examples", asked["max_leaked_examples"])
        ],
        picture="budgets",
        order=50,
        shown=50,
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
        judge=lambda found, asked: [
            without_leakage(found.evaluation, "groups", asked["max_leaked_groups"])
        ],
        picture="budgets",
        order=60,
        shown=50,
    ),
)
