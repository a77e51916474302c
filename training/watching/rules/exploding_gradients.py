"""The gradient is far larger than it was (Debugger: ExplodingTensor, which detected infinite ones).

A norm that is not finite ends the training anyway; this rule sees what precedes it. Single spikes
are clipped (``grad_clip``) and part of training, so several of the last lines have to be that
large. For an almost perfect model the usual norm is tiny, and each hard sample a spike: so the
norms have to be far larger than any before, or all be large for twice as long. And if the loss
begins to fall at the same time, the training is leaving a plateau, which is not
reported.
"""

from collections.abc import Sequence
from statistics import median, median_low, stdev

from pydantic import Field, FiniteFloat

from training.watching.watch_rule import Finding, History, Line, Plan, Rule, RuleSettings

BEFORE = 50
"""Largest number of earlier lines that define the usual gradient norm."""

LEAST = 10
"""Minimum lines for a usual gradient norm."""

BEYOND = 2.0
"""Multiple of the largest earlier norm above which a norm is unprecedented."""


class ExplodingGradients(RuleSettings):
    """The gradient's norm, before clipping, is many times what it was."""

    times: FiniteFloat = Field(default=20.0, gt=1)
    """Multiple of the median of the earlier lines."""

    lines: int = Field(default=3, ge=1)
    """Lines, of the last twice as many, in which the norm exceeds it and twice any earlier norm; or
    it exceeds it in all of the last four times as many."""


def check(history: History, settings: ExplodingGradients, plan: Plan) -> Finding | None:
    """Return a finding with the smallest of the recent norms that are too large."""
    count = 2 * settings.lines
    lines = [line for line in history.lines[-BEFORE - count :] if "grad_norm" in line]
    norms = [line["grad_norm"] for line in lines]
    now, before = norms[-count:], norms[:-count]
    if len(before) < LEAST or not (usual := median(before)):
        return None
    large = sorted(norm for norm in now if norm > settings.times * usual)
    if len(large) < settings.lines or _leaves_plateau(lines, count):
        return None
    earlier = history.last("grad_norm", len(history.lines))[:-count]
    lasts = len(norms) >= 2 * count and min(norms[-2 * count :]) > settings.times * usual
    if median_low(large) <= BEYOND * max(earlier) and not lasts:
        return None
    return Finding(
        median_low(large) / usual,
        settings.times,
        f"the gradient's norm is {median_low(large):.4g} in {len(large)} of the last {len(now)} "
        f"lines, and was {usual:.4g} before",
        "lower learning_rate, warm up longer or lower grad_clip, and look at the samples of these "
        "steps",
    )


def _leaves_plateau(lines: Sequence[Line], count: int) -> bool:
    """Return whether recent losses fell by more than their noise, and faster than before."""
    losses = [line["loss"] for line in lines]
    half = (len(losses) - count) // 2
    early, late, now = losses[:half], losses[half:-count], losses[-count // 2 :]
    return median(late) - median(now) > max(stdev(late), median(early) - median(late))


RULE = Rule(ExplodingGradients, check)
