"""Is the challenger worse than the champion on some slice, although it may be better on average?"""

from collections.abc import Sequence

import numpy as np

from conditions.check_table import GateCheck
from conditions.gate_check import Check, Slice, number, reaches
from conditions.improvement import Improvement, effective_groups, improvement
from conditions.mean_tests import Floats
from conditions.score_tables import SliceSums

NAMED = 5
"""Slices that a reason names, at most."""
LISTED = 200
"""Slices of a metric in gate.json, at most, the worst first; the pipeline reads that file, too."""


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
    """Check that no slice is worse than the champion's by more than ``margin``.

    Each slice with enough examples and effective groups is tested for H₀ "not worse by more than
    the margin". Holm's step-down adjustment (Scandinavian Journal of Statistics 6, 1979) keeps the
    chance of stopping a model without any such slice at α = 1 - confidence, however many slices
    there are. A failure is proof of harm; a pass is no proof of safety: a slice too small to prove
    anything does not stop a model, and is reported as untested.
    """
    tested = [
        one
        for one in slices
        if one.examples >= min_examples and reaches(effective_groups(one.groups.weight), min_groups)
    ]
    names = {one.slice for one in tested}
    untested = [_as_slice(one, metric, None, None, True) for one in slices
                if one.slice not in names]  # fmt: skip
    if not tested:
        return _no_test(check, metric, margin, len(untested), confidence), untested[:LISTED]
    level = 1 - (1 - confidence) / len(tested)
    found = [improvement(one.groups, level) for one in tested]
    adjusted = holm(np.array([one.groups.chance_not_below(-margin) for one in tested]))
    judged = [
        _as_slice(one, metric, limits, float(chance), bool(chance > 1 - confidence))
        for one, limits, chance in zip(tested, found, adjusted, strict=True)
    ]
    worst_first = sorted(judged, key=lambda one: (one.p_value, one.value))
    listed = (worst_first + untested)[:LISTED]
    return _worst(check, worst_first, margin, level, len(untested)), listed


def holm(chances: Floats) -> Floats:
    """Return Holm's adjusted p-values, in the order given.

    Equal to statsmodels' ``multipletests`` (a test compares them), without the second that
    importing it takes, and the full garbage collection of each of its calls.
    """
    order = np.argsort(chances)
    left = len(chances) - np.arange(len(chances))
    adjusted = np.empty_like(chances)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(chances[order] * left))
    return adjusted


def _as_slice(
    sums: SliceSums, metric: str, found: Improvement | None, chance: float | None, passed: bool
) -> Slice:
    return Slice(
        metric=metric,
        slice=sums.slice,
        examples=sums.examples,
        effective_groups=None if found is None else number(found.effective_groups),
        value=None if found is None else number(found.value),
        low=None if found is None else number(found.low),
        high=None if found is None else number(found.high),
        p_value=None if chance is None else number(chance),
        passed=passed,
    )


def _worst(
    check: GateCheck, slices: Sequence[Slice], margin: float, level: float, untested: int
) -> Check:
    worst, failed = slices[0], [found for found in slices if not found.passed]
    if failed:
        named = ", ".join(f"{found.slice} ({found.value:+.4g})" for found in failed[:NAMED])
        more = f" and {len(failed) - NAMED} more" if len(failed) > NAMED else ""
        verdict = f"is worse than the champion's by more than {margin:g} on {named}{more}"
    else:
        verdict = f"is on no slice shown to be worse than the champion's by more than {margin:g}"
    return check.row(
        worst.metric,
        -margin,
        value=worst.value,
        low=worst.low,
        high=worst.high,
        confidence=level,
        passed=not failed,
        slice=worst.slice,
        reason=f"{worst.metric} {verdict}; {len(slices)} slices tested, {untested} too small",
    )


def _no_test(
    check: GateCheck, metric: str, margin: float, untested: int, confidence: float
) -> Check:
    return check.row(
        metric,
        -margin,
        value=None,
        confidence=confidence,
        passed=False,
        reason=f"{metric}: none of {untested} slices has examples and groups enough to be tested",
    )
