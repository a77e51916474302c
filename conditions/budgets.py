"""Checks of evaluation.json that are about no metric: leakage, latency, size of the artifact."""

from typing import Any

from conditions.checks import Check, compare, measured, number


def within_latency(evaluation: Any, budget_ms: float) -> Check:
    """95 of 100 single-example requests are answered within the budget, in milliseconds.

    On the machine that evaluated; another instance type than the endpoint's is another latency.
    A machine that was busy answers later, never sooner: within the budget is within it, and beyond
    it the model is rejected, with the neighbour as a possible cause.
    """
    return compare(
        kind="latency",
        name="max_latency_p95_ms",
        metric="latency_p95_ms",
        direction="lower",
        value=measured(evaluation, "latency", "p95_ms"),
        threshold=number(budget_ms),
        demand=f"the recipe demands at most {budget_ms:g}{_disturbed(evaluation)}",
        missing="latency.p95_ms is missing from the evaluation, or not finite",
    )


def _disturbed(evaluation: Any) -> str:
    """What to say of a machine that something else used, too."""
    waited = measured(evaluation, "latency", "waited_share")
    if waited is None or evaluation["latency"].get("busy") is not True:
        return ""
    return (
        f"; the machine was busy: {waited:.0%} of the time other processes had the cores, so the "
        "model itself is faster; where that decides, evaluate again on a quiet machine"
    )


def within_size(evaluation: Any, budget_mb: float) -> Check:
    """model.tar.gz is at most so large, in MB of 10⁶ bytes."""
    size = measured(evaluation, "artifact", "bytes")
    return compare(
        kind="artifact_size",
        name="max_artifact_mb",
        metric="artifact_mb",
        direction="lower",
        value=None if size is None else size / 1e6,
        threshold=number(budget_mb),
        demand=f"the recipe demands at most {budget_mb:g}",
        missing="artifact.bytes is missing from the evaluation, or not finite",
    )


def without_near_duplicates(evaluation: Any, allowed: float) -> Check:
    """Of at most so large a share of the test examples nearly the same stands in train.

    ``steps.evaluate.near`` says what is near, and how sure that is.
    """
    found = measured(evaluation, "near_duplicates", "examples")
    looked_at = measured(evaluation, "near_duplicates", "checked_examples")
    known = found is not None and looked_at is not None and 0 <= found <= looked_at and looked_at
    return compare(
        kind="leakage",
        name="max_near_duplicates",
        metric="near_duplicates",
        direction="lower",
        value=found / looked_at if known else None,
        threshold=number(allowed),
        demand=f"the share of test examples of which nearly the same was trained on ({found:g} of "
        f"{looked_at:g}) may be at most {allowed:g}" if known else "",
        missing="the evaluation does not say of which test examples nearly the same is in train",
    )  # fmt: skip


def without_leakage(evaluation: Any, what: str, allowed: float) -> Check:
    """At most so large a share of the test split's ``what`` is also in the train split.

    ``what``: ``examples``, found by the hash of their content, or ``groups``, found by their key. A
    metric on examples that were trained on says nothing of new ones.
    """
    found = measured(evaluation, "leakage", what)
    looked_at = measured(evaluation, "leakage", f"checked_{what}")
    known = found is not None and looked_at is not None and 0 <= found <= looked_at and looked_at
    singular = what.removesuffix("s")
    return compare(
        kind="leakage",
        name=f"max_leaked_{what}",
        metric=f"leaked_{what}",
        direction="lower",
        value=found / looked_at if known else None,
        threshold=number(allowed),
        demand=f"the share of test {what} that were trained on ({found:g} of {looked_at:g}) may "
        f"be at most {allowed:g}" if known else "",
        missing=f"the evaluation does not say which test {what} are in train, or looked at no "
        f"{singular}",
    )  # fmt: skip
