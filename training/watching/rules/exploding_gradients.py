"""The gradient is far larger than it was (Debugger: ExplodingTensor, which knew infinite ones).

A norm that is not finite ends the training by itself; this is what comes before. Single spikes are
clipped (``grad_clip``) and part of training, so several of the last lines have to be that large.
Where a model is all but perfect, the usual norm is tiny, and each hard sample a spike: so they have
to be far larger than any norm before, or all that there are for twice as long. And where the loss
begins to fall with it, the training leaves a plateau.
"""

from collections.abc import Sequence
from statistics import median, median_low, stdev

from pydantic import Field, FiniteFloat

from training.watching.watch_rule import Finding, History, Line, Plan, Rule, RuleSettings

BEFORE = 50
"""Lines that say how large the gradient was."""

LEAST = 10
"""Lines without which that is not known."""

BEYOND = 2.0
"""So many times the largest norm before is beyond what there has been."""


class ExplodingGradients(RuleSettings):
    """The gradient's norm, before clipping, is many times what it was."""

    times: FiniteFloat = Field(default=20.0, gt=1)
    """So many times the median of the lines before."""

    lines: int = Field(default=3, ge=1)
    """Lines of the last twice as many in which it is, and twice the largest of any before; or of
    the last four times as many all."""


def check(history: History, settings: ExplodingGradients, plan: Plan) -> Finding | None:
    """The norm over the median before, the lowest of those that are too large."""
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
    """Whether the loss of the last lines has fallen, by more than its noise and than it fell by in
    the lines before.
    """
    losses = [line["loss"] for line in lines]
    half = (len(losses) - count) // 2
    early, late, now = losses[:half], losses[half:-count], losses[-count // 2 :]
    return median(late) - median(now) > max(stdev(late), median(early) - median(late))


RULE = Rule(ExplodingGradients, check)
