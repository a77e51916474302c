"""Check whether the challenger is worse than the champion on some slice, even if it is better on
average.
"""

from collections.abc import Sequence

import numpy as np

from conditions.check_table import GateCheck
from conditions.gate_check import Check, Slice, is_at_least, to_finite_number
from conditions.improvement import Improvement, count_effective_groups, estimate_improvement
from conditions.mean_tests import Floats
from conditions.score_tables import SliceSums

MAX_NAMED = 5
"""Maximum number of slices that a reason names."""
MAX_LISTED = 200
"""Maximum number of slices of a metric in gate.json, the worst first. The pipeline reads that file
too, so it must not be too large."""


def judge_slices(
    check: GateCheck,
    slices: Sequence[SliceSums],
    metric: str,
    margin: float,
    *,
    confidence: float,
    min_examples: int,
    min_groups: int,
) -> tuple[Check, list[Slice]]:
    """Check that on no slice the challenger is worse than the champion by more than ``margin``.

    Each slice with enough examples and effective groups is tested for H₀ "not worse by more than
    the margin". Holm's step-down adjustment (Scandinavian Journal of Statistics 6, 1979) keeps the
    chance of rejecting a model without any such slice at α = 1 - confidence, however many slices
    there are. A failure proves harm, but a pass does not prove safety: a slice that is too small to
    prove anything does not reject a model, and is reported as untested.

    Return the check's row, and the slices for gate.json.
    """
    tested_slices = [
        slice_sums
        for slice_sums in slices
        if slice_sums.examples >= min_examples
        and is_at_least(count_effective_groups(slice_sums.groups.weight), min_groups)
    ]
    names = {slice_sums.slice for slice_sums in tested_slices}
    untested_slices = [_make_slice(slice_sums, metric, None, None, True) for slice_sums in slices
                if slice_sums.slice not in names]  # fmt: skip
    if not tested_slices:
        row = _make_untested_row(check, metric, margin, len(untested_slices), confidence)
        return row, untested_slices[:MAX_LISTED]
    # The limits are Bonferroni's, because Holm's test, which decides, has no limits.
    level = 1 - (1 - confidence) / len(tested_slices)
    improvements = [estimate_improvement(slice_sums.groups, level) for slice_sums in tested_slices]
    p_values = adjust_p_values(
        np.array([slice_sums.groups.compute_p_at_least(-margin) for slice_sums in tested_slices])
    )
    judged_slices = [
        _make_slice(slice_sums, metric, limits, float(p_value), bool(p_value > 1 - confidence))
        for slice_sums, limits, p_value in zip(tested_slices, improvements, p_values, strict=True)
    ]
    worst_first = sorted(
        judged_slices, key=lambda judged_slice: (judged_slice.p_value, judged_slice.value)
    )
    shown_slices = (worst_first + untested_slices)[:MAX_LISTED]
    row = _make_tested_row(check, worst_first, margin, level, len(untested_slices))
    return row, shown_slices


def adjust_p_values(p_values: Floats) -> Floats:
    """Return Holm's adjusted p-values, in the order of ``p_values``.

    The result is equal to statsmodels' ``multipletests`` (a test compares them). That is not used
    because importing it takes a second, and each call runs a full garbage collection.
    """
    order = np.argsort(p_values)
    remaining = len(p_values) - np.arange(len(p_values))
    adjusted = np.empty_like(p_values)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(p_values[order] * remaining))
    return adjusted


def _make_slice(
    sums: SliceSums, metric: str, limits: Improvement | None, p_value: float | None, is_pass: bool
) -> Slice:
    """Return a slice for gate.json; ``limits`` and ``p_value`` are None if it was not tested."""
    return Slice(
        metric=metric,
        slice=sums.slice,
        examples=sums.examples,
        effective_groups=None if limits is None else to_finite_number(limits.effective_groups),
        value=None if limits is None else to_finite_number(limits.value),
        low=None if limits is None else to_finite_number(limits.low),
        high=None if limits is None else to_finite_number(limits.high),
        p_value=None if p_value is None else to_finite_number(p_value),
        passed=is_pass,
    )


def _make_tested_row(
    check: GateCheck, slices: Sequence[Slice], margin: float, level: float, untested_count: int
) -> Check:
    """Return the row of the check if slices were tested; it passes if all slices pass."""
    worst = slices[0]
    failed_slices = [judged_slice for judged_slice in slices if not judged_slice.passed]
    if failed_slices:
        names_text = ", ".join(
            f"{judged_slice.slice} ({judged_slice.value:+.4g})"
            for judged_slice in failed_slices[:MAX_NAMED]
        )
        more = (
            f" and {len(failed_slices) - MAX_NAMED} more" if len(failed_slices) > MAX_NAMED else ""
        )
        verdict = f"is worse than the champion's by more than {margin:g} on {names_text}{more}"
    else:
        verdict = f"is on no slice shown to be worse than the champion's by more than {margin:g}"
    return check.make_row(
        worst.metric,
        -margin,
        value=worst.value,
        low=worst.low,
        high=worst.high,
        confidence=level,
        passed=not failed_slices,
        slice=worst.slice,
        reason=f"{worst.metric} {verdict}; {len(slices)} slices tested, {untested_count} too small",
    )


def _make_untested_row(
    check: GateCheck, metric: str, margin: float, untested_count: int, confidence: float
) -> Check:
    """Return the failing row of the check if no slice is large enough to be tested."""
    return check.make_row(
        metric,
        -margin,
        value=None,
        confidence=confidence,
        passed=False,
        reason=f"{metric}: none of {untested_count} slices has enough examples and groups to be "
        "tested",
    )
