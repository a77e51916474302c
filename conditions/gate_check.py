"""Results of the gate's checks: the rows of gate.json. It imports neither torch nor the SDK.

An evaluation is the document that ``steps/evaluate/job.py`` writes. The gate does not trust it: a
value that is missing, of another type or not finite makes a check fail with a reason, and never
raises.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

Direction = Literal["lower", "higher"]

ROUNDING = 1e-9
"""Relative rounding error that is allowed in a computed count or share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Outcome of one check. A number is None if it is unknown or infinite."""

    name: str
    kind: str
    metric: str
    direction: Direction
    """Better values: ``lower`` demands at most the threshold, ``higher`` at least the threshold."""
    value: float | None
    """Measured value, or None if it is missing or not finite. For a comparison with the champion,
    it is the improvement in the metric's unit; positive is better."""
    threshold: float | None
    """Demanded value, or None if the baseline that it comes from is missing or not finite."""
    passed: bool
    reason: str
    """A sentence for people, both if the check passed and if it failed."""
    low: float | None = None
    """One-sided lower limit of the value at ``confidence``."""
    high: float | None = None
    """One-sided upper limit of the value at ``confidence``."""
    confidence: float | None = None
    """Confidence of each single limit. Both together hold with 2 × confidence - 1."""
    method: str | None = None
    """Test of a comparison: ``betting`` (exact) or ``approximate`` (``conditions.mean_tests``)."""
    slice: str | None = None
    """``column=value`` of the slice that the row is about."""
    challenger: float | None = None
    """The challenger's metric on the examples that are compared."""
    champion: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Comparison of the two models on one value of one slice column, for gate.json."""

    metric: str
    slice: str
    """``column=value``."""
    examples: int
    effective_groups: float | None
    value: float | None
    """The improvement on the slice."""
    low: float | None
    high: float | None
    """One-sided limits, each at 1 - α ÷ tested slices (Bonferroni). If even ``high`` is below the
    threshold, Holm's test also finds the regression."""
    p_value: float | None
    """Holm-adjusted p-value of "not worse by more than the margin", or None if not tested."""
    passed: bool


def find_number(evaluation: Any, *path: str) -> float | None:
    """Return the finite number below the nested keys ``path``; None if there is none."""
    for key in path:
        if not isinstance(evaluation, dict) or key not in evaluation:
            return None
        evaluation = evaluation[key]
    return to_finite_number(evaluation)


def to_finite_number(value: Any) -> float | None:
    """Return ``value`` as a finite float; None for anything else, including booleans and text."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        value = float(value)
    except OverflowError:  # an integer that is too large for a float
        return None
    return value if math.isfinite(value) else None


def is_at_least(value: float, minimum: float) -> bool:
    """Return whether a computed number is at least ``minimum``, up to rounding.

    For example, 20 groups of 1/20 each may add up to 19.999999999999996.
    """
    return value >= minimum - ROUNDING * abs(minimum)


def compare_with_threshold(
    *,
    kind: str,
    name: str,
    metric: str,
    direction: Direction,
    value: float | None,
    threshold: float | None,
    demand: str,
    missing: str,
    strict: bool = False,
) -> Check:
    """Return the outcome of comparing a value with a threshold.

    If either is missing, the check fails with ``missing`` as its reason. ``strict``: whether an
    equal value fails.
    """
    if value is None or threshold is None:
        is_pass, reason = False, missing
    else:
        better = value < threshold if direction == "lower" else value > threshold
        is_pass = better or (value == threshold and not strict)
        reason = f"{metric} is {value:.4g}, {demand}"
    return Check(
        kind=kind,
        name=name,
        metric=metric,
        direction=direction,
        value=value,
        threshold=threshold,
        passed=is_pass,
        reason=reason,
    )


def check_maximum(
    *, kind: str, metric: str, value: float | None, most: float, demand: str, missing: str
) -> Check:
    """Return the outcome of the check ``max_<metric>``, that ``value`` is at most ``most``."""
    return compare_with_threshold(
        kind=kind,
        name=f"max_{metric}",
        metric=metric,
        direction="lower",
        value=value,
        threshold=to_finite_number(most),
        demand=demand,
        missing=missing,
    )
