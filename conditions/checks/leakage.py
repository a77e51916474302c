"""``max_leaked_…``, ``max_near_duplicates``: the test examples were not trained on."""

from typing import Any

from conditions.check_table import Field, GateCheck
from conditions.gate_check import Check, at_most, measured


def without_leakage(evaluation: Any, what: str, allowed: float) -> Check:
    """Check that at most ``allowed`` (a share) of the test split's ``what`` is in the train split.

    ``what``: ``examples``, found by the hash of their content, or ``groups``, found by their key. A
    metric on examples that were trained on says nothing about new ones.
    """
    found = measured(evaluation, "leakage", what)
    looked_at = measured(evaluation, "leakage", f"checked_{what}")
    return _share(
        f"leaked_{what}",
        found,
        looked_at,
        allowed,
        demand=f"the share of test {what} that were trained on",
        missing=f"the evaluation does not say which test {what} are in train, or looked at no "
        f"{what.removesuffix('s')}",
    )


def without_near_duplicates(evaluation: Any, allowed: float) -> Check:
    """Check that at most ``allowed`` (a share) of the test examples have a near copy in train.

    ``steps.evaluate.near_duplicates`` says what is near, and how sure that is.
    """
    return _share(
        "near_duplicates",
        measured(evaluation, "near_duplicates", "examples"),
        measured(evaluation, "near_duplicates", "checked_examples"),
        allowed,
        demand="the share of test examples of which nearly the same was trained on",
        missing="the evaluation does not say of which test examples nearly the same is in train",
    )


def _share(
    metric: str,
    found: float | None,
    looked_at: float | None,
    allowed: float,
    *,
    demand: str,
    missing: str,
) -> Check:
    share = None
    if found is not None and looked_at and 0 <= found <= looked_at:
        share = found / looked_at
        demand = f"{demand} ({found:g} of {looked_at:g}) may be at most {allowed:g}"
    return at_most(
        kind="leakage", metric=metric, value=share, most=allowed, demand=demand, missing=missing
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
    GateCheck(
        kind="leakage",
        fields=(
            Field(
                name="max_near_duplicates",
                ge=0,
                le=1,
                doc="Share of test examples of which nearly the same is in train: see "
                "docs/gate.md.",
            ),
        ),
        judge=lambda found, asked: [
            without_near_duplicates(found.evaluation, asked["max_near_duplicates"])
        ],
        needs=frozenset({"near_duplicates"}),
        picture="budgets",
        order=70,
        shown=50,
    ),
)
